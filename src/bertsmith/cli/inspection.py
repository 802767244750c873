"""Options shared by the verbs that inspect a model: pages, samples, layers and depths."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypeVar

import typer

from bertsmith.cli import shared
from bertsmith.errors import BertsmithError
from bertsmith.files import check_writable, write_text, writing
from bertsmith.numbers import whole_number

Item = TypeVar("Item")
HIGHEST = 99_999  # number of a layer, head or token
PAGES = (".html", ".htm")

Out = Annotated[Path | None, typer.Option(help="Write an HTML page to this file too.")]
Against = Annotated[str | None, typer.Option(help="Compare with this second model.")]
Limit = Annotated[int, typer.Option(help="Use a random sample of at most this size.", min=1)]
Seed = Annotated[int, typer.Option(help="Random seed.")]


def check_out(out: Path | None, endings: Sequence[str] = PAGES) -> None:
    """Refuse an output file of the wrong kind, or one that cannot be written, before the work."""
    if out is not None:
        if out.suffix not in endings:
            kinds = " or ".join(ending for ending in endings if ending != ".htm")
            raise BertsmithError(f"{out}: the name must end in {kinds}")
        check_writable(out)


def check_folder(folder: Path | None) -> None:
    """Refuse a folder that cannot be written, before the work."""
    if folder is not None:
        with writing(folder):  # names that are too long
            is_file = folder.exists() and not folder.is_dir()
        if is_file:
            raise BertsmithError(f"{folder}: a file of this name exists; name a folder")
        check_writable(folder, folder=True)


def sample(items: Sequence[Item], limit: int, seed: int = 0) -> list[Item]:
    """At most `limit` of the items, drawn at random and kept in their order."""
    if len(items) <= limit:
        return list(items)
    return [items[place] for place in sorted(Random(seed).sample(range(len(items)), limit))]


def sampled_texts(file: Path, limit: int, seed: int = 0) -> list[str]:
    """A random sample of the texts of a file that are not empty."""
    texts = shared.read_texts(None, file, limit=limit, seed=seed)
    if not texts:
        raise BertsmithError(f"{file}: contains no texts")
    return texts


def numbers(text: str | None, option: str) -> list[int] | None:
    """Parse a list of whole numbers and ranges: 0,3,5-7."""
    if text is None:
        return None
    selected: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        name = f"{option}: {part.strip()[:40]!r}"
        start = whole_number(first, name, 0, HIGHEST)
        end = whole_number(last, name, 0, HIGHEST) if dash else start
        selected.update(range(start, end + 1))
    if not selected:
        raise BertsmithError(f"{option}: {text[:40]!r} is not a valid selection; write 0,3 or 4-7")
    return sorted(selected)


def model_name(model: str) -> str:
    """The name of a model in titles: the last part of its path."""
    return Path(model).name or model


def present(
    as_json: bool,
    rows: Iterable[Any],
    show: Callable[[], None],
    out: Path | None,
    page: Callable[[], str],
) -> None:
    """A result as JSON or as shown to a person; on a page too, where one is asked for."""
    if out is not None:
        write_text(out, page())
    shared.output(as_json, rows, show)
    if not as_json:
        written(out)


def written(*outputs: Path | None) -> None:
    """Say where results were written."""
    for path in filter(None, outputs):
        typer.echo(f"written to {path}")
