"""Trainings that a test runs step by step."""

from __future__ import annotations

from typing import Any

from bertsmith.tasks.registry import task_named
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.recipe import TrainPart


def training_of(dataset: Any, settings: Any) -> Any:
    return task_named(dataset.task).training(dataset, settings)


def groups(model: Any, layer_decay: float) -> list[dict[str, Any]]:
    train = TrainPart(learning_rate=1.0, weight_decay=0.01, layer_decay=layer_decay)
    (adamw,) = optimizer_for(model, train).optimizers
    return adamw.param_groups
