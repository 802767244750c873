"""Keyword search with SQLite's FTS5: indexing of texts and queries."""

import re
import sqlite3
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bertsmith.search.fuse import Ids

# Words are letters, numbers and marks (which Indic scripts write vowels with); English endings
# are stripped, accents too.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories ''L* N* Co Mn Mc''"  # quoted for SQL
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
    bases = [unicodedata.normalize("NFD", letter)[0] for letter in text]
    pairs = zip(bases, text, strict=True)
    return "".join(base if base.isascii() else letter for base, letter in pairs)


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
    terms: list[str] = []
    prefixes: list[str] = []
    phrases: list[str] = []
    for phrase, other in PARTS.findall(folded(text)):
        if _words(phrase):
            phrases.append(_phrase(phrase))
        words = _words(other)
        if words and other.endswith("*"):
            prefixes.append(words.pop())
        for term in [term for word in words for term in _terms(word)]:
            (prefixes if len(term) == 1 and RUNS.fullmatch(term) else terms).append(term)
    return Query(text, *(tuple(dict.fromkeys(words)) for words in (terms, prefixes, phrases)))


def _words(text: str) -> list[str]:
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


def _terms(word: str) -> Iterator[str]:
    """Return a word, or the bigrams of its parts in scripts without spaces."""
    for part in re.split(f"([{RUN}]+)", word):
        if RUNS.match(part):
            yield from (part[n : n + 2] for n in range(max(1, len(part) - 1)))
        elif part:
            yield part


