"""Conformal limits and certified thresholds: the guarantees, by simulation and by scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.metrics.conformal import abstention, chance_of, limit_for, limits, rows_needed


def test_the_tail_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for right, count, accuracy in ((9, 10, 0.5), (0, 5, 0.3), (190, 200, 0.95), (50, 50, 0.9)):
        expected = stats.binom.sf(right - 1, count, accuracy)
        assert chance_of(right, count, accuracy) == pytest.approx(expected, rel=1e-9)


def test_a_limit_is_the_order_statistic_of_the_paper() -> None:
    scores = np.random.default_rng(0).random(40).tolist()
    found = limits(scores)
    for level in (50, 90, 97):
        assert found[str(level)] == sorted(scores)[math.ceil(41 * level / 100) - 1]
    assert "98" not in found  # 41 * 0.98 > 40: every label would have to be in the set
    assert rows_needed(0.9) == 9
    assert rows_needed(0.99) == 99
    assert limits([0.1] * 8).get("90") is None
    assert limits([0.1] * 9)["90"] == 0.1
    with pytest.raises(BertsmithError, match=r"needs 49 held-out rows or more; .* 0.97 at most"):
        limit_for(found, 0.98)
    for wrong in (0.4, 0.905, 1.0):
        with pytest.raises(BertsmithError, match="coverage must be"):
            limit_for(found, wrong)


def test_coverage_is_what_was_asked() -> None:
    random, inside = np.random.default_rng(1), []
    for _ in range(400):
        held, new = random.exponential(size=99), random.exponential(size=200)
        inside.append((new <= limit_for(limits(held.tolist()), 0.9)).mean())
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_abstention_keeps_its_promise_on_new_data() -> None:
    """Confidence is exaggerated: accuracy is 0.5 + confidence / 2 - 0.1."""
    random, broken, kept = np.random.default_rng(2), 0, []
    for _ in range(300):
        sure = random.random(400)
        correct = random.random(400) < np.minimum(0.4 + 0.6 * sure, 1)
        below, count = abstention(sure.tolist(), correct.tolist(), 0.85)
        kept.append(count / 400)
        # The true accuracy above the threshold: the mean of 0.4 + 0.6 s for s in (below, 1).
        broken += below < 1 and 0.4 + 0.6 * (1 + below) / 2 < 0.85
    assert broken / 300 <= 0.05
    assert np.mean(kept) > 0.2  # at the true threshold half are kept


def test_without_evidence_everything_is_abstained_from() -> None:
    below, count = abstention([0.9] * 20, [True] * 20, 0.95)  # 0.95 ** 20 = 0.36
    assert below > 1
    assert count == 0
    assert abstention([0.9] * 60, [True] * 60, 0.95) == (0.9, 60)
    # Equal confidences are not divided.
    assert abstention([0.9] * 60 + [0.8] * 60, [True] * 60 + [False] * 60, 0.9) == (0.9, 60)
