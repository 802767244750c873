"""CoNLL files (a word a line, its tag in a column) and CoNLL-U treebanks → tagged sentences."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.streams import Stream
from bertsmith.data.tables import FileLayout, Row, Table, Where, portions
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.numbers import counted, parse_whole, shown
from bertsmith.tasks.tagging.examples import Offsets, Tagged, Words, joined

DOCUMENT = "-DOCSTART-"
COMMENT = re.compile(r"#\s?(id|sent_id|text|newdoc|newpar|global)\b|#.*\s=\s")
CONLL_2003 = ("word", "pos", "chunk", "ner")
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
LONGEST = 100_000  # lines of one sentence
TAGGED_LINE = re.compile(r"\S+( \S+)* (O|[BIESLU]-\S+)")  # of one sentence


class Line(NamedTuple):
    """A line of a sentence, in cells."""

    number: int
    cells: list[str]


class Conll(FileLayout):
    """A word on each line, with its tag in a column."""

    name = "conll"
    content = "words with tags"
    endings = (".conll", ".conll03", ".iob", ".iob2", ".bio", ".ner", ".pos", ".tags")

    def fits_text(self, head: str, chosen: bool) -> bool:
        """Groups of lines, mostly of one width; where tags are wanted, also a single sentence."""
        lines = [line.removesuffix("\r") for line in head[:20_000].split("\n")]
        widths = Counter(len(_cells(line)) for line in lines if line.strip() and line[0] != "#")
        width, times = widths.most_common(1)[0] if widths else (0, 0)
        if not all(map(str.strip, lines[:-1])) and 2 <= width <= 20 and times > widths.total() / 2:
            return True
        lines = [line.rstrip("\r") for line in head.split("\n")[:200] if line.strip()]
        return chosen and all(map(TAGGED_LINE.fullmatch, lines))

    def tables(
        self, stream: Stream, ledger: Ledger, columns: Mapping[str, str], size: int
    ) -> Iterator[Table]:
        """The portions of a CoNLL file: a row is a sentence, of the first column and the last.

        Columns are named by number from 1, or, where there are four as in CoNLL-2003, by name.
        """
        path, width, language = stream.path, 0, ""
        word_at = tag_at = 0
        sentences = _sentences(path, stream.numbered(), _conll_lines(path, ledger))
        for group in _grouped(sentences, size):
            if not width:
                width = len(group[0][0].cells)
                if width < 2:
                    raise BertsmithError(
                        f"{path}, line {group[0][0].number}: a word and no tag; CoNLL files have a "
                        "tag on each line"
                    )
                word_at = _column(path, columns.get("tokens"), width, 0)
                tag_at = _column(path, columns.get("tags"), width, width - 1)
                language = _language([line.cells[word_at] for lines in group for line in lines])
            if language:
                ledger.note(
                    f"words from whose start {language!r} was removed", sum(map(len, group))
                )
            rows = []
            for lines in group:
                words = tuple(line.cells[word_at].removeprefix(language) for line in lines)
                tags = tuple(line.cells[tag_at] for line in lines)
                rows.append(_tagged_row(path, *joined(words), words, tags, lines))
            yield _table(self, stream, rows, _name(word_at, width), _name(tag_at, width))


class ConllU(FileLayout):
    """A treebank of Universal Dependencies."""

    name = "conllu"
    content = "words with tags"
    endings = (".conllu",)

    def tables(
        self, stream: Stream, ledger: Ledger, columns: Mapping[str, str], size: int
    ) -> Iterator[Table]:
        """The portions of a treebank: words with their part of speech, or another column.

        Every word has its place in the text. The words of a multiword token are joined where they
        spell it (do, n't), and separated by spaces where they do not (du: de, le).
        """
        path, tags = stream.path, columns.get("tags")
        wanted = (tags or "upos").lower()
        if wanted not in CONLL_U[2:]:
            raise BertsmithError(f"{path}: no column {tags!r}; known: {', '.join(CONLL_U[2:])}")
        column = CONLL_U.index(wanted)
        sentences = _sentences(path, stream.numbered(), _conllu_lines(path))
        for group in _grouped(sentences, size):
            rows = []
            for lines in group:
                words, text, offsets = _placed(path, lines, ledger)
                forms = tuple(line.cells[1] for line in words)
                tags_of_words = tuple(line.cells[column] for line in words)
                rows.append(_tagged_row(path, text, offsets, forms, tags_of_words, words))
            yield _table(self, stream, rows, "form", wanted)


def _table(layout: FileLayout, stream: Stream, rows: list[Row], words: str, tags: str) -> Table:
    names, columns = ("tokens", "tags"), {"tokens": words, "tags": tags}
    return Table(stream.path, names, rows, layout=layout.name, columns=columns, share=stream.share)


def _tagged_row(
    path: Path, text: str, offsets: Offsets, words: Words, tags: Words, lines: Sequence[Line]
) -> Row:
    numbers = tuple(line.number for line in lines)
    example = Tagged(text, words, offsets, tags, Where(str(path), numbers[0]), numbers)
    return Row(numbers[0], {"tokens": list(words), "tags": list(tags)}, example)


def _conll_lines(path: Path, ledger: Ledger) -> Callable[[int, str], Line | None]:
    width = 0

    def read(number: int, text: str) -> Line | None:
        nonlocal width
        cells = _cells(text)
        if cells[0] == DOCUMENT:
            ledger.note("-DOCSTART- lines, left out")
            return None
        if text.startswith("#") and (COMMENT.match(text) or width not in (0, len(cells))):
            ledger.note("comments, left out")
            return None
        width = width or len(cells)
        if len(cells) != width:
            raise BertsmithError(
                f"{path}, line {number}: {counted(len(cells), 'column')} where the lines before "
                f"have {width}; a line holds a word and its tag only"
            )
        if not all(cells):
            raise BertsmithError(f"{path}, line {number}: an empty word or tag")
        return Line(number, cells)

    return read


def _sentences(
    path: Path, numbered: Iterable[tuple[int, str]], read: Callable[[int, str], Line | None]
) -> Iterator[list[Line]]:
    """Groups of lines between blank ones, none of them too long to be a sentence."""
    lines: list[Line] = []
    for number, text in chain(numbered, [(0, "")]):
        if not text.strip():
            if lines:
                yield lines
            lines = []
            continue
        line = read(number, text)
        if line is not None:
            lines.append(line)
        if len(lines) > LONGEST:
            raise BertsmithError(
                f"{path}, line {number}: a sentence of more than {LONGEST:,} lines; a blank line "
                "must follow each sentence"
            )


def _grouped(sentences: Iterator[list[Line]], size: int) -> Iterator[list[list[Line]]]:
    """Some sentences at a time, as portions of rows are made."""
    rows = (Row(0, {"": " " * 8 * len(lines)}, lines) for lines in sentences)
    for some in portions(rows, size):
        yield [row.example for row in some]


def _cells(text: str) -> list[str]:
    """Tabs separate cells, else spaces (no others: some words hold a no-break space)."""
    if "\t" in text:
        return text.split("\t")
    return [cell for cell in text.split(" ") if cell] or [""]


def _column(path: Path, name: str | None, width: int, default: int) -> int:
    if name is None:
        return default
    names = CONLL_2003 if width == len(CONLL_2003) else ()
    if name.lower() in names:
        return names.index(name.lower())
    number = parse_whole(name)
    if number is not None and 1 <= number <= width:
        return number - 1
    known = f" or {', '.join(names)}" if names else ""
    raise BertsmithError(f"{path}: no column {name!r}; they are 1 to {width}{known}")


def _name(place: int, width: int) -> str:
    return CONLL_2003[place] if width == len(CONLL_2003) else str(place + 1)


def _language(words: Sequence[str]) -> str:
    """The "en:" that WikiANN writes before each word, if this file has it before all."""
    prefix = re.match(r"[a-z]{2,3}(-[a-z]+)*:(?=.)", words[0])
    same = prefix and all(w.startswith(prefix[0]) and len(w) > len(prefix[0]) for w in words)
    return prefix[0] if prefix and same else ""


class Treebank(NamedTuple):
    """A parsed sentence: its text, the characters of its words, and the head of each word."""

    text: str
    words: Words
    offsets: Offsets
    tags: Words  # universal parts of speech
    heads: tuple[int, ...]  # the place of the word that it depends on, from 0; -1 for the root
    relations: Words  # without their subtype: nsubj, not nsubj:pass


def read_treebank(path: str | Path, ledger: Ledger | None = None) -> Iterator[Treebank]:
    """Read the sentences of a CoNLL-U file with their dependencies."""
    path, ledger = Path(path), ledger or Ledger()
    for lines in _sentences(path, Stream(path).numbered(), _conllu_lines(path)):
        words, text, offsets = _placed(path, lines, ledger)
        places = {line.cells[0]: place for place, line in enumerate(words)}
        heads = []
        for line in words:
            head = line.cells[6]
            if head != "0" and head not in places:
                raise BertsmithError(f"{path}, line {line.number}: no word has the number {head!r}")
            heads.append(-1 if head == "0" else places[head])
        cells = [line.cells for line in words]
        forms, tags = tuple(c[1] for c in cells), tuple(c[3] for c in cells)
        relations = tuple(c[7].partition(":")[0] for c in cells)
        yield Treebank(text, forms, offsets, tags, tuple(heads), relations)


def _conllu_lines(path: Path) -> Callable[[int, str], Line | None]:
    def read(number: int, text: str) -> Line | None:
        if text.startswith("#"):
            return None
        cells = text.split("\t")
        if len(cells) != len(CONLL_U):
            raise BertsmithError(
                f"{path}, line {number}: {counted(len(cells), 'column')} where CoNLL-U has "
                f"{len(CONLL_U)}"
            )
        return Line(number, cells)

    return read


def _placed(path: Path, lines: list[Line], ledger: Ledger) -> tuple[list[Line], str, Offsets]:
    words: list[Line] = []
    spaces: list[bool] = []
    inside: list[bool] = []  # for the words of a multiword token: does a space follow?
    for place, line in enumerate(lines):
        number = line.cells[0]
        if "." in number:
            ledger.note("empty nodes, left out")
            continue
        if "-" in number:
            parts = _parts(path, lines, place)
            spelled = "".join(part.cells[1] for part in parts) == line.cells[1]
            if not spelled:
                ledger.note("multiword tokens read as separate words")
            # A space follows each of the words, unless together they spell the token.
            inside = [not spelled] * (len(parts) - 1) + [_space(line)][: len(parts)]
            continue
        spaces.append(inside.pop(0) if inside else _space(line))
        words.append(line)
    if not words:
        raise BertsmithError(f"{path}, line {lines[0].number}: a sentence without words")
    text, offsets = joined(tuple(line.cells[1] for line in words), tuple(spaces))
    return words, text, offsets


def _parts(path: Path, lines: list[Line], place: int) -> list[Line]:
    line = lines[place]
    first, last = (parse_whole(part) for part in (line.cells[0] + "-").split("-", 2)[:2])
    if first is None or last is None or first > last:
        raise BertsmithError(
            f"{path}, line {line.number}: {shown(line.cells[0])} is not a word range"
        )
    parts = []
    for after in range(place + 1, len(lines)):
        other = lines[after]
        number = parse_whole(other.cells[0])
        if "." not in other.cells[0] and (number is None or not first <= number <= last):
            break
        if number is not None:
            parts.append(other)
    return parts


def _space(line: Line) -> bool:
    return "SpaceAfter=No" not in line.cells[9].split("|")
