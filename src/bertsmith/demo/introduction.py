"""Step 1 of the demo: bertsmith-small predicts masked words and compares sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.bert import Bert, load

MODEL = "bertsmith-small"
MASKED = (
    "Berlin is the capital of [MASK].",
    "She played the [MASK] in an orchestra.",
    "She poured a cup of hot [MASK].",
    "He was born in 1950 and [MASK] in 2001.",
)
# Two sentences on one subject, without a telling word in common.
PAIRS = (
    ("The river rose after heavy rain.", "Storms flooded the valley."),
    ("She plays the violin.", "He writes songs for the piano."),
    ("The match ended in a draw.", "A striker scored two goals."),
    ("The company lost money.", "Investors sold their shares."),
)
TOP = 3  # guesses for each mask

Guesses = list[list[tuple[str, float]]]  # for each sentence the best tokens


@dataclass(frozen=True)
class Near:
    """A sentence, and of all others the one whose vector is nearest."""

    text: str
    nearest: str
    cosine: float  # after the mean of all vectors is subtracted


@dataclass(frozen=True)
class Introduction:
    """What a trained model predicts."""

    name: str
    parameters: int
    sentences: list[str]
    guesses: Guesses
    near: list[Near]


def introduce() -> Introduction:
    """Open the model and let it fill masks and compare sentences."""
    bert = load(MODEL, device="cpu", progress=False)
    texts = [text for pair in PAIRS for text in pair]
    vectors = bert.embed(texts)
    # All vectors of a model that was never trained on sentences point much the same way.
    apart = vectors - vectors.mean(0)
    apart /= np.linalg.norm(apart, axis=1, keepdims=True)
    cosines = apart @ apart.T - 2 * np.eye(len(texts))  # none is its own neighbour
    near = [
        Near(texts[place], texts[int(cosines[place].argmax())], float(cosines[place].max()))
        for place in range(0, len(texts), 2)
    ]
    return Introduction(MODEL, size_of(bert), list(MASKED), guesses_of(bert, MASKED), near)


def guesses_of(bert: Bert, sentences: Sequence[str]) -> Guesses:
    """The best tokens of a model for the mask of each sentence."""
    rows = bert.fill_mask(list(sentences), top=TOP)
    return [[(one.token, one.score) for one in row[:TOP]] for row in rows]


def size_of(bert: Bert) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in bert.model.parameters())
