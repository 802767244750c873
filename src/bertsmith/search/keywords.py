"""Keyword search with SQLite's FTS5: indexing of texts and queries."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Words are letters, numbers and marks (which Indic scripts write vowels with); English endings
# are stripped, accents too.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
TITLE_WEIGHT = 2.0  # weight of a word in the title or heading; 1 in the text
# Scripts that are written without spaces (and Hangul, whose words carry endings): Thai, Lao,
# Myanmar, Khmer, kana, Han with its extensions, Hangul.
RUN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
RUN += "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
RUNS = re.compile(f"[{RUN}]+")
PARTS = re.compile(r'"([^"]*)"|([^\s"]+)|"')
WORD = re.compile(r"[^\W_]+")
LONGEST_WORD = 40
MOST_COMPLETIONS = 40  # words that a prefix stands for
MOST_CANDIDATES = 1000  # words of the index that these are chosen from
MOST_TERMS = 64  # words of a query; the rarest are kept
LONGEST_QUERY = 20_000  # characters of a query that are read
COMMON = 0.25  # share of passages above which a word is left out, if rarer ones remain
FEW = 1000  # passages below which all words count
# Words that are not highlighted where others match: English function words, and in an index of
# some passages, words of more than half of them, which add nothing to BM25.
SOME, MOST = 20, 0.5
FUNCTION_WORDS = """a about all also am an and any are as at be been being but by can could did do
does for from had has have he her hers him his how i if in into is it its me my no nor not of off on
or our out over s she should so some such t than that the their them then there these they this
those to too up us was we were what when where which who whom whose why will with would you your"""
UNMARKED = frozenset(f'"{word}"' for word in FUNCTION_WORDS.split())


def spaced(text: str) -> str:
    """A text as it is indexed: compatibility forms unified, scripts without spaces in bigrams.

    東京都 is written 東京 京都 都, so that every pair of characters, and every single one as the
    beginning of a word, is found.
    """
    if text.isascii():
        return text
    return RUNS.sub(_bigrams, folded(text))


def folded(text: str) -> str:
    """Compatibility forms unified and case folded: ß is ss, ﬁ is fi."""
    return unicodedata.normalize("NFKC", text).casefold()


def without_accents(text: str) -> str:
    """Latin letters without their accents, as FTS5 stores them."""
    if text.isascii():
        return text
    parts = (unicodedata.normalize("NFD", letter) for letter in text)
    return "".join(
        part[0] if part[0].isascii() else letter for part, letter in zip(parts, text, strict=True)
    )


def _bigrams(match: re.Match[str]) -> str:
    run = match[0]
    return " " + " ".join(run[place : place + 2] for place in range(len(run))) + " "


@dataclass(frozen=True)
class Query:
    """The words, prefixes and required phrases of a query."""

    text: str
    terms: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()  # as FTS5 strings
    completions: tuple[str, ...] = ()  # words of the index that begin with one of the prefixes

    @property
    def blank(self) -> bool:
        """Whether the query is empty."""
        return not self.text.strip()

    @property
    def words(self) -> list[str]:
        """The words, and those that prefixes stand for."""
        return [*self.completions, *self.terms]

    @property
    def clauses(self) -> list[str]:
        """Each word, prefix and phrase, quoted for FTS5."""
        prefixes = [f"{quoted(prefix)} *" for prefix in self.prefixes]
        return [*self.phrases, *prefixes, *map(quoted, self.words)]

    @property
    def required(self) -> str:
        """The expression that every result must match; "" if there is none."""
        return " AND ".join(self.phrases)


def distinct_words(text: str) -> set[str]:
    """Return the words of a text for prefix search, without scripts that have no spaces."""
    words = WORD.findall(text.lower() if text.isascii() else without_accents(folded(text)))
    return {word for word in words if len(word) <= LONGEST_WORD and not RUNS.search(word)}


def quoted(term: str) -> str:
    """Return a quoted FTS5 string."""
    return '"' + term.replace('"', '""') + '"'


def parse(text: str) -> Query:
    """Parse a query: words, "exact phrases" and prefixes (pre*)."""
    text = text[:LONGEST_QUERY].replace("\0", " ").encode("utf-8", "replace").decode()
    terms: dict[str, None] = {}
    prefixes: dict[str, None] = {}
    phrases: dict[str, None] = {}
    for match in PARTS.finditer(folded(text)):
        if match[1] is not None:
            if _words(match[1]):
                phrases[_phrase(match[1])] = None
            continue
        words = _words(match[2] or "")
        if words and match[2].endswith("*"):
            last = words.pop()
            prefixes[last] = None
        for word in words:
            for part in _asked(word):
                run = RUNS.fullmatch(part)
                (prefixes if run and len(part) == 1 else terms)[part] = None
    return Query(text, tuple(terms), tuple(prefixes), tuple(phrases))


def _words(text: str) -> list[str]:
    """Runs of letters, numbers and marks."""
    return "".join(c if _in_word(c) else " " for c in text).split()


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"


def _phrase(text: str) -> str:
    """Return the FTS5 string of a phrase: its folded text as `spaced` indexes it.

    A run of bigrams at its end may continue in the document, so that its last character, which is
    indexed as the end of a run, is left out; a run of one character is the prefix of a bigram.
    """
    while not _in_word(text[-1]):
        text = text[:-1]
    indexed = RUNS.sub(_bigrams, text).rstrip()
    if not RUNS.fullmatch(text[-1]):
        return quoted(indexed)
    return quoted(indexed[:-1]) if RUNS.fullmatch(text[-2:-1]) else f"{quoted(indexed)} *"


def _asked(word: str) -> Iterable[str]:
    """Return a word, or the bigrams of its parts in scripts without spaces."""
    if word.isascii():
        return [word]
    parts: list[str] = []
    place = 0
    for match in RUNS.finditer(word):
        parts.append(word[place : match.start()])
        run = match[0]
        parts += [run[n : n + 2] for n in range(max(1, len(run) - 1))]
        place = match.end()
    parts.append(word[place:])
    return [part for part in parts if part]


class Analyzer:
    """FTS5 in memory: stems of words, and positions of query words in a text."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        quoted = TOKENIZER.replace("'", "''")
        self.database.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, tokenize='{quoted}')")
        self.database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")

    def stems(self, words: Sequence[str]) -> list[list[str]]:
        """Return the stems of each word, as stored in the index."""
        self.database.execute("DELETE FROM t")
        rows = list(enumerate(words, 1))
        self.database.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", rows)
        stems: list[list[str]] = [[] for _ in words]
        for term, row in self.database.execute("SELECT term, doc FROM v ORDER BY doc, offset"):
            stems[row - 1].append(term)
        return stems

    def highlights(self, text: str, query: Query, clauses: list[str]) -> list[tuple[int, int]]:
        """The spans of a text that match clauses of a query, in order, not overlapping."""
        spans = [
            (match.start(), match.end())
            for run in {run for run in RUNS.findall(query.text) if run}
            for part in ([run] if run in text else _asked(run))
            for match in re.finditer(re.escape(part), text)
        ]
        plain = [part for clause in clauses for part in _without_runs(clause)]
        if plain:
            self.database.execute("DELETE FROM t")
            clean = text.replace("\1", " ").replace("\2", " ").replace("\0", " ")
            apart, spaces = _apart(clean)
            self.database.execute("INSERT INTO t(rowid, x) VALUES (1, ?)", (apart,))
            row = self.database.execute(
                "SELECT highlight(t, 0, char(1), char(2)) FROM t WHERE t MATCH ?",
                (" OR ".join(plain[: 2 * MOST_TERMS]),),
            ).fetchone()
            for start, end in _spans(row[0]) if row else ():
                spans.append((start - bisect_left(spaces, start), end - bisect_left(spaces, end)))
        return _merged(spans)


