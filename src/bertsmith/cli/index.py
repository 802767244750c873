"""`bertsmith index`: build a search index of folders, keep it up to date, export its vectors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, flag, option, options_of, verb
from bertsmith.errors import BertsmithError
from bertsmith.files import import_package
from bertsmith.numbers import counted
from bertsmith.settings.search import IndexSettings

if TYPE_CHECKING:
    from bertsmith.search import IndexUpdate

SHOWN = 20  # problems that are listed
LOADING = "loading the model"


class FoldersFirst(TyperGroup):
    """`index FOLDER...` is `index build FOLDER...`; `index export INDEX` is a verb of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default verb before arguments that begin with none."""
        if not args or args[0] not in self.commands:
            args = ["build", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=FoldersFirst,
    add_help_option=False,
    help="Build a search index of folders; export its vectors.",
)


@app.command("build")
@verb
def build(
    folders: list[Path] | None = argument(
        None,
        "Folders or files to index; by default those the index was built from.",
        metavar="FOLDER",
    ),
    out: Path | None = option(None, "Folder of the index."),
    model: str | None = option(
        None,
        "Model that computes the vectors: a directory, a built-in name or a hub id; "
        "default bertsmith-embed.",
    ),
    settings: Any = options_of(IndexSettings),
    re_embed: bool = flag(
        "--re-embed",
        "Compute all vectors again, with another model, passage size or number format; "
        "the old index answers queries until the new one is complete.",
    ),
    move: tuple[Path, Path] | None = option(
        None, "Record that an indexed folder was moved, instead of an update.", metavar="OLD NEW"
    ),
    drop: Path | None = option(
        None,
        "Remove a folder and its files from the index, instead of an update.",
        metavar="FOLDER",
    ),
    check: bool = flag("--check", "Verify all checksums of the index, instead of an update."),
    watch: bool = flag("--watch", "Keep running and update the index when files change."),
    device: shared.Device = None,
    as_json: shared.Json = False,
) -> None:
    """Index folders of documents for `bertsmith search`, or bring an index up to date.

    Reads text, Markdown, HTML, csv, jsonl, parquet, Excel, PDF, Word and source code. A second
    run embeds only new and changed passages and removes files that are gone. `bertsmith index
    export INDEX --out vectors.parquet` writes the vectors.
    """
    if out is None:
        raise BertsmithError("say where the index is to be written: --out INDEX")
    if check or move or drop:
        others = (folders, re_embed, watch, settings["exclude"], settings["include"])
        if any(others) or sum(map(bool, (check, move, drop))) > 1:
            raise BertsmithError("--move, --drop and --check stand alone; update afterwards")
        _maintain(out, move, drop, as_json)
        return
    state = f"{out} is as it was before" if re_embed else f"the same command continues {out}"
    with shared.interruptible(state), shared.progress(LOADING) as show:  # the imports load PyTorch

        def report(done: int, total: int, update: IndexUpdate) -> None:
            embedded = f", {update.embedded:,} embedded" if update.embedded else ""
            text = f"{update.passages:,} passages read{embedded}" if update.passages else "reading"
            show(LOADING, done, total, text)

        from bertsmith.ledger import Ledger
        from bertsmith.search.build import BuildSettings, update_folders

        ledger = Ledger()
        settings = BuildSettings(model=model, device=device, **settings)
        update = update_folders(out, folders or [], settings, ledger, report, re_embed)
    _report(out, update, ledger.lines(), as_json)
    if watch:
        _follow(out, list(update.problems), as_json)


def _maintain(out: Path, move: tuple[Path, Path] | None, drop: Path | None, as_json: bool) -> None:
    """Move or drop a folder of an index, or verify the index; its model is not loaded."""
    from bertsmith.search import Index

    with Index.open(out) as index:
        if move or drop:
            _report(out, index.move(*move) if move else index.drop(drop or ""), [], as_json)
            return
        index.check()
        about = index.about
    line = f"index {out}: all checksums match ({counted(about['passages'], 'passage')})"
    row = {"out": str(out), "intact": True, "total": about}
    shared.output(as_json, [row], lambda: typer.echo(line))


@app.command("export")
def export(
    index: Path = argument(..., "A folder with an index.", metavar="INDEX"),
    out: Path | None = option(
        None, "Write vectors to a .parquet file, or to a .sql file for pgvector."
    ),
    qdrant: str | None = option(
        None, "Send vectors to a Qdrant server, such as http://localhost:6333."
    ),
    collection: str = option(
        "passages", "Name of the Qdrant collection, or of the table in the .sql file."
    ),
    as_json: shared.Json = False,
) -> None:
    """Write passages, ids and vectors to parquet, PostgreSQL (pgvector) or Qdrant."""
    from bertsmith.files import check_writable
    from bertsmith.search import Index
    from bertsmith.search.export import export as write
    from bertsmith.search.export import send_to_qdrant

    if (out is None) == (qdrant is None):
        raise BertsmithError("give --out FILE.parquet, --out FILE.sql or --qdrant ADDRESS")
    if out is not None:
        check_writable(out)
    with Index.open(index) as opened:
        if out is not None:
            count = write(opened, out, collection)
        else:
            key = os.environ.get("QDRANT_API_KEY")
            count = send_to_qdrant(opened, str(qdrant), collection, key)
    target = str(out or f"{qdrant}, collection {collection}")
    line = f"{counted(count, 'passage')} with vectors in {target}"
    shared.output(as_json, [{"out": target, "passages": count}], lambda: typer.echo(line))


def _report(out: Path, update: IndexUpdate, notes: list[str], as_json: bool) -> None:
    from bertsmith.search import Index

    with Index.open(out) as index:
        about = index.about
    if as_json:
        row = {"out": str(out), **update.to_dict(), "total": about, "notes": notes}
        shared.print_json([row])
        return
    typer.echo(
        f"files: {update.added:,} added, {update.changed:,} changed, {update.removed:,} removed, "
        f"{f'{update.moved:,} moved, ' if update.moved else ''}"
        f"{update.unchanged:,} unchanged; passages embedded: {update.embedded:,} "
        f"({update.seconds:.1f} s)"
    )
    sizes = (counted(about[f"{name}s"], name) for name in ("file", "passage"))
    typer.echo(f"index {out}: {', '.join(sizes)}")
    prompts = [(about["model"] or {}).get(f"{side}_prompt") for side in ("query", "document")]
    if any(prompts):
        typer.echo(f"prompts: queries {prompts[0]!r}, passages {prompts[1]!r}")
    if not about["files"]:
        shared.note("no file was indexed: a search will find nothing")
    shared.notes(
        f"the segment {name} was damaged, and was rebuilt from the text" for name in update.repaired
    )
    shared.notes(f"not read: {row['file']}: {row['reason']}" for row in update.problems[:SHOWN])
    if len(update.problems) > SHOWN:
        shared.note(f"and {len(update.problems) - SHOWN:,} more files; --json lists all")
    shared.notes(notes)


def _follow(out: Path, reported: list[dict[str, str]], as_json: bool) -> None:
    """Update the index whenever its folders change; problems are reported once."""
    from bertsmith.search import Index

    library = import_package("watchfiles", "--watch needs watchfiles", "bertsmith[search]")
    with Index.open(out) as index:
        roots = [Path(root) for root in index.about["roots"]]
        own = out.resolve()
        shared.note(f"watching {', '.join(map(str, roots))}; stop with Ctrl-C")

        def relevant(_: Any, path: str) -> bool:
            return not Path(path).is_relative_to(own)

        for _ in library.watch(*roots, watch_filter=relevant, raise_interrupt=True, debounce=1000):
            update = index.update()
            update.problems = [row for row in update.problems if row not in reported]
            reported += update.problems
            if update.added or update.changed or update.removed or update.problems:
                _report(out, update, [], as_json)
