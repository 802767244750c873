"""The model that comes with the package, as the demo introduces it."""

import numpy as np
import pytest

import bertsmith as bs
from bertsmith.demo.steps import MASKED, MODEL, PAIRS
from demo.conftest import Made


def test_guesses_are_the_models(made: Made) -> None:
    bert = bs.load(MODEL, device="cpu")
    introduction = made.results["met"]
    assert introduction["sentences"] == list(MASKED)
    assert introduction["parameters"] == sum(
        parameter.numel() for parameter in bert.model.parameters()
    )
    expected = [one.token for one in bert.fill_mask(MASKED[0], top=3)]
    assert [token for token, _ in introduction["guesses"][0]] == expected


def test_neighbours_are_nearest(made: Made) -> None:
    texts = [text for pair in PAIRS for text in pair]
    vectors = bs.load(MODEL, device="cpu").embed(texts).astype(np.float64)
    vectors -= vectors.mean(0)
    for one, (first, _) in zip(made.results["met"]["near"], PAIRS, strict=True):
        own = vectors[texts.index(first)]
        cosines = {
            text: own @ other / np.linalg.norm(own) / np.linalg.norm(other)
            for text, other in zip(texts, vectors, strict=True)
            if text != first
        }
        nearest = max(cosines, key=cosines.__getitem__)
        assert (one["text"], one["nearest"]) == (first, nearest)
        assert one["cosine"] == pytest.approx(cosines[nearest], abs=1e-4)
