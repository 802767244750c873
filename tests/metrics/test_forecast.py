"""Forecasts: known power laws are found again, and intervals hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.metrics.forecast import forecast

SIZES = [20, 40, 80, 160, 320, 640]


def law(count: float, floor: float = 0.1, exponent: float = 0.5) -> float:
    return 1 - (floor + 0.8 * (count / 20) ** -exponent)


def test_an_exact_law_is_found() -> None:
    fit = forecast(SIZES, [law(one) for one in SIZES], np.eye(6) * 1e-6)
    assert fit.score(2560).value == pytest.approx(law(2560), abs=0.02)
    gain = fit.gain(640, 640)
    assert gain.low < law(1280) - law(640) < gain.high
    assert 0 < gain.low < gain.value < gain.high
    wanted = fit.labels_for(law(1280))
    assert wanted.low < 1280 < wanted.high
    assert fit.labels_for(0.9999).high == math.inf
    assert fit.labels_for(law(640)).value == pytest.approx(640, rel=0.15)


def test_intervals_hold_the_true_score() -> None:
    """Rows are shared by all sizes, so that the errors of scores move together."""
    random, inside, gains = np.random.default_rng(0), 0, 0
    covariance = 0.0004 * (0.7 + 0.3 * np.eye(6))
    for _ in range(200):
        floor, exponent = random.uniform(0, 0.15), random.uniform(0.2, 0.8)
        exact = np.array([law(one, floor, exponent) for one in SIZES])
        fit = forecast(SIZES, random.multivariate_normal(exact, covariance).tolist(), covariance)
        true = law(3200, floor, exponent)
        said, gain = fit.score(3200), fit.gain(640, 2560)
        inside += said.low <= true <= said.high
        gains += gain.low <= true - exact[-1] <= gain.high
    assert inside >= 170
    assert gains >= 170


def test_more_noise_means_wider_intervals() -> None:
    scores = [law(one) for one in SIZES]
    sure, unsure = (forecast(SIZES, scores, np.eye(6) * one).gain(640, 640) for one in (1e-5, 1e-3))
    assert unsure.high - unsure.low > sure.high - sure.low


def test_bad_input() -> None:
    with pytest.raises(BertsmithError, match="three sizes or more"):
        forecast([1, 2], [0.1, 0.2], np.eye(2))
    with pytest.raises(BertsmithError, match="confidence must be between"):
        forecast(SIZES, [0.5] * 6, np.eye(6), confidence=1)
    with pytest.raises(BertsmithError, match="no power law fits"):
        forecast(SIZES, [1.5] * 6, np.eye(6))
