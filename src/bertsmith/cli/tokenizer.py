"""`bertsmith tokenizer train|show`: learn a vocabulary; look at a split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.errors import BertsmithError

app = typer.Typer(
    help="Learn a vocabulary, or look at how one splits a text.", no_args_is_help=True
)


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files; .gz and .xz too.")],
    out: Annotated[Path, typer.Option(help="The directory to write.")],
    kind: Annotated[str, typer.Option(help="wordpiece, bpe or unigram.")] = "wordpiece",
    size: Annotated[int, typer.Option(help="Tokens in the vocabulary.")] = 30_000,
    family: Annotated[
        str | None, typer.Option(help="Whose special tokens; default: BERT, RoBERTa, ALBERT.")
    ] = None,
    cased: Annotated[bool, typer.Option(help="Keep upper case and accents.")] = False,
    min_frequency: Annotated[int, typer.Option(help="Leave out rarer pieces.")] = 2,
    as_json: shared.Json = False,
) -> None:
    """Learn a WordPiece, byte-level BPE or Unigram vocabulary from text files."""
    import sys
    from typing import cast

    from bertsmith.tokenizer import train as learn
    from bertsmith.tokenizer.families import Kind

    made = learn(
        files,
        cast(Kind, kind),
        size=size,
        lowercase=None if not cased else False,
        family=family,
        min_frequency=min_frequency,
        progress=sys.stderr.isatty(),
    )
    made.save(out)
    if as_json:
        row = {"out": str(out), "kind": made.kind, "size": made.size, "family": made.family}
        shared.print_json([row])
    else:
        typer.echo(f"{made.kind} vocabulary of {made.size:,} tokens in {out}")
        if made.size < size:
            shared.note(f"the text gave {made.size:,} tokens, fewer than the {size:,} asked for")


@app.command()
def show(
    tokenizer: Annotated[str, typer.Argument(help="A model directory or a tokenizer file.")],
    texts: shared.Texts = None,
    file: shared.File = None,
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Show the tokens of a text, their ids and the characters they stand for."""
    from bertsmith.tokenizer import Tokenizer

    if not Path(tokenizer).exists():
        raise BertsmithError(f"{tokenizer}: there is no such file or directory")
    given = shared.read_texts(texts, file)
    made = Tokenizer.load(tokenizer, family=family)
    split = [(text, made.explain(text)) for text in given]
    if as_json:
        shared.print_json(
            {"text": t, "pieces": [p._asdict() for p in s.pieces], "unknown": s.unknown}
            for t, s in split
        )
        return
    from rich.markup import escape
    from rich.table import Table

    console = shared.console()
    for text, one in split:
        unknown = f", {one.unknown} unknown" if one.unknown else ""
        console.print(f"[bold]{escape(text)}[/bold]  {len(one.pieces)} tokens{unknown}")
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("token", "id", "characters", "text"):
            table.add_column(heading, justify="right" if heading == "id" else "left")
        for piece in one.pieces:
            where = f"{piece.start}-{piece.end}"
            table.add_row(escape(piece.token), str(piece.id), where, escape(repr(piece.text)))
        console.print(table)
