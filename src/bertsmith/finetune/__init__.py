"""Fine-tuning: a data file → a model directory that predicts, with a report.

finetune("bert-base-uncased", "reviews.csv", "model")     # guesses the task, holds out 10 %
"""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from bertsmith.finetune.result import Result, Run
from bertsmith.finetune.run import finetune
from bertsmith.finetune.settings import Settings, settings_for
from bertsmith.finetune.work import Interrupted
from bertsmith.tasks.splits import Splits, read_splits, split_off

__all__ = ["Interrupted", "Result", "Run", "Settings", "Splits", "finetune", "read_splits"]
__all__ += ["settings_for", "split_off"]
__signature__ = signature(finetune)  # shown by editors and notebooks, since the module is callable


class _Callable(ModuleType):
    """Lets `bertsmith.finetune(...)` be the function of the same name in it."""

    def __call__(self, *arguments: Any, **settings: Any) -> Result:
        return finetune(*arguments, **settings)


sys.modules[__name__].__class__ = _Callable
