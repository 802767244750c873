"""HTML, PDF and Word documents → text with lines, pages or paragraphs, and headings."""

from __future__ import annotations

import io
import logging
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line

Lines = list[tuple[int, int]]
Headings = list[tuple[int, int, str]]
LARGEST_DOCX = 512 << 20  # bytes after unpacking
MOST_PAGES = 50_000
LONGEST_TITLE = 300
SKIPPED = {"script", "style", "template", "noscript", "svg", "head", "math"}
_INLINE = "a abbr b bdi bdo cite code data dfn em i kbd mark q s samp small span strong sub sup"
_INLINE += " time u var wbr font tt big label del ins img input button"
INLINE = frozenset(_INLINE.split())


class _Reader(HTMLParser):
    """Collects the visible text; each block begins on a new line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.length = 0
        self.lines: Lines = []
        self.headings: Headings = []
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
            text = " ".join("".join(self.heading).split())
            if text:
                place = self.length - len("".join(self.heading))
                self.headings.append((max(0, place), self.level, text[:LONGEST_TITLE]))
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

    def _break(self) -> None:
        if self.parts and not self.parts[-1].endswith("\n\n"):
            self._append("\n\n")

    def _add(self, text: str) -> None:
        fresh = not self.parts or self.parts[-1].endswith("\n\n")
        if fresh and not self.preformatted:
            text = text.lstrip()
        if text:
            if fresh:
                self.lines.append((self.length, self.getpos()[0]))
            self._append(text)

    def _append(self, text: str) -> None:
        if self.level:
            self.heading.append(text)
        self.parts.append(text)
        self.length += len(text)


def read_html(text: str, path: Path) -> tuple[str, Lines, Headings, str]:
    """The visible text of a page, the source line of each block, its headings and title."""
    reader = _Reader()
    try:
        reader.feed(text)
        reader.close()
    except (AssertionError, ValueError) as error:  # malformed declarations
        raise BertsmithError(f"{path}: not HTML that can be read ({one_line(error)})") from None
    title = " ".join("".join(reader.title).split())[:LONGEST_TITLE]
    if not title and reader.headings:
        title = reader.headings[0][2]
    return "".join(reader.parts), reader.lines, reader.headings, title


def read_pdf(path: Path, data: bytes) -> tuple[str, Lines, str]:
    """The text of a PDF, where each page begins, and its title."""
    try:
        import pypdf
    except ImportError:
        raise BertsmithError(
            f"{path}: PDF files need pypdf: pip install bertsmith[search]"
        ) from None
    # Its warnings do not name the file; unreadable files are errors below.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    parts: list[str] = []
    pages: Lines = []
    length = 0
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise BertsmithError(f"{path}: is protected by a password")
        if len(reader.pages) > MOST_PAGES:
            raise BertsmithError(f"{path}: has more than {MOST_PAGES:,} pages")
        for number, page in enumerate(reader.pages, 1):
            text = (page.extract_text() or "").encode("utf-8", "replace").decode() + "\n\n"
            pages.append((length, number))
            parts.append(text)
            length += len(text)
        title = str(reader.metadata.get("/Title") or "") if reader.metadata else ""
    except BertsmithError:
        raise
    except Exception as error:  # pypdf raises exceptions of any type for damaged files
        raise BertsmithError(f"{path}: not a PDF that can be read ({one_line(error)})") from error
    text = "".join(parts)
    if not text.strip():
        raise BertsmithError(f"{path}: a PDF without text (scanned pages need text recognition)")
    return text, pages, title.encode("utf-8", "replace").decode()[:LONGEST_TITLE]


def read_docx(path: Path, data: bytes) -> tuple[str, Lines, Headings, str]:
    """The paragraphs and tables of a Word document, its headings and title."""
    try:
        import docx
    except ImportError:
        raise BertsmithError(
            f"{path}: Word documents need python-docx: pip install bertsmith[search]"
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST_DOCX:
                raise BertsmithError(f"{path}: unpacks to more than {LARGEST_DOCX >> 20} MiB")
        document = docx.Document(io.BytesIO(data))
        blocks = [_block(block) for block in document.iter_inner_content()]
        title = document.core_properties.title or ""
    except BertsmithError:
        raise
    except Exception as error:  # python-docx passes on exceptions of zip and XML parsers
        raise BertsmithError(
            f"{path}: not a Word document that can be read ({one_line(error)})"
        ) from error
    parts: list[str] = []
    lines: Lines = []
    headings: Headings = []
    length = 0
    for number, (text, level) in enumerate(blocks, 1):
        if not text.strip():
            continue
        lines.append((length, number))
        if level:
            headings.append((length, level, " ".join(text.split())[:LONGEST_TITLE]))
        parts.append(f"{text}\n\n")
        length += len(parts[-1])
    return "".join(parts), lines, headings, title or (headings[0][2] if headings else "")


def _block(block: Any) -> tuple[str, int]:
    """The text of a paragraph or table, and its level if it is a heading."""
    if hasattr(block, "rows"):
        rows = [" | ".join(cell.text for cell in row.cells) for row in block.rows]
        return "\n".join(rows), 0
    style = str(block.style.name if block.style is not None else "")
    match = re.fullmatch(r"Heading ([1-9])", style)
    return block.text, int(match[1]) if match else 1 if style == "Title" else 0
