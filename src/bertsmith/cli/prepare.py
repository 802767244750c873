"""`bertsmith prepare`: text, jsonl or parquet files → token shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.settings.corpus import CorpusSettings, EngineSettings
from bertsmith.store import as_stored

if TYPE_CHECKING:
    from bertsmith.corpus import PreparedCorpus

MANY, SHORT = 20, 64  # documents, and their tokens: such short ones may be paragraphs
UNKNOWN = 0.05  # the share of unknown tokens from which the tokenizer may be the wrong one


def prepare(
    files: list[Path] | None = argument(None, shared.TEXT_FILES),
    tokenizer: Path | None = option(None, shared.TOKENIZER_HELP),
    out: Path | None = option(None, "The folder to write."),
    add: Path | None = option(
        None, "Add the files to this prepared folder instead, with its tokenizer and settings."
    ),
    check: Path | None = option(None, "Verify the checksums of a prepared folder instead."),
    settings: Any = options_of(CorpusSettings),
    running: Any = options_of(EngineSettings),
    as_json: shared.Json = False,
) -> None:
    """Tokenize text files into shards for pre-training; resumable."""
    if check is not None:
        _check(check, as_json)
        return
    if add is not None:
        _add(files, add, settings, running, as_json, [tokenizer, out])
        return
    if not files or tokenizer is None or out is None:
        raise BertsmithError("name files, --tokenizer and --out (or --check and a folder)")
    tokenizer = shared.find_tokenizer(tokenizer)
    from bertsmith.corpus import is_finished
    from bertsmith.corpus import prepare as tokenize

    finished = is_finished(out)
    with _progress(out) as report:
        corpus = tokenize(files, tokenizer, out, progress=report, **running, **settings)
    _report(corpus, out, {}, as_json)
    if finished:
        shared.note(f"{out}: was prepared before; nothing is changed")


def _add(
    files: list[Path] | None,
    folder: Path,
    settings: dict[str, Any],
    running: dict[str, Any],
    as_json: bool,
    others: list[Path | None],
) -> None:
    if not files or any(others):
        raise BertsmithError("--add takes files and a prepared folder, whose tokenizer is used")
    from bertsmith.corpus import Manifest
    from bertsmith.corpus import add as extend

    defaults = as_stored(asdict(CorpusSettings()))
    stored = defaults | Manifest.read(folder).settings
    for name, value in as_stored(settings).items():
        if value not in (defaults[name], stored[name]):
            option_name = name.replace("_", "-")
            raise BertsmithError(
                f"{folder}: was prepared with --{option_name} {stored[name]}, which additions keep"
            )
    with _progress(folder) as report:
        corpus = extend(files, folder, progress=report, **running)
    _report(corpus, folder, {"added": corpus.added}, as_json)
    if corpus.added:
        shared.note(f"{corpus.added:,} documents were added")
    else:
        shared.note(f"{folder}: nothing was added; it has these files, or all that is in them")


@contextmanager
def _progress(folder: Path) -> Iterator[Any]:
    bars = shared.progress("tokens", "shards", transient=False)
    with shared.interruptible(f"the same command continues {folder}"), bars as report:
        yield report


def _report(corpus: PreparedCorpus, folder: Path, more: dict[str, Any], as_json: bool) -> None:
    splits = {name: vars(split) for name, split in corpus.splits.items()}
    row = {"out": str(folder), **more, "splits": splits, "ledger": corpus.ledger}
    shared.output(as_json, [row], lambda: _show(corpus))


def _show(corpus: PreparedCorpus) -> None:
    headings = ("documents", "sentences", "tokens", "shards")
    rows = []
    for name in ("train", "held_out"):
        split = corpus.splits[name]
        rows.append((name, *(f"{getattr(split, heading):,}" for heading in headings)))
    tasks.show_table(("split", *headings), rows)
    shared.notes(f"{what}: {count:,}" for what, count in corpus.ledger.items())
    total = sum(split.tokens for split in corpus.splits.values())
    share = corpus.ledger.get("unknown tokens", 0) / max(total, 1)
    if share > UNKNOWN:
        shared.note(f"{share:.0%} of the tokens are unknown: is this the tokenizer of this text?")
    if not corpus.splits["held_out"].documents:
        shared.note("no document was held out, so pre-training cannot be evaluated; see --held-out")
    documents = sum(split.documents for split in corpus.splits.values())
    length = total / max(1, documents)
    if corpus.text_files > 1 and documents >= MANY and length < SHORT:
        shared.note(
            f"documents end at blank lines and have {length:.0f} tokens on average; with "
            "--documents files, each text file is one document"
        )


def _check(folder: Path, as_json: bool) -> None:
    """Name every damaged file; the exit status is 1 where there is one."""
    from bertsmith.corpus import check

    count, complaints = check(folder)
    row = {"folder": str(folder), "files": count, "damaged": complaints}
    intact = f"{folder}: all {count:,} files are as they were written"
    shared.output(as_json, [row], lambda: typer.echo("\n".join(complaints) or intact))
    if complaints:
        raise typer.Exit(1)