def _without_runs(clause: str) -> list[str]:
    """Return a clause, or the words of a phrase that also has scripts without spaces."""
    if not RUNS.search(clause):
        return [clause]
    return [quoted(word) for word in _words(RUNS.sub(" ", clause))]


def _apart(text: str) -> tuple[str, list[int]]:
    """A text with spaces around runs of scripts without spaces, and where these spaces are."""
    borders = sorted(
        {place for run in RUNS.finditer(text) for place in run.span()} - {0, len(text)}
    )
    parts = (text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True))
    return " ".join(parts), [place + number for number, place in enumerate(borders)]


def _spans(text: str) -> list[tuple[int, int]]:
    """Return the spans between the marks that highlight() inserted."""
    spans, place, start = [], 0, 0
    for part in re.split("([\1\2])", text):
        if part == "\1":
            start = place
        elif part == "\2":
            spans.append((start, place))
        else:
            place += len(part)
    return spans


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged


def counted(query: Query, frequency: dict[str, int], passages: int) -> list[str]:
    """Return the clauses of a query that are searched, without very frequent ones.

    `frequency` is the number of passages that contain each clause.
    """
    rare = sorted(query.clauses, key=lambda clause: frequency.get(clause, 0))[:MOST_TERMS]
    if passages >= FEW:
        kept = [clause for clause in rare if frequency.get(clause, 0) <= COMMON * passages]
        rare = kept or rare[:1]
    return [clause for clause in query.clauses if clause in set(rare)]


def marked(query: Query, frequency: dict[str, int], passages: int) -> list[str]:
    """Return the clauses of a query whose matches are highlighted."""
    clauses = counted(query, frequency, passages)
    most = MOST * passages if passages >= SOME else passages
    telling = [c for c in clauses if c not in UNMARKED and frequency.get(c, 0) <= most]
    return telling or clauses


def expression(query: Query, clauses: list[str]) -> str:
    """Return the FTS5 expression: any of the clauses, and all phrases."""
    chosen = " OR ".join(clauses)
    if query.required:  # phrases count for the score too
        return f"({query.required}) AND ({chosen})"
    return chosen
