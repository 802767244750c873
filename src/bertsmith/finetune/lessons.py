"""Which lesson a data set is."""

from __future__ import annotations

from typing import Any

from bertsmith.data import Dataset, Related
from bertsmith.finetune.answering import Answers
from bertsmith.finetune.choosing import Choices
from bertsmith.finetune.labelling import Number, OneLabel, SeveralLabels
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.relating import Contrast, Cosine
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.tagging import Tags

LESSONS: dict[str, type[Lesson]] = {
    "classification": OneLabel,
    "multilabel": SeveralLabels,
    "regression": Number,
    "tagging": Tags,
    "answering": Answers,
    "choice": Choices,
}


def lesson_for(dataset: Dataset[Any], settings: Settings) -> Lesson:
    """The lesson of a training file."""
    if dataset.task == "similarity":
        related = isinstance(dataset.examples[0], Related)
        return (Contrast if related else Cosine)(dataset, settings)
    return LESSONS[dataset.task](dataset, settings)
