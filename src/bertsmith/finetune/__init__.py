"""Fine-tuning: a data file → a model directory that predicts, with a report.

finetune("bert-base-uncased", "reviews.csv", "model")     # guesses the task, holds out 10 %
"""

from bertsmith.data import Splits, read_splits, split_off
from bertsmith.finetune.opening import check_out
from bertsmith.finetune.run import Result, Run, finetune
from bertsmith.finetune.settings import Settings, settings_for

__all__ = ["Result", "Run", "Settings", "Splits", "check_out", "finetune", "read_splits"]
__all__ += ["settings_for", "split_off"]
