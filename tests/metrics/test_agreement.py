"""Agreement: a published example, and equality with scikit-learn and with sums written out."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from bertsmith.metrics.agreement import cohen_kappa, krippendorff_alpha

# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", section C: four observers,
# twelve units, values from 1 to 5, some missing.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
UNITS = [[value for value in unit if value is not None] for unit in zip(*OBSERVERS, strict=True)]


def test_alpha_of_the_published_example() -> None:
    assert krippendorff_alpha(UNITS) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(UNITS, interval=True) == pytest.approx(0.849, abs=5e-4)
    assert krippendorff_alpha([[str(one) for one in unit] for unit in UNITS]) == pytest.approx(
        krippendorff_alpha(UNITS)
    )


def test_alpha_by_all_pairs_of_values() -> None:
    draws = np.random.default_rng(0)
    units = [list(draws.integers(0, 4, draws.integers(1, 5))) for _ in range(60)]
    shared = [unit for unit in units if len(unit) > 1]
    values = [value for unit in shared for value in unit]
    inside = sum(
        float(a != b) / (len(unit) - 1)
        for unit in shared
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    ) / len(values)
    among = sum(float(a != b) for i, a in enumerate(values) for j, b in enumerate(values) if i != j)
    expected = 1 - inside / (among / len(values) / (len(values) - 1))
    assert krippendorff_alpha(units) == pytest.approx(expected)


def test_kappa_equals_scikit_learn() -> None:
    draws = np.random.default_rng(1)
    for _ in range(5):
        one, other = (list(draws.choice(["a", "b", "c"], 40)) for _ in range(2))
        assert cohen_kappa(one, other) == pytest.approx(cohen_kappa_score(one, other))


def test_agreement_that_is_not_defined() -> None:
    assert krippendorff_alpha([["a"], ["b"]]) is None  # nobody labelled a text twice
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None  # all values are equal
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1.0
    assert cohen_kappa([], []) is None
    assert cohen_kappa(["a", "a"], ["a", "a"]) is None
