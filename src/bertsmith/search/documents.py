"""Readers: a file → documents, each a text with its lines and headings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertsmith.data.streams import Stream
from bertsmith.data.tables import Row, Table, is_absent
from bertsmith.errors import BertsmithError
from bertsmith.files import PACKED, open_bytes, read_whole, reading, suffix_of, whole_characters
from bertsmith.ledger import Ledger
from bertsmith.search.encodings import decode, encoding_of, is_text
from bertsmith.search.formats import Blocks, ParsedDocument, read_docx, read_html, read_pdf
from bertsmith.tasks.read import open_data

LARGEST_WHOLE = 64 << 20  # bytes of a file that is read at once
PORTION = 4 << 20  # characters of a larger text that become a document
BINARY = "holds no text (a binary file)"
MINIFIED = "minified code"
MINIFIABLE, LONG_LINES = (".js", ".mjs", ".cjs", ".css"), 500  # mean characters of a line
DATA = re.compile(r"(data:[\w/+.;=-]+;base64,)([A-Za-z0-9+/=]{80,})")
ENDINGS = {
    "text": ".txt .text .log .srt .eml",
    "markdown": ".md .markdown .mdown .qmd .rmd",
    "html": ".html .htm .xhtml",
    "csv": ".csv .tsv .tab",
    "jsonl": ".jsonl .ndjson",
    "json": ".json",
    "parquet": ".parquet .pq",
    "xlsx": ".xlsx .xlsm",
    "pdf": ".pdf",
    "docx": ".docx",
    "notebook": ".ipynb",
    "code": ".py .pyi .js .mjs .ts .tsx .jsx .c .h .cc .cpp .hpp .cs .java .kt .scala .go .rs .rb "
    ".php .swift .m .r .jl .lua .pl .sh .bash .zsh .ps1 .sql .css .scss .toml .yaml .yml .ini "
    ".cfg .xml .tex .el .clj .hs .ml .ex .erl .dart .vue .make .cmake .dockerfile .proto",
}
KINDS = {ending: kind for kind, endings in ENDINGS.items() for ending in endings.split()}
TABLES, WHOLE = {"csv", "jsonl", "json", "parquet", "xlsx"}, {"html", "pdf", "docx"}
# The columns of a table that are read, in this order, by their names in lower case.
IDS = ("_id", "id", "docid", "doc_id", "document_id", "docno", "pid", "uuid")
TITLES = ("title", "headline", "subject", "name", "heading")
TEXTS = ["text", "abstract", "body", "content", "contents", "passage", "document", "description"]
TEXTS += ["message", "article", "summary", "question", "answer", "sentence", "comment", "review"]


def kind_of(path: Path) -> str:
    """Return the kind of a file by its name; "text" if the name is unknown."""
    return KINDS.get(suffix_of(path), "text")


def read_documents(path: Path, ledger: Ledger) -> Iterator[ParsedDocument]:
    """Yield the documents of a file; a file that holds no text raises a one-line error."""
    kind = kind_of(path)
    if kind in TABLES:
        yield from _table_documents(path, kind, ledger)
        return
    largest = LARGEST_WHOLE // 8 if path.suffix in PACKED else LARGEST_WHOLE
    if kind not in WHOLE and path.stat().st_size > largest:
        yield from _portions(path, ledger)
        return
    data = read_whole(path, LARGEST_WHOLE)
    if kind in ("pdf", "docx"):
        yield (read_pdf if kind == "pdf" else read_docx)(path, data)
        return
    if not is_text(data):
        raise BertsmithError(f"{path}: {BINARY}")
    text = decode(data, path, ledger)
    if suffix_of(path) in MINIFIABLE and len(text) > LONG_LINES * (text.count("\n") + 2):
        raise BertsmithError(f"{path}: {MINIFIED}")
    if kind != "html":
        text, count = DATA.subn(lambda match: match[1] + " " * len(match[2]), text)
        ledger.note("embedded files (base64), left out", count)
    if kind == "notebook":
        yield _notebook(text, path, ledger)
    elif kind == "html":
        yield read_html(text, path)
    elif text.startswith(".I ") and "\n.W" in text:
        yield from _smart(text)
    else:
        headings = _markdown_headings(text) if kind == "markdown" else []
        yield ParsedDocument(text, title=headings[0][2] if headings else "", headings=headings)


def _portions(path: Path, ledger: Ledger) -> Iterator[ParsedDocument]:
    with reading(path), open_bytes(path) as (stream, _):
        if not is_text(stream.read(8192)):
            raise BertsmithError(f"{path}: {BINARY}")
    lines: list[str] = []
    size, number, offset = 0, 1, 0
    for line in Stream(path, encoding_of(path, ledger)):
        lines.append(line)
        size += len(line)
        if size > 2 * PORTION or (size > PORTION and not line.strip()):
            yield ParsedDocument("".join(lines), line=number, offset=offset)
            number, offset = number + len(lines), offset + size
            lines, size = [], 0
    if lines:
        yield ParsedDocument("".join(lines), line=number, offset=offset)


def _notebook(text: str, path: Path, ledger: Ledger) -> ParsedDocument:
    """The cells of a Jupyter notebook with the text that they print; its unit is the cell."""
    blocks = Blocks()
    try:
        for number, cell in enumerate(json.loads(text)["cells"], 1):
            content = _cell_text(cell, ledger)
            if content.strip():
                headings = _markdown_headings(content) if cell["cell_type"] == "markdown" else []
                blocks.add(f"{content}\n\n", number, headings)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BertsmithError(f"{path}: not a notebook that can be read ({error!r})") from None
    return blocks.document("cell")


def _cell_text(cell: dict[str, Any], ledger: Ledger) -> str:
    """The source of a cell and the text of its outputs; pictures are counted."""
    texts = ["".join(cell["source"])]
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        texts.append("".join(output.get("text", data.get("text/plain", ""))))
        pictures = sum(kind.startswith("image") for kind in data)
        ledger.note("pictures in notebooks, left out", pictures)
    return whole_characters("\n".join(texts))


def _table_documents(path: Path, kind: str, ledger: Ledger) -> Iterator[ParsedDocument]:
    """A document for each row: its id, title and texts by the names of the columns."""
    encoding = encoding_of(path, ledger) if kind in ("csv", "jsonl", "json") else None
    notes = Ledger()  # warnings about columns and cells, which concern labels and not texts
    try:
        for table in open_data(path, "text", encoding=encoding, ledger=notes).tables():
            yield from _rows(table, ledger)
    except BertsmithError:
        if kind != "json":
            raise
        data = read_whole(path, LARGEST_WHOLE)  # JSON other than a list of records is plain text
        yield ParsedDocument(decode(data, path, ledger))


def _rows(table: Table, ledger: Ledger) -> Iterator[ParsedDocument]:
    by_name = {name.lower(): name for name in table.names}
    id_column = next((by_name[name] for name in IDS if name in by_name), None)
    title_column = next((by_name[name] for name in TITLES if name in by_name), None)
    texts = [by_name[name] for name in TEXTS if name in by_name]
    unused = [name for name in table.names if name not in {id_column, title_column, *texts}]
    for name in unused if texts else ():
        if any(isinstance(row.cells.get(name), str) for row in table.rows):
            ledger.note(f"values of the column {name!r}, not indexed", len(table.rows))
    # Where no column has a known name, all of them are read, with their names.
    with_names = not texts and table.header
    for row in table.rows:
        cells = {name: _cell(row, name) for name in texts or unused}
        full = ((f"{name}: " if with_names else "", cell) for name, cell in cells.items() if cell)
        text = "\n".join(name + cell for name, cell in full)
        title = _cell(row, title_column) if title_column else ""
        if not text.strip() and not title.strip():
            ledger.note("rows without a text, left out")
            continue
        identity = _cell(row, id_column) if id_column else ""
        line = row.number
        yield ParsedDocument(text, identity, title, line, table.unit, lines=[(0, line)])


def _cell(row: Row, column: str) -> str:
    value: Any = row.cells.get(column)
    if is_absent(value):
        return ""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    known = isinstance(value, str | bool | int | float)
    return whole_characters(str(value)) if known else ""


FENCE = re.compile(r" {0,3}(```|~~~)")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\r?$")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?$")


def _markdown_headings(text: str) -> list[tuple[int, int, str]]:
    """Headings outside code blocks: (character, level, text)."""
    headings: list[tuple[int, int, str]] = []
    fenced, place, before = False, 0, (0, "")
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if (match := HEADING.match(line)) and match[2]:
                headings.append((place, len(match[1]), match[2]))
            elif (match := UNDERLINE.match(line)) and before[1].strip() and match[1][:2] != "-":
                if not HEADING.match(before[1]) and len(match[1]) > 2:
                    headings.append((before[0], 1 if match[1][0] == "=" else 2, before[1].strip()))
        before = (place, line)
        place += len(line) + 1
    return headings


def _smart(text: str) -> Iterator[ParsedDocument]:
    """A collection of the SMART format (.I number, .T title, .W text), as Cranfield's is."""
    line = 1
    for record in re.split(r"^\.I ", text, flags=re.MULTILINE):
        number, _, rest = record.partition("\n")
        fields: dict[str, list[str]] = {".T": [], ".W": []}
        name, first = "", line + 1
        for place, row in enumerate(rest.split("\n"), line + 1):
            if re.fullmatch(r"\.[A-Z]\s*", row):
                name = row.strip()
                first = place + 1 if name == ".W" else first
            else:
                fields.setdefault(name, []).append(row)
        if number.strip():
            body = "\n".join(fields[".W"]).strip("\n")
            title = " ".join(" ".join(fields[".T"]).split())
            yield ParsedDocument(body, number.strip(), title, first)
        line += record.count("\n")
