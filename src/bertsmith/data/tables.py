"""Tables: rows with line numbers, typed cells, portions of bounded size."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

from bertsmith.data.streams import Stream
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

PORTION = 2048  # rows that are read, predicted and written at once
HEAVY = 16 << 20  # characters after which a portion ends with fewer rows
LONGEST_LITERAL = 1 << 20  # characters of a list that is not JSON


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file for messages: a line, row or question."""

    file: str
    number: int  # from 1
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


class Row(NamedTuple):
    """One row: the line on which it begins, and its cells by the name of their column."""

    number: int
    cells: dict[str, Any]
    example: Any = None  # where the layout itself says what the example is
    file: Path | None = None  # where rows of several files are in one table


@dataclass(frozen=True)
class Table:
    """Rows of a file: all of them, or a portion."""

    path: Path
    names: tuple[str, ...]  # of the columns; "1", "2", ... where the file has no header
    rows: list[Row]
    unit: str = "line"
    header: bool = True
    classes: Mapping[str, list[str]] = field(default_factory=dict)  # class names of label columns
    layout: str = ""  # the name of the `Layout` whose rows are examples already
    columns: Mapping[str, str] = field(default_factory=dict)  # role → column, where known
    share: float = 1.0  # of the file that has been read up to these rows
    delimiter: str = ","  # between cells of a csv file
    task: str = ""  # that the file itself names

    def where(self, row: Row) -> Where:
        """The place of a row in its file."""
        path = str(row.file or self.path)
        name = "standard input" if path == "-" else path
        return Where(name, row.number, self.unit)


class FileLayout:
    """A file format whose rows are examples already. There is one value for each."""

    name: ClassVar[str]
    content: ClassVar[str]  # "words with tags"
    endings: ClassVar[tuple[str, ...]] = ()  # of files; without one it is a kind of JSON document

    def fits_text(self, head: str, chosen: bool) -> bool:
        """Does a text begin like this layout? `chosen`: its task was chosen by a person."""
        return False

    def fits_document(self, content: Any) -> bool:
        """Is a JSON document in this layout?"""
        return False

    def tables(
        self, stream: Stream, ledger: Ledger, columns: Mapping[str, str], size: int
    ) -> Iterator[Table]:
        """The portions of a file."""
        raise NotImplementedError

    def document(self, path: Path, content: Any, ledger: Ledger) -> Table:
        """The rows of a JSON document."""
        raise NotImplementedError


def portions(rows: Iterable[Row], size: int = PORTION) -> Iterator[list[Row]]:
    """At most `size` rows at a time, and fewer where they are long."""
    portion: list[Row] = []
    characters = 0
    for row in rows:
        portion.append(row)
        characters += sum(len(cell) for cell in row.cells.values() if isinstance(cell, str))
        if len(portion) >= size or characters > HEAVY:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def table_portions(
    table: Table, rows: Iterable[Row], size: int, share: Callable[[Row], float]
) -> Iterator[Table]:
    """The table in portions, or one without rows; `share` says how much of the file is read."""
    row = None
    for portion in portions(rows, size):
        row = portion[-1]
        yield replace(table, rows=portion, share=share(row))
    if row is None:
        yield table


def names_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Every key of the rows, in the order in which they first come."""
    return tuple(dict.fromkeys(key for row in rows for key in row.cells))


def text_cell(value: Any, where: Where, column: str) -> str:
    """A cell as text; an absent one is empty."""
    if value is None:
        return ""
    if not isinstance(value, bool | int | float | str):
        raise BertsmithError(f"{where}: {column!r} is a {type(value).__name__}, not text")
    try:
        text = str(value)
        text.encode()
    except UnicodeEncodeError:
        fault = "has half of a surrogate pair, which is not a character"
        raise BertsmithError(f"{where}: {column!r} {fault}") from None
    except ValueError:  # more digits than Python converts
        raise BertsmithError(f"{where}: {column!r} is a number with too many digits") from None
    return text


def is_absent(value: Any) -> bool:
    """Does a cell have no value? An empty text is one."""
    return value is None or (isinstance(value, float) and value != value)


def list_cell(value: Any, where: Where, column: str) -> list[Any]:
    """A cell as a list; in csv files lists are JSON or Python, or words between spaces."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            return _parsed_list(stripped, where, column)
        return stripped.split()
    raise BertsmithError(f"{where}: {column!r} is not a list")


def _parsed_list(text: str, where: Where, column: str) -> list[Any]:
    from ast import literal_eval

    try:
        return list(json.loads(text))
    except (ValueError, RecursionError):
        pass
    if len(text) > LONGEST_LITERAL:
        raise BertsmithError(f"{where}: {column!r} is a long list that is not JSON")
    # numpy leaves out commas, and Python would read 'a' 'b' as one word.
    between = r"(?<=['\"])\s+(?=['\"])" if re.search("['\"]", text) else r"(?<=\d)\s+(?=\d)"
    spaced = text if "," in text else re.sub(between, ", ", text)
    try:
        return list(literal_eval(spaced))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise BertsmithError(f"{where}: {column!r} is not a list that can be read") from None


def sample(table: Table, name: str, most: int = 200) -> list[Any]:
    """The first values of a column that are not empty."""
    values = (row.cells.get(name) for row in table.rows)
    return list(islice((value for value in values if not is_absent(value) and value != ""), most))


def shown(names: Collection[str]) -> str:
    """Names of columns, for a message."""
    listed = [name if len(name) <= 60 else f"{name[:60]}…" for name in islice(names, 20)]
    return ", ".join(listed) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def check_names(path: Path, names: Iterable[str]) -> None:
    """Refuse a table in which two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BertsmithError(f"{path}: two columns are called {name[:60]!r}")
        seen.add(name)


def draw(texts: Iterable[str], limit: int, seed: int = 0) -> list[str]:
    """Draw a random sample of at most `limit` texts, without blank ones, in the original order."""
    random = Random(seed)
    drawn: list[tuple[int, str]] = []
    for number, text in enumerate(text for text in texts if text.strip()):
        if number < limit:
            drawn.append((number, text))
        elif (place := random.randrange(number + 1)) < limit:
            drawn[place] = (number, text)
    return [text for _, text in sorted(drawn)]
