"""The rows of any source: files, shards, folders, standard input, Python objects; its format."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bertsmith.data.annotations import label_table
from bertsmith.data.columnar import arrow_tables, frame_tables, parquet_tables, sheet_tables
from bertsmith.data.columns import plain
from bertsmith.data.delimited import Headings, delimited_tables
from bertsmith.data.folders import find_splits
from bertsmith.data.records import document_table, json_lines_tables, list_tables, read_document
from bertsmith.data.streams import STANDARD_INPUT, Stream
from bertsmith.data.tables import PORTION, FileLayout, Row, Table, portions
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import PACKED, suffix_of
from bertsmith.ledger import Ledger

ENDINGS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
ENDINGS |= {".json": "json", ".parquet": "parquet", ".pq": "parquet", ".xlsx": "xlsx"}
ENDINGS |= {".xlsm": "xlsx", **dict.fromkeys((".txt", ".text", ".label", ".labels"), "txt")}
LABEL_LINE = re.compile(r"(__label__\S+|[A-Z]{2,12}:\w+)[ \t]+(\S.*)")  # fastText's and TREC's


@dataclass(frozen=True)
class Options:
    """How a source is read; what is None is detected."""

    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    encoding: str | None = None
    format: str | None = None
    split: str | None = None
    skip_ragged: bool = False
    usual: Mapping[str, str] = field(default_factory=dict)  # used where the source has them
    texts_only: bool = False  # a .txt file is a text on each line, whatever they look like
    layouts: tuple[FileLayout, ...] = ()  # formats beside those of this room
    chosen: tuple[FileLayout, ...] | None = None  # those that a .txt file may be in; None: any
    headings: Headings = field(default_factory=Headings)

    def columns_of(self, names: Collection[str]) -> dict[str, str]:
        """The named columns; where none is named, the usual ones that are among these names."""
        usual = {} if self.columns else self.usual
        return {role: name for role, name in usual.items() if name in names} | {**self.columns}

    @property
    def endings(self) -> dict[str, str]:
        """The format of each ending of a file's name."""
        return ENDINGS | {end: layout.name for layout in self.layouts for end in layout.endings}

    @property
    def formats(self) -> tuple[str, ...]:
        """The names of all formats."""
        return tuple(dict.fromkeys(self.endings.values()))

    def __post_init__(self) -> None:
        if self.format not in (None, *self.formats):
            known = ", ".join(self.formats)
            raise BertsmithError(f"unknown format {self.format!r}; known: {known}")


def source_tables(
    source: Any, options: Options, ledger: Ledger, size: int = PORTION
) -> Iterator[Table]:
    """The rows of any source, at most `size` at a time."""
    if isinstance(source, str | Path):
        for path in files_of(Path(source), options.split):
            yield from _file_tables(path, options, ledger, size)
    elif hasattr(source, "iloc") and hasattr(source, "columns"):
        yield from frame_tables(Path("data frame"), source, size)
    elif hasattr(source, "schema") and hasattr(source, "to_batches"):
        batches = iter(source.to_batches(max_chunksize=size))
        yield from arrow_tables(Path("table"), source.schema, batches, source.num_rows, size)
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        yield from list_tables(Path("list"), source, size)
    else:
        known = "the path of a file, a list, a pandas data frame, a pyarrow table"
        raise BertsmithError(f"a {type(source).__name__} is not a data source; known: {known}")


def files_of(path: Path, split: str | None = None) -> list[Path]:
    """The files that a path stands for: itself, the shards of a pattern, a split of a folder."""
    if path == STANDARD_INPUT or path.is_file():
        return [path]
    if path.is_dir():
        splits = find_splits(path, needed=())
        if split is None and len(splits) == 1:
            split = next(iter(splits))
        if split not in splits:
            what = f"has no split {split!r}" if split else "is a folder"
            choose = f"choose {', '.join(splits)} with {setting_name('split')}"
            raise BertsmithError(f"{path} {what}; {choose if splits else 'give a file'}")
        return files_of(splits[split])
    if "*" in path.name and path.parent.is_dir():
        shards = sorted(p for p in path.parent.iterdir() if fnmatchcase(p.name, path.name))
        if shards:
            return shards
    if not path.exists():
        raise BertsmithError(f"{path}: no such file or folder")
    return [path]  # a pipe or a device


