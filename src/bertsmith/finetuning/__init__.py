"""Fine-tuning: a data file → a model directory that predicts, with a report.

bertsmith.finetune("bert-base-uncased", "reviews.csv", "model")   # guesses the task
"""

from bertsmith.finetuning.frozen import CrossFit, FastLearner, FrozenEncoder
from bertsmith.finetuning.result import FinetuningResult, TrainingRun
from bertsmith.finetuning.run import finetune
from bertsmith.finetuning.settings import RunSettings, settings_for
from bertsmith.finetuning.work import Interrupted
from bertsmith.tasks.splits import Splits, read_splits, split_off

__all__ = ["CrossFit", "FastLearner", "FinetuningResult", "FrozenEncoder", "Interrupted"]
__all__ += ["RunSettings", "Splits", "TrainingRun", "finetune", "read_splits"]
__all__ += ["settings_for", "split_off"]
