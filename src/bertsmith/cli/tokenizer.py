"""`bertsmith tokenizer train|extend|show`: train, extend or inspect a vocabulary."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.settings.corpus import CorpusSettings

if TYPE_CHECKING:
    from bertsmith.tokenizer import TokenSplit

app = typer.Typer(no_args_is_help=True, add_help_option=False, rich_markup_mode=None)


FILES = argument(..., shared.TEXT_FILES)
TEXT_FIELD = options_of(CorpusSettings, "text_field")["text_field"][1]


@app.callback()
def tokenizer(help: shared.Help = False) -> None:
    """Train a vocabulary, extend it, or show the tokens of a text."""


@app.command()
def train(
    files: list[Path] = FILES,
    out: Path = option(..., "The directory to write."),
    kind: str = option("wordpiece", "Kind of vocabulary: wordpiece, bpe or unigram."),
    size: int = option(30_000, "Size of the vocabulary.", min=1, max=5_000_000),
    family: str | None = option(
        None,
        "Family whose special tokens are used [default: bert for wordpiece, roberta for "
        "bpe, albert for unigram].",
    ),
    cased: bool = option(False, "Keep upper case and accents."),
    min_frequency: int = option(2, "Ignore tokens with fewer occurrences.", min=1),
    text_field: str = TEXT_FIELD,
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
) -> None:
    """Train a WordPiece, BPE or Unigram vocabulary on text files."""
    from bertsmith.corpus import text_lines
    from bertsmith.folders import check_replaceable, replace_directory
    from bertsmith.ledger import Ledger
    from bertsmith.tokenizer import train as learn
    from bertsmith.tokenizer.families import Kind

    check_replaceable(out, overwrite)
    if (out / "config.json").exists():
        raise BertsmithError(f"{out}: a model directory; name another folder for the tokenizer")
    ledger = Ledger()
    vocabulary = learn(
        [],
        cast(Kind, kind),
        lines=text_lines(files, text_field, ledger),
        size=size,
        lowercase=False if cased else None,
        family=family,
        min_frequency=min_frequency,
        progress=sys.stderr.isatty(),
    )
    replace_directory(out, vocabulary.save, overwrite)
    if as_json:
        about = {name: getattr(vocabulary, name) for name in ("kind", "size", "family")}
        shared.print_json([{"out": str(out), **about}])
        return
    typer.echo(f"{vocabulary.kind} vocabulary of {vocabulary.size:,} tokens in {out}")
    if vocabulary.size < size:
        shared.note(f"the text is enough for {vocabulary.size:,} tokens, not for {size:,}")
    shared.notes(ledger.lines())


@app.command()
def extend(
    model: shared.Model,
    files: list[Path] = FILES,
    out: Path = option(..., "The directory to write."),
    add: int = option(1000, "Number of words to add.", min=1),
    min_frequency: int = option(5, "Ignore words with fewer occurrences.", min=1),
    text_field: str = TEXT_FIELD,
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
) -> None:
    """Add words of text files to a model's vocabulary.

    Each new embedding is initialized with the mean of the tokens it replaces. Next, prepare the
    text with --tokenizer OUT, and pretrain --from OUT.
    """
    from bertsmith.checkpoint import Sentence, extend_vocabulary, locate, read, save
    from bertsmith.corpus import text_lines
    from bertsmith.folders import check_replaceable, replace_directory
    from bertsmith.ledger import Ledger
    from bertsmith.tokenizer import Tokenizer
    from bertsmith.tokenizer import extend as widen

    check_replaceable(out, overwrite)
    directory = locate(model)
    checkpoint = read(directory, dtype=None)
    old = Tokenizer.load(directory, family=checkpoint.family.name)
    ledger = Ledger()
    lines = text_lines(files, text_field, ledger)
    new, added = widen(old, [], add, min_frequency=min_frequency, lines=lines, ledger=ledger)
    wider = extend_vocabulary(checkpoint, {token.id: token.pieces for token in added}, new.size)
    replace_directory(out, lambda part: save(part, wider, new, Sentence()), overwrite)
    if as_json:
        shared.print_json(token._asdict() for token in added)
    else:
        typer.echo(f"{len(added):,} tokens added, {new.size:,} in all, in {out}; the first ones:")
        for token in added[:10]:
            pieces = " ".join(old.token(number) for number in token.pieces)
            typer.echo(f"{token.times:10,}  {token.token:24} {pieces}")
    shared.notes(ledger.lines())
    if len(added) < add:
        shared.note(
            f"the text has no more words that occur {min_frequency} times and are split; "
            f"{add:,} were asked for"
        )


@app.command()
def show(
    tokenizer: Path = argument(..., shared.TOKENIZER_HELP),
    texts: shared.Texts = None,
    file: shared.File = None,
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Show the tokens of a text, and the characters they cover."""
    from bertsmith.tokenizer import Tokenizer

    path = shared.find_tokenizer(tokenizer)
    lines = shared.read_texts(texts, file)
    loaded = Tokenizer.load(path, family=family)
    for text in lines:
        split = loaded.explain(text)
        pieces = [piece._asdict() for piece in split.pieces]
        row = {"text": text, "pieces": pieces, "unknown": split.unknown}
        shared.output(as_json, [row], partial(_show, text, split, loaded.unk_id))


def _show(text: str, split: TokenSplit, unknown: int | None) -> None:
    from rich.table import Table
    from rich.text import Text

    console = shared.console()
    count = f"  {len(split.pieces):,} tokens"
    count += f", {split.unknown:,} unknown" if split.unknown else ""
    shown = shared.clipped(text, console.width - len(count))
    console.print(Text.assemble((shown, "bold"), count), no_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("token", "id", "characters", "text"):
        table.add_column(heading, justify="right" if heading == "id" else "left", no_wrap=True)
    for piece in split.pieces:
        row = (piece.token, str(piece.id), f"{piece.start}-{piece.end}", repr(piece.text))
        style = "yellow" if piece.id == unknown else None
        table.add_row(*(Text(shared.clipped(cell, 40)) for cell in row), style=style)
    console.print(table)