class KeywordSearch:
    """Keyword search in the database of an index, and FTS5 in memory for what it says of texts."""

    def __init__(self, index: sqlite3.Connection) -> None:
        self.index = index
        self.memory = sqlite3.connect(":memory:", check_same_thread=False)
        self.memory.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, tokenize='{TOKENIZER}')")
        self.memory.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")

    def completed(self, query: Query) -> Query:
        """The query with words for its prefixes, where FTS5's own prefix search is wrong.

        FTS5 stems the prefix too: it looks for gas* as ga*, which garden begins with, and for lady*
        as ladi*, which ladybird does not begin with. Such a prefix is replaced by words. To others
        the words are added whose stem is shorter than the prefix.
        """
        kept, added = [], []
        prefixes = [without_accents(prefix) for prefix in query.prefixes]
        candidates = "SELECT word FROM vocabulary WHERE word >= ? AND word < ? LIMIT ?"
        for prefix, stems in zip(prefixes, self._stems(prefixes), strict=True):
            values = (prefix, prefix + "\U0010ffff", MOST_CANDIDATES)
            words = [word for (word,) in self.index.execute(candidates, values)]
            by_stem = {s[0]: word for word, s in zip(words, self._stems(words), strict=True) if s}
            if stems == [prefix]:
                kept.append(prefix)
                by_stem = {s: word for s, word in by_stem.items() if not s.startswith(prefix)}
            added += self._most_frequent(list(by_stem.values()))
        return replace(query, prefixes=tuple(kept), completions=tuple(added))

    def _most_frequent(self, words: list[str]) -> list[str]:
        """The words that most passages contain, if there are many."""
        if len(words) <= MOST_COMPLETIONS:
            return words
        frequency = self._frequencies(words)
        return sorted(words, key=lambda word: -frequency[quoted(word)])[:MOST_COMPLETIONS]

    def _stems(self, words: Sequence[str]) -> list[list[str]]:
        self.memory.execute("DELETE FROM t")
        rows = list(enumerate(words, 1))
        self.memory.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", rows)
        stems: list[list[str]] = [[] for _ in words]
        for term, row in self.memory.execute("SELECT term, doc FROM v ORDER BY doc, offset"):
            stems[row - 1].append(term)
        return stems

    def _frequencies(self, words: list[str]) -> dict[str, int]:
        """The number of passages that contain each word, by the word in quotes."""
        frequency = {}
        for word, stems in zip(words, self._stems(words), strict=True):
            sql = "SELECT doc FROM frequency WHERE term = ?"
            rows = [self.index.execute(sql, (stem,)).fetchone() for stem in stems]
            frequency[quoted(word)] = min((row[0] if row else 0 for row in rows), default=0)
        return frequency

    def allowed(self, query: Query, condition: str, values: list[Any]) -> Ids | None:
        """The sorted ids of passages that match filters on files `f` and all phrases; None: all."""
        conditions = [condition] if condition else []
        if query.required:
            conditions.append("p.id IN (SELECT rowid FROM words WHERE words MATCH ?)")
            values = [*values, query.required]
        if not conditions:
            return None
        sql = "SELECT p.id FROM passages p JOIN files f ON f.id = p.file WHERE "
        rows = self.index.execute(sql + " AND ".join(conditions), values).fetchall()
        return np.sort(np.array([number for (number,) in rows], dtype=np.int64))

    def ranking(self, query: Query, depth: int, allowed: Ids | None) -> list[tuple[int, float]]:
        """The passages with the highest BM25, at most `depth` of those that are allowed."""
        clauses, _ = self._clauses(query)
        if not clauses or (allowed is not None and not len(allowed)):
            return []
        wanted = " OR ".join(clauses)  # with phrases, which count for the score too
        if query.required:
            wanted = f"({query.required}) AND ({wanted})"
        sql = f"SELECT rowid, -bm25(words, {TITLE_WEIGHT}, 1.0) AS score FROM words"
        sql += " WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?"
        rows = self.index.execute(sql, (wanted, depth if allowed is None else -1))
        if allowed is None:
            return rows.fetchall()
        permitted = set(allowed.tolist())
        return [row for row in rows if row[0] in permitted][:depth]

    def _clauses(self, query: Query) -> tuple[list[str], list[str]]:
        """The clauses that are searched, without very frequent ones, and those to highlight."""
        frequency = self._frequencies(query.words)
        (passages,) = self.index.execute("SELECT count(*) FROM passages").fetchone()
        rare = sorted(query.clauses, key=lambda clause: frequency.get(clause, 0))[:MOST_TERMS]
        if passages >= FEW:
            kept = [clause for clause in rare if frequency.get(clause, 0) <= COMMON * passages]
            rare = kept or rare[:1]
        searched = [clause for clause in query.clauses if clause in set(rare)]
        most = MOST * passages if passages >= SOME else passages
        telling = [c for c in searched if c not in UNMARKED and frequency.get(c, 0) <= most]
        return searched, telling or searched

    def highlights(self, texts: Sequence[str], query: Query) -> list[list[tuple[int, int]]]:
        """The spans of each text that match a query, in order, not overlapping."""
        _, clauses = self._clauses(query)
        plain = [part for clause in clauses for part in _without_runs(clause)]
        wanted = " OR ".join(plain[: 2 * MOST_TERMS])
        return [_merged([*_run_spans(text, query), *self._spans(text, wanted)]) for text in texts]

    def _spans(self, text: str, wanted: str) -> Iterator[tuple[int, int]]:
        if not wanted:
            return
        self.memory.execute("DELETE FROM t")
        apart, spaces = _apart(text.replace("\1", " ").replace("\2", " ").replace("\0", " "))
        self.memory.execute("INSERT INTO t(rowid, x) VALUES (1, ?)", (apart,))
        sql = "SELECT highlight(t, 0, char(1), char(2)) FROM t WHERE t MATCH ?"
        row = self.memory.execute(sql, (wanted,)).fetchone()
        place = start = 0
        for part in re.split("([\1\2])", row[0]) if row else ():
            if part == "\1":
                start = place
            elif part == "\2":
                yield start - bisect_left(spaces, start), place - bisect_left(spaces, place)
            else:
                place += len(part)


def _run_spans(text: str, query: Query) -> list[tuple[int, int]]:
    """Where a text has the query's words in scripts without spaces, or pairs of their letters."""
    return [
        match.span()
        for run in set(RUNS.findall(query.text))
        for part in ([run] if run in text else _terms(run))
        for match in re.finditer(re.escape(part), text)
    ]


def _without_runs(clause: str) -> list[str]:
    """Return a clause, or the words of a phrase that also has scripts without spaces."""
    if not RUNS.search(clause):
        return [clause]
    return [quoted(word) for word in _words(RUNS.sub(" ", clause))]


def _apart(text: str) -> tuple[str, list[int]]:
    """A text with spaces around runs of scripts without spaces, and where these spaces are."""
    ends = {place for run in RUNS.finditer(text) for place in run.span()}
    borders = sorted(ends - {0, len(text)})
    parts = (text[start:end] for start, end in pairwise([0, *borders, len(text)]))
    return " ".join(parts), [place + number for number, place in enumerate(borders)]


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged
