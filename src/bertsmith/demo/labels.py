"""The data of the demo: its text, with labels that the text itself has, and example sentences."""

import csv
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from bertsmith.demo.text import DemoDocument, own_text, standard_library
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import atomic, write_text
from bertsmith.tokenizer import Tokenizer

MOST_AREAS = 8
LONGEST = 40  # words of an item
SHORTEST = 5
WORD = re.compile(r"\w+(?:\.\w+)*|[^\w\s]")
SENTENCE = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
CONSTANTS = {"True", "False", "None"}
# As only code is: a_b, aB, AbC, ABcd, ab.cd
SPELLED = re.compile(r".*_|.*[a-z][A-Z]|[A-Z]+[a-z]+[A-Z]|[A-Z]{2,}[a-z]{2}|\w\w+(\.\w\w+)+$")
FRACTIONS = {"test": 0.15, "dev": 0.08}  # of the items; the others are training data

Sentence = list[tuple[str, str]]  # words with their tags
Item = TypeVar("Item")


def area_items(documents: Sequence[DemoDocument]) -> list[tuple[str, str]]:
    """(text, area) of passages from the areas with most of them, no text twice in any case."""
    texts: dict[str, str] = {}  # by their lower-case form
    owners: dict[str, set[str]] = {}
    for document in documents:
        for passage in document.passages:
            words = passage.paragraphs[0].split()
            if passage.area and len(words) >= SHORTEST:
                text = " ".join(words[:LONGEST])
                owners.setdefault(texts.setdefault(text.casefold(), text), set()).add(passage.area)
    # A text that occurs in two areas is no evidence for either.
    single = [(text, areas.pop()) for text, areas in owners.items() if len(areas) == 1]
    often = [area for area, _ in Counter(area for _, area in single).most_common(MOST_AREAS)]
    if len(often) < 2:
        raise BertsmithError(
            f"the text cannot be divided into classes: give {setting_name('text')} a folder with "
            "several files or sub-folders"
        )
    return [(text, area) for text, area in single if area in often]


def name_items(documents: Sequence[DemoDocument], own: bool) -> list[Sentence]:
    """Sentences with a tag for each word, those with a name in them, no sentence twice.

    Of the library, names are parameters and what is spelled as code; of a person's `own` text,
    words with a capital within a sentence, which a lower-case vocabulary cannot see.
    """
    sentences: dict[str, Sentence] = {}
    for document in documents:
        for passage in document.passages:
            for text in chain.from_iterable(map(SENTENCE.split, passage.paragraphs)):
                tagged = capitals(text) if own else code_names(text, passage.names)
                if SHORTEST <= len(tagged) <= LONGEST and any(tag != "O" for _, tag in tagged):
                    sentences.setdefault(text, tagged)
    if len(sentences) < 20:
        raise BertsmithError("the text has too few sentences with names to train on")
    return list(sentences.values())


def code_names(text: str, parameters: frozenset[str]) -> Sentence:
    """Tag the words that are parameters, constants, calls, or spelled as only code is."""
    tagged = []
    for match in WORD.finditer(text):
        word = match[0]
        called = text[match.end() : match.end() + 1] == "("
        parameter = word in parameters and len(word) > 1  # "a" is an article more often
        code = called or parameter or word in CONSTANTS or SPELLED.match(word)
        tagged.append((word, "B-CODE" if code and word[0].isidentifier() else "O"))
    return tagged


def capitals(text: str) -> Sentence:
    """Tag the words that begin with a capital though no sentence does."""
    tagged: Sentence = []
    for word in WORD.findall(text):
        name = word[0].isupper() and word != "I" and bool(tagged)
        going_on = bool(tagged) and tagged[-1][1] != "O"
        tagged.append((word, ("I-NAME" if going_on else "B-NAME") if name else "O"))
    return tagged


def split_items(items: Sequence[Item], most: int, seed: int = 0) -> dict[str, list[Item]]:
    """Shuffle items and divide at most so many of them into test, dev and train."""
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)
    shuffled = shuffled[:most]
    splits, start = {}, 0
    for name, fraction in FRACTIONS.items():
        stop = start + max(1, round(fraction * len(shuffled)))
        splits[name], start = shuffled[start:stop], stop
    return splits | {"train": shuffled[start:]}


def write_table(folder: Path, splits: dict[str, list[tuple[str, str]]]) -> None:
    """Write texts and labels as train.csv, dev.csv and test.csv."""
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        with atomic(folder / f"{name}.csv", "w") as stream:
            writer = csv.writer(stream)
            writer.writerow(("text", "label"))
            writer.writerows(rows)


def write_tags(folder: Path, splits: dict[str, list[Sentence]]) -> None:
    """Write words and tags as train.conll, dev.conll and test.conll."""
    folder.mkdir(parents=True)
    for name, sentences in splits.items():
        text = "\n\n".join("\n".join(map("\t".join, sentence)) for sentence in sentences)
        write_text(folder / f"{name}.conll", text + "\n")


SENTENCES = (
    "Return the [MASK] of the list.",
    "Return [MASK] if the file exists.",
    "Return a [MASK] of all the keys.",
    "This method returns a new [MASK].",
    "Open the [MASK] and read the first line.",
)
PAIR = ("Return an unordered list of names.", "If there are none, it is empty.")
LIBRARY = "docstrings and help topics of Python's library"


@dataclass(frozen=True)
class DemoData:
    """The text of one run."""

    documents: list[DemoDocument]
    own: bool  # is it a person's own?
    source: str
    areas: list[tuple[str, str]]  # texts with what they belong to
    names: list[Sentence]

    def lines(self) -> list[str]:
        """All paragraphs."""
        return [line for document in self.documents for line in document.lines()]

    def pair(self) -> tuple[str, str]:
        """Two consecutive sentences, as an example of an input."""
        for line in self._first_lines():
            first, _, rest = line.partition(". ")
            second = rest.partition(". ")[0].rstrip(".")
            if all(4 <= len(sentence.split()) <= 10 for sentence in (first, second)):
                return f"{first}.", f"{second}."
        return PAIR

    def sentences(self, tokenizer: Tokenizer) -> list[str]:
        """Sentences with a mask; of a person's own text, in place of its longest known word."""
        known, masked = tokenizer.vocabulary(), []
        for line in self._first_lines():
            words = line.partition(". ")[0].rstrip(".").split()
            longest = max(words, key=lambda word: (word.lower() in known) * len(word))
            plain = all(word.strip(",;").isalpha() for word in words)
            if plain and 5 <= len(words) <= 8 and len(longest) > 3 and longest.lower() in known:
                place = words.index(longest)
                masked.append(" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) + ".")
        return masked[:: max(1, len(masked) // 5)][:5] or list(SENTENCES)

    def _first_lines(self) -> list[str]:
        """The first paragraph of each passage of a person's own text; none of the library."""
        documents = self.documents if self.own else []
        return [passage.paragraphs[0] for d in documents for passage in d.passages]


def read_text(folder: Path | None) -> DemoData:
    """Read Python's library, or a person's own folder."""
    documents = standard_library() if folder is None else own_text(folder)
    source = LIBRARY if folder is None else f"the text in {folder}"
    own = folder is not None
    return DemoData(documents, own, source, area_items(documents), name_items(documents, own))