def format_of(path: Path, stream: Stream, options: Options) -> str:
    """The format of a file: as named, by its ending, or by its first lines."""
    ending = suffix_of(path)
    if options.format:
        return options.format
    if ending in options.endings:
        return options.endings[ending]
    nameless = path == STANDARD_INPUT or path.is_fifo() or str(path).startswith("/dev/")
    if nameless or not ending:
        return _sniffed(stream.head(50), options.headings.known)
    if path.suffix in PACKED:
        return "txt"
    known = f"{', '.join(options.formats)} (and .gz, .xz or .zst of each)"
    name = setting_name("format", option="--input-format")
    raise BertsmithError(f"{path}: unknown file type; known: {known}; name it with {name}")


def _sniffed(head: str, known: Collection[str]) -> str:
    start = head.lstrip()[:1]
    first = head.lstrip().partition("\n")[0].rstrip()
    if start == "{":
        return "jsonl" if first.endswith("}") else "json"
    if start == "[":
        return "json" if not first.endswith("]") or "\n" not in head.strip() else "jsonl"
    cells = [plain(cell.strip('"')) for cell in re.split("[,;\t|]", first)]
    if len(cells) > 1 and sum(cell in known for cell in cells) > len(cells) / 3:
        return "tsv" if "\t" in first else "csv"
    return "txt"


def _file_tables(path: Path, options: Options, ledger: Ledger, size: int) -> Iterator[Table]:
    stream = Stream(path, options.encoding)
    if stream.is_utf8_after_all():
        ledger.note(f"files of UTF-8 text, read as such and not as {options.encoding}")
        stream = Stream(path)
    kind = format_of(path, stream, options)
    if kind == "txt" and options.format != "txt":
        kind = _kind_of_text(stream, options)
    column_names = {plain(name) for name in options.columns.values() if not name.isdigit()}
    headings = options.headings._replace(given=column_names, header=options.header)
    match kind:
        case "csv" | "tsv":
            tabs, skip = kind == "tsv", options.skip_ragged
            yield from delimited_tables(stream, ledger, headings, tabs, skip, size)
        case "jsonl":
            yield from label_table(json_lines_tables(stream, size), options.split, ledger)
        case "json":
            content = read_document(stream)
            for layout in options.layouts:
                if layout.fits_document(content):
                    yield layout.document(path, content, ledger)
                    return
            yield document_table(path, content, ledger, options.split)
        case "parquet":
            yield from parquet_tables(stream, size)
        case "xlsx":
            yield from sheet_tables(stream, ledger, headings, size)
        case "txt" | "labels":
            yield from _line_tables(stream, kind, size)
        case _:
            layout = next(layout for layout in options.layouts if layout.name == kind)
            yield from layout.tables(stream, ledger, options.columns, size)


def _kind_of_text(stream: Stream, options: Options) -> str:
    """What a .txt file holds: a layout, columns with tabs, labels before texts, or texts."""
    head = stream.head()
    for layout in options.layouts if options.chosen is None else options.chosen:
        if layout.fits_text(head, options.chosen is not None):
            return layout.name
    if options.texts_only:
        return "txt"
    lines = [line for line in head.split("\n")[:200] if line.strip()]
    widths = {line.count("\t") for line in lines}
    if len(widths) == 1 and widths != {0}:
        return "tsv"
    return "labels" if all(map(LABEL_LINE.fullmatch, lines)) else "txt"


def _line_tables(stream: Stream, kind: str, size: int) -> Iterator[Table]:
    """A text on each line, blank ones too; of label lines, the label and the text."""
    names = ("label", "text") if kind == "labels" else ("text",)

    def rows() -> Iterator[Row]:
        for number, line in stream.numbered():
            if kind != "labels":
                yield Row(number, {"text": line})
            elif match := LABEL_LINE.fullmatch(line):
                yield Row(number, {"label": match[1].removeprefix("__label__"), "text": match[2]})
            elif line.strip():
                where = f"{stream.name}, line {number}"
                raise BertsmithError(f"{where}: no label where the lines before have one")

    for portion in portions(rows(), size):
        yield Table(stream.path, names, portion, share=stream.share)
