"""Documents with lines, pages or paragraphs, and headings: of HTML, PDF and Word files."""

import io
import logging
import re
import zipfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import import_package, one_line, parsing

Lines = list[tuple[int, int]]  # (character, line)
Headings = list[tuple[int, int, str]]  # (character, level, text)
LARGEST_DOCX = 512 << 20  # bytes after unpacking
MOST_PAGES = 50_000
LONGEST_TITLE = 300
SKIPPED = {"script", "style", "template", "noscript", "svg", "head", "math"}
_INLINE = "a abbr b bdi bdo cite code data dfn em i kbd mark q s samp small span strong sub sup"
_INLINE += " time u var wbr font tt big label del ins img input button"
INLINE = frozenset(_INLINE.split())


@dataclass(frozen=True)
class ParsedDocument:
    """A text of a file: all of it, or one record of a table."""

    text: str
    id: str = ""  # of a record; "" where the file is the document
    title: str = ""
    line: int = 1  # first line of the text
    unit: str = "line"  # or "row", "page", "paragraph", "cell"
    lines: Lines | None = None  # None: line feeds are counted
    headings: Headings = field(default_factory=list)
    offset: int = 0  # characters of the file before the text, where it is a part of a large one

    @cached_property
    def _feeds(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def line_at(self, place: int) -> int:
        """The line (or row, page, paragraph) of a character."""
        if self.lines is None:
            return self.line + bisect_left(self._feeds, place)
        at = bisect_right(self.lines, (place, 1 << 60)) - 1
        return self.lines[at][1] if at >= 0 else self.line


class Blocks:
    """Blocks of text that become a document, each with its line, page or paragraph."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.length = 0
        self.lines: Lines = []
        self.headings: Headings = []

    def add(self, text: str, line: int, headings: Headings | tuple[()] = ()) -> None:
        """Add a block; its headings are placed from its beginning."""
        self.lines.append((self.length, line))
        self.headings += [(self.length + place, level, name) for place, level, name in headings]
        self.append(text)

    def append(self, text: str) -> None:
        """Continue the block."""
        self.texts.append(text)
        self.length += len(text)

    def document(self, unit: str, title: str = "") -> ParsedDocument:
        """The document; without a title its first heading."""
        title = title or (self.headings[0][2] if self.headings else "")
        text, lines = "".join(self.texts), self.lines
        return ParsedDocument(text, title=title, unit=unit, lines=lines, headings=self.headings)


class _Reader(HTMLParser):
    """Collects the visible text; each block begins on a new line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks = Blocks()
        self.title: list[str] = []
        self.hidden: list[str] = []  # open elements whose text is not shown
        self.in_title = False
        self.level = 0
        self.heading: list[str] = []
        self.preformatted = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "title":
            self.in_title = True
        elif tag in SKIPPED:
            self.hidden.append(tag)
        elif tag == "body":
            self.hidden.clear()  # a <head> that is not closed
        if tag not in INLINE:
            self._break()
        if tag == "pre":
            self.preformatted += 1
        if re.fullmatch("h[1-6]", tag):
            self.level, self.heading = int(tag[1]), []
        if tag == "img" and not self.hidden:
            self._add(" ".join(value for name, value in attrs if name == "alt" and value))

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self.in_title = False
        if tag in self.hidden:
            while self.hidden.pop() != tag:
                pass
        if self.level and tag == f"h{self.level}":
            heading = "".join(self.heading)
            if text := _one_line_title(heading):
                place = max(0, self.blocks.length - len(heading))
                self.blocks.headings.append((place, self.level, text))
            self.level = 0
        if tag == "pre":
            self.preformatted = max(0, self.preformatted - 1)
        if tag not in INLINE:
            self._break()

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title.append(data)
        elif not self.hidden:
            self._add(data if self.preformatted else re.sub(r"\s+", " ", data))

    def _begins(self) -> bool:
        return not self.blocks.texts or self.blocks.texts[-1].endswith("\n\n")

    def _break(self) -> None:
        if not self._begins():
            self._append("\n\n")

    def _add(self, text: str) -> None:
        begins = self._begins()
        if begins and not self.preformatted:
            text = text.lstrip()
        if text:
            if begins:
                self.blocks.lines.append((self.blocks.length, self.getpos()[0]))
            self._append(text)

    def _append(self, text: str) -> None:
        if self.level:
            self.heading.append(text)
        self.blocks.append(text)


def read_html(text: str, path: Path) -> ParsedDocument:
    """The visible text of a page, with the source line of each block."""
    reader = _Reader()
    try:
        reader.feed(text)
        reader.close()
    except (AssertionError, ValueError) as error:  # malformed declarations
        raise BertsmithError(f"{path}: not HTML that can be read ({one_line(error)})") from None
    return reader.blocks.document("line", _one_line_title("".join(reader.title)))


def _one_line_title(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE]


def read_pdf(path: Path, data: bytes) -> ParsedDocument:
    """The text of a PDF; its unit is the page."""
    pypdf = import_package("pypdf", f"{path}: PDF files need pypdf", "bertsmith[search]")
    # Its warnings do not name the file; unreadable files are errors below.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    blocks = Blocks()
    with parsing(path, "a PDF"):
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise BertsmithError(f"{path}: is protected by a password")
        if len(reader.pages) > MOST_PAGES:
            raise BertsmithError(f"{path}: has more than {MOST_PAGES:,} pages")
        for number, page in enumerate(reader.pages, 1):
            text = (page.extract_text() or "").encode("utf-8", "replace").decode()
            blocks.add(f"{text}\n\n", number)
        title = str(reader.metadata.get("/Title") or "") if reader.metadata else ""
    document = blocks.document("page", title.encode("utf-8", "replace").decode()[:LONGEST_TITLE])
    if not document.text.strip():
        raise BertsmithError(f"{path}: a PDF without text (scanned pages need text recognition)")
    return document


def read_docx(path: Path, data: bytes) -> ParsedDocument:
    """The paragraphs and tables of a Word document; its unit is the paragraph."""
    docx = import_package("docx", f"{path}: Word documents need python-docx", "bertsmith[search]")
    with parsing(path, "a Word document"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST_DOCX:
                raise BertsmithError(f"{path}: unpacks to more than {LARGEST_DOCX >> 20} MiB")
        document = docx.Document(io.BytesIO(data))
        contents = [_block(block) for block in document.iter_inner_content()]
        title = document.core_properties.title or ""
    blocks = Blocks()
    for number, (text, level) in enumerate(contents, 1):
        if text.strip():
            headings = [(0, level, _one_line_title(text))] if level else []
            blocks.add(f"{text}\n\n", number, headings)
    return blocks.document("paragraph", title)


def _block(block: Any) -> tuple[str, int]:
    """The text of a paragraph or table, and its level if it is a heading."""
    if hasattr(block, "rows"):
        return "\n".join(" | ".join(cell.text for cell in row.cells) for row in block.rows), 0
    style = str(block.style.name if block.style is not None else "")
    match = re.fullmatch(r"Heading ([1-9])", style)
    return block.text, int(match[1]) if match else int(style == "Title")
