"""Fine-tuning: a data file → a model directory that predicts, with a report.

finetune("bert-base-uncased", "reviews.csv", "model")     # guesses the task, holds out 10 %
"""

from bertsmith.data import Splits, read_splits, split_off
from bertsmith.finetune.result import Result, Run
from bertsmith.finetune.run import finetune
from bertsmith.finetune.settings import Settings, settings_for
from bertsmith.finetune.work import Interrupted

__all__ = ["Interrupted", "Result", "Run", "Settings", "Splits", "finetune", "read_splits"]
__all__ += ["settings_for", "split_off"]
