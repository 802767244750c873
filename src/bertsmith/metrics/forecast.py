"""Learning curves: a power law through scores at growing sizes, with its own uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError

Array = NDArray[np.float64]
DRAWS = 4000  # of the curve
EXPONENTS = np.geomspace(0.05, 2.0, 40)  # how fast the error falls
FLOORS = np.linspace(0.0, 0.98, 40)  # the share of the error that more labels never remove
LIKELY, SPREAD = 0.5, 0.7  # the exponent before any data is seen: a log-normal prior
# How far real curves leave a power law, as standard deviations for every factor of e: of the
# logarithm of the gain beyond the largest size, and of scores at smaller sizes as a part of the
# error. Chosen on CoLA and IMDb, which no forecast is reported on.
MISFIT, BENT = 0.1, 0.1


@dataclass(frozen=True)
class Between:
    """An estimate with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """Draws of error(n) = error(base) * (floor + (1 - floor) * (n / base) ** -exponent)."""

    base: float  # a number of labels
    best: float  # the score without an error
    errors: Array
    floors: Array
    exponents: Array
    misfits: Array  # of the logarithm of the part that falls, for every factor of e
    noise: float  # standard deviation of the score of one model at `base`, over draws of its labels
    confidence: float

    def _at(self, count: float) -> Array:
        growth = math.log(count / self.base)
        fall = np.exp(-self.exponents * growth + self.misfits * abs(growth))
        return self.best - self.errors * (self.floors + (1 - self.floors) * fall)

    def score(self, count: float) -> Between:
        """The score that a model of this many labels will have."""
        draws = self._at(count)
        noise = self.noise * min(1.0, math.sqrt(self.base / count))
        draws = draws + noise * np.random.default_rng(1).standard_normal(len(draws))
        return self._between(np.minimum(draws, self.best))

    def gain(self, count: float, more: float) -> Between:
        """What `more` labels add to the mean score of models of `count` labels."""
        return self._between(self._at(count + more) - self._at(count))

    def labels_for(self, score: float) -> Between:
        """How many labels a score takes; infinite where it is never reached."""
        room = (self.best - score) / self.errors - self.floors
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = (1 - self.floors) / room
            counts = np.where(room > 0, self.base * ratio ** (1 / self.exponents), np.inf)
        return self._between(counts, "lower")

    @property
    def exponent(self) -> float:
        """How fast the error falls: its median."""
        return float(np.median(self.exponents))

    @property
    def limit(self) -> Between:
        """The score that no number of labels exceeds, by this law."""
        return self._between(self.best - self.errors * self.floors)

    def _between(self, draws: Array, method: str = "linear") -> Between:
        side = (1 - self.confidence) / 2
        values = np.quantile(draws, [0.5, side, 1 - side], method=method)  # type: ignore[call-overload]
        middle, low, high = values.tolist()
        return Between(middle, low, high)


def forecast(
    sizes: Sequence[float],
    scores: Sequence[float],
    covariance: Array,
    *,
    best: float = 1.0,
    noise: float = 0.0,
    confidence: float = 0.9,
    seed: int = 0,
) -> Forecast:
    """Fit a power law to scores at several numbers of labels, and draw from its posterior.

    `covariance` (S, S) is that of the scores: those at different sizes come from the same examples,
    so that their errors move together. On a grid of floors and exponents the error at the largest
    size has a normal posterior in closed form.
    """
    if len(sizes) < 3 or len(sizes) != len(scores):
        raise BertsmithError("a learning curve needs scores at three sizes or more")
    if not 0 < confidence < 1:
        raise BertsmithError(f"confidence must be between 0 and 1, not {confidence}")
    base = float(max(sizes))
    error = best - np.asarray(scores, dtype=np.float64)
    growth = np.log(np.asarray(sizes, dtype=np.float64) / base)
    bent = (BENT * error * growth) ** 2  # far from the largest size, a law counts less
    inverse = np.linalg.inv(covariance + np.diag(bent + 1e-8))
    floors, exponents = (one.ravel() for one in np.meshgrid(FLOORS, EXPONENTS, indexing="ij"))
    shapes = floors[:, None] + (1 - floors[:, None]) * np.exp(-exponents[:, None] * growth)
    precision = np.einsum("gs,st,gt->g", shapes, inverse, shapes)
    means = shapes @ inverse @ error / precision
    prior = -0.5 * (np.log(exponents / LIKELY) / SPREAD) ** 2
    logs = 0.5 * precision * means**2 - 0.5 * np.log(precision) + prior
    chances = np.exp(logs - logs.max()) * (means > 0)
    if not chances.sum() > 0:
        raise BertsmithError("no power law fits these scores")
    random = np.random.default_rng(seed)
    picks = random.choice(len(floors), DRAWS, p=chances / chances.sum())
    drawn = means[picks] + random.standard_normal(DRAWS) / np.sqrt(precision[picks])
    misfits = MISFIT * random.standard_normal(DRAWS)
    curves = np.maximum(drawn, 1e-6), floors[picks], exponents[picks], misfits
    return Forecast(base, best, *curves, noise, confidence)
