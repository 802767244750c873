"""Confident learning: by hand, on planted errors, and equal to cleanlab where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.metrics.label_errors import confident_joint, wrong_labels


def planted(seed: int, share: float = 0.1) -> tuple[np.ndarray, np.ndarray, set[int]]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, 600)
    logits = random.normal(0, 1, (600, 4))
    logits[np.arange(600), labels] += 3
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    bad = random.choice(600, round(share * 600), replace=False)
    given = labels.copy()
    given[bad] = (given[bad] + random.integers(1, 4, len(bad))) % 4
    return given, chances, set(bad.tolist())


def test_the_joint_by_hand() -> None:
    labels = np.array([0, 0, 0, 1, 1])
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
    # Limits: the mean of 0.9, 0.8 and 0.1 is 0.6; that of 0.8 and 0.7 is 0.75.
    assert confident_joint(labels, chances).tolist() == [[2, 1], [0, 2]]
    assert wrong_labels(labels, chances).tolist() == [2]


def test_planted_errors_are_found() -> None:
    given, chances, bad = planted(0)
    found = wrong_labels(given, chances).tolist()
    hits = len(bad & set(found))
    assert hits / len(found) > 0.7
    assert hits / len(bad) > 0.75
    assert len(bad & set(found[:20])) >= 19  # the surest come first
    own = chances[found, given[found]]
    assert (np.diff(own) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_as_cleanlab_finds_them(seed: int) -> None:
    filter_module = pytest.importorskip("cleanlab.filter")
    given, chances, _ = planted(seed, 0.15)
    theirs = np.flatnonzero(filter_module.find_label_issues(given, chances, n_jobs=1))
    assert set(wrong_labels(given, chances).tolist()) == set(theirs.tolist())


def test_edges() -> None:
    assert wrong_labels([0, 1], [[0.9, 0.1], [0.1, 0.9]]).tolist() == []
    assert wrong_labels([0], [[0.1, 0.9]]).tolist() == []  # the last row of a class stays
    with pytest.raises(BertsmithError, match="one row of probabilities"):
        wrong_labels([0, 1], [[0.5, 0.5]])
    with pytest.raises(BertsmithError, match="must be columns"):
        wrong_labels([2], [[0.5, 0.5]])
