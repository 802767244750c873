"""Step 2 of the demo: the text as a file, and a vocabulary that is trained on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bertsmith.demo.budget import Budget
from bertsmith.demo.data import Data
from bertsmith.files import write_text
from bertsmith.tokenizer import Tokenizer, train


@dataclass(frozen=True)
class Piece:
    """A token as the encoder reads it: the sum of three vectors has these numbers."""

    token: str
    id: int
    segment: int
    position: int


@dataclass(frozen=True)
class Reading:
    """What was read, and the vocabulary that was trained on it."""

    source: str
    own: bool  # a person's own text
    documents: int
    characters: int
    areas: dict[str, int]  # items of each
    vocabulary: int
    pieces: list[Piece]


def train_vocabulary(out: Path, data: Data, budget: Budget) -> tuple[Reading, Tokenizer]:
    """Write the documents to `out`/text.txt and train `out`/vocabulary, in lower case."""
    documents = (
        "\n".join(line for passage in document.passages for line in passage.paragraphs)
        for document in data.documents
    )
    text = "\n\n".join(documents) + "\n"
    write_text(out / "text.txt", text)
    tokenizer = train(
        [out / "text.txt"], "wordpiece", size=budget.vocabulary, max_length=2 * budget.length
    )
    tokenizer.save(out / "vocabulary")
    encoding = tokenizer.encode(*data.pair())
    pairs = zip(encoding.ids, encoding.segments, strict=True)
    reading = Reading(
        source=data.source,
        own=data.own,
        documents=len(data.documents),
        characters=len(text),
        areas=dict(Counter(area for _, area in data.areas).most_common()),
        vocabulary=tokenizer.size,
        pieces=[Piece(tokenizer.token(i), i, part, n) for n, (i, part) in enumerate(pairs)],
    )
    return reading, tokenizer
