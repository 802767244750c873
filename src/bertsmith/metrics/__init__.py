"""Metrics, intervals and significance tests: functions of lists, tested against references."""

from bertsmith.metrics.answers import AnswerScores, answer_scores, best_threshold
from bertsmith.metrics.calibration import Calibration, calibration
from bertsmith.metrics.entities import EntityScores, entity_scores
from bertsmith.metrics.intervals import Summary, bootstrap, bounds, over_seeds, resample
from bertsmith.metrics.labels import (
    accuracy,
    confusion,
    exact_match,
    f1,
    mcc,
    multilabel_f1,
    per_label,
)
from bertsmith.metrics.multi import MultiBootstrap, holm, multi_bootstrap
from bertsmith.metrics.numbers import pearson, spearman
from bertsmith.metrics.paired import (
    Comparison,
    mcnemar,
    paired_bootstrap,
    permutation,
    resample_pair,
)

__all__ = ["AnswerScores", "Calibration", "Comparison", "EntityScores", "Summary", "accuracy"]
__all__ += ["answer_scores", "best_threshold", "bootstrap", "bounds", "calibration", "confusion"]
__all__ += ["entity_scores", "exact_match", "f1", "mcc", "mcnemar", "multilabel_f1", "over_seeds"]
__all__ += ["paired_bootstrap", "pearson", "per_label", "permutation", "resample"]
__all__ += ["MultiBootstrap", "holm", "multi_bootstrap", "resample_pair", "spearman"]
