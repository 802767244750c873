"""Multi-Bootstrap: scores of training procedures, over pre-training seeds × test examples.

Sellam et al. 2022 (MultiBERTs). Examples are resampled, together for all procedures. Seeds are too
few for that: of 2, an interval of 95% would cover the truth in 79% of studies. The deviation of
their mean is drawn from Student's t distribution, for each procedure.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.metrics.intervals import drawn_weights, percentiles
from bertsmith.metrics.labels import Weights
from bertsmith.metrics.paired import Comparison, compared

Array = NDArray[np.float64]
Score = Callable[[Weights], float]  # of one pre-trained model, by how often examples count
POWER = 0.84  # standard normal quantile: found in 80 % of studies


@dataclass(frozen=True)
class MultiBootstrap:
    """Scores of several procedures with their bootstrap distributions."""

    scores: dict[str, float]  # the mean over seeds
    draws: dict[str, Array]  # of seeds and examples
    example_draws: dict[str, Array]  # of examples alone
    deviations: dict[str, float]  # over seeds; 0 of one seed
    seeds: dict[str, int]
    length: int  # examples

    def interval(self, name: str, confidence: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval of a procedure's score."""
        return percentiles(self.draws[name], confidence, self.length)

    def compare(self, first: str, second: str, confidence: float = 0.95) -> Comparison:
        """Return the difference between two procedures, with a two-sided p-value."""
        leads = self.draws[second] - self.draws[first]
        lead = self.scores[second] - self.scores[first]
        return compared(lead, leads[np.isfinite(leads)], confidence, self.length)

    def seeds_needed(self, first: str, second: str, level: float = 0.05) -> float:
        """Return the seeds per procedure that would detect the lead in 80 % of studies.

        `level` is the p-value of a detection. Infinite: the test set is too small.
        """
        lead = abs(self.scores[second] - self.scores[first])
        of_examples = float(np.nanvar(self.example_draws[second] - self.example_draws[first]))
        of_seeds = self.deviations[first] ** 2 + self.deviations[second] ** 2
        detected = NormalDist().inv_cdf(1 - level / 2)
        allowed = (lead / (detected + POWER)) ** 2 - of_examples
        if allowed <= 0:
            return math.inf
        return max(2.0, math.ceil(of_seeds / allowed))


def multi_bootstrap(
    procedures: Mapping[str, Sequence[Score]], length: int, *, draws: int = 1000, seed: int = 0
) -> MultiBootstrap:
    """Resample test examples with replacement, and draw the deviation of the seeds' mean.

    `procedures` have a score function for each pre-training seed. With one seed only examples are
    resampled.
    """
    if not procedures or not all(procedures.values()):
        raise BertsmithError("a Multi-Bootstrap needs at least one seed of each procedure")
    everything = np.ones(length)
    values = {n: np.asarray([s(everything) for s in scores]) for n, scores in procedures.items()}
    random = np.random.default_rng([seed, 1])
    drawn: dict[str, list[float]] = {name: [] for name in procedures}
    examples: dict[str, list[float]] = {name: [] for name in procedures}
    for weights in drawn_weights(length, draws, seed):
        for name, scores in procedures.items():
            row = np.asarray([score(weights) for score in scores])
            mean, count = float(row.mean()), len(row)
            examples[name].append(mean)
            if count > 1:
                error = float(row.std(ddof=1)) / math.sqrt(count)
                mean += error * random.standard_t(count - 1)
            drawn[name].append(mean)
    return MultiBootstrap(
        {name: float(row.mean()) for name, row in values.items()},
        {name: np.asarray(row) for name, row in drawn.items()},
        {name: np.asarray(row) for name, row in examples.items()},
        {n: float(row.std(ddof=1)) if len(row) > 1 else 0.0 for n, row in values.items()},
        {name: len(row) for name, row in values.items()},
        length,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons with Holm's step-down method."""
    count, highest = len(p_values), 0.0
    corrected = [1.0] * count
    for rank, place in enumerate(sorted(range(count), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (count - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
