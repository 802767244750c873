"""The demo's first step: bertsmith-small fills masks and compares sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.bert import load

MODEL = "bertsmith-small"
MASKED = (
    "The capital of Japan is [MASK].",
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


@dataclass(frozen=True)
class Near:
    """A sentence, and of all others the one whose vector is nearest."""

    text: str
    nearest: str
    cosine: float  # of what sets both apart from the mean of all


@dataclass(frozen=True)
class Met:
    """What the model did."""

    name: str
    parameters: int
    sentences: list[str]
    guesses: list[list[tuple[str, float]]]  # for each sentence the best tokens
    near: list[Near]


def meet() -> Met:
    """Open the model and let it show what it can do."""
    bert = load(MODEL, device="cpu", progress=False)
    guesses = bert.fill_mask(list(MASKED), top=TOP)
    texts = [text for pair in PAIRS for text in pair]
    vectors = bert.embed(texts)
    # All vectors of a model that was never taught sentences point much the same way.
    apart = vectors - vectors.mean(0)
    apart /= np.linalg.norm(apart, axis=1, keepdims=True)
    cosines = apart @ apart.T - 2 * np.eye(len(texts))  # none is its own neighbour
    near = [
        Near(texts[place], texts[int(cosines[place].argmax())], float(cosines[place].max()))
        for place in range(0, len(texts), 2)
    ]
    return Met(
        name=MODEL,
        parameters=sum(parameter.numel() for parameter in bert.model.parameters()),
        sentences=list(MASKED),
        guesses=[[(one.token, one.score) for one in row] for row in guesses],
        near=near,
    )


def guesses_of(model: str, sentences: Sequence[str]) -> list[list[tuple[str, float]]]:
    """The best tokens of a model for the mask of each sentence."""
    bert = load(model, device="cpu", progress=False)
    found = bert.fill_mask(list(sentences), top=TOP)
    return [[(one.token, one.score) for one in row[:TOP]] for row in found]
