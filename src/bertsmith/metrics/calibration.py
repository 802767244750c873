"""Expected calibration error and its bins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import paired


@dataclass(frozen=True)
class Bin:
    """Predictions of about one confidence: in (low, high]."""

    low: float
    high: float
    count: int
    confidence: float  # their mean
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The gap between confidence and accuracy: weighted mean (ECE) and worst bin (MCE)."""

    expected: float
    worst: float
    bins: tuple[Bin, ...]  # those with predictions in them


def calibration_error(
    confidences: NDArray[Any], correct: NDArray[Any], weights: NDArray[Any] | None, bins: int = 15
) -> float:
    """The expected calibration error alone, of examples that count by their weights."""
    counts = np.ones(len(confidences)) if weights is None else weights
    places = _places(confidences, bins)
    gaps = np.bincount(places, counts * (confidences - correct), bins)
    return float(np.abs(gaps).sum() / counts.sum())


def calibration(
    confidences: Sequence[float], correct: Sequence[bool], bins: int = 15
) -> Calibration:
    """Compare the confidence of predictions with their accuracy, in bins of equal width."""
    paired(confidences, correct)
    if bins < 1:
        raise BertsmithError(f"bins must be at least 1, not {bins}")
    sure, right = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if not ((sure >= 0) & (sure <= 1)).all():
        raise BertsmithError("confidences must be probabilities from 0 to 1")
    edges, places = np.linspace(0, 1, bins + 1).tolist(), _places(sure, bins)
    occupied = []
    for place in np.unique(places).tolist():
        here = places == place
        means = float(sure[here].mean()), float(right[here].mean())
        occupied.append(Bin(edges[place], edges[place + 1], int(here.sum()), *means))
    gaps = [abs(one.confidence - one.accuracy) for one in occupied]
    weighted = sum(gap * one.count for gap, one in zip(gaps, occupied, strict=True))
    return Calibration(weighted / len(sure), max(gaps), tuple(occupied))


def _places(confidences: NDArray[Any], bins: int) -> NDArray[np.int64]:
    edges = np.linspace(0, 1, bins + 1)
    return np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, bins - 1)
