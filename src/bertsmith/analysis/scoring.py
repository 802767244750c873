"""Scores of a model on a data file of its own task, for ablation."""

from __future__ import annotations

from typing import Any

from bertsmith.analysis.ablation import Material, labelled
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.windows import Window
from bertsmith.tasks.classification.task import TASK as CLASSIFICATION
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate


def scores(bert: LoadedModel, dataset: Dataset[Any]) -> dict[str, float]:
    """Every score that the task has, over all gold."""
    found = evaluate(bert, dataset).scores
    return {name: value for name, value in found.items() if name != "count"}


def material(bert: LoadedModel, dataset: Dataset[Any]) -> Material:
    """The examples of a file of classes, with the loss of telling them."""
    if dataset.task != CLASSIFICATION.name:
        raise BertsmithError(
            f"gradients rank heads for {CLASSIFICATION.name} only, not for {dataset.task}: add"
            " --alone"
        )
    rows = dataset.gold()
    pairs = [one.pair for one in rows] if rows and rows[0].pair is not None else None
    return labelled(bert, [one.text for one in rows], [one.label for one in rows], pairs)


def windows(bert: LoadedModel, dataset: Dataset[Any]) -> list[Window]:
    """All that a model reads of a file: texts, or a first text with each of the others."""
    found = []
    for example in dataset.examples:
        first, *others = example.texts
        found += bert.windows([first] * max(1, len(others)), others or None)
    return found
