"""A task is one value: a new one is trained, scored, displayed and described without other code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.data.tables import Where
from bertsmith.finetuning import Splits, finetune
from bertsmith.metrics.labels import weighted_mean
from bertsmith.tasks import registry
from bertsmith.tasks.cells import TextReading
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.classifying import vote
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate, interval
from bertsmith.tasks.labels import LabelTask, LabelTraining, texts_of
from bertsmith.tasks.reading import readings
from bertsmith.tasks.registry import TASKS, task_of
from bertsmith.tasks.task import Prediction, Scorer, Task
from bertsmith.tasks.training import TASK_OPTIONS, item_weights
from finetuning.conftest import FAST, texts
from tasks.models import Maker


class YesNoTraining(LabelTraining):
    problem = "yes_or_no"

    def config_changes(self) -> dict[str, Any]:
        return {**super().config_changes(), "num_labels": 1, "id2label": {"0": "yes"}}

    def target(self, example: Any) -> float:
        return float(example.label == "city")

    def targets(self, items: Sequence[Any]) -> dict[str, torch.Tensor]:
        yes = torch.tensor([item.target for item in items])
        return {"yes": yes, "weights": item_weights(items)}

    def loss(self, outputs: Any, batch: Any, targets: dict[str, torch.Tensor]) -> torch.Tensor:
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        loss = bce(outputs[:, 0], targets["yes"], reduction="none")
        return (loss * targets["weights"]).sum()


class YesNoReading(TextReading):
    name, order, about = "yes-no", 80, "is it a city?"


class YesNoTask(LabelTask):
    reading, usage, kinds = YesNoReading(), "classify('A text.')", (Labelled,)

    def fits(self, checkpoint: Any) -> bool:
        return bool(checkpoint.settings.get("problem_type") == "yes_or_no")

    def training(self, dataset: Any, options: Any) -> YesNoTraining:
        return YesNoTraining(dataset, options)

    def predict(self, bert: Any, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        rows = vote(bert, *texts_of(examples), torch.sigmoid)
        answers = [("city" if row[0] > 0.5 else "thing", max(row[0], 1 - row[0])) for row in rows]
        return [Prediction(label, sure, {"answer": label}) for label, sure in answers]

    def metrics(self, dataset: Any) -> tuple[str, ...]:
        return ("agreement",)

    def label_of(self, example: Any) -> Any:
        return example.label

    def scorer(self, dataset: Any, predictions: Sequence[Prediction], bert: Any = None) -> Scorer:
        pairs = zip(dataset.examples, predictions, strict=True)
        right = [example.label == one.value for example, one in pairs]
        return lambda weights: {"agreement": weighted_mean(right, weights)}


def test_a_new_task_is_one_value(
    made: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TASKS", {"yes-no": YesNoTask(), **TASKS})
    monkeypatch.setitem(readings(), "yes-no", YesNoTask.reading)
    rows = [
        Labelled(text, None, label, Where("rows", n)) for n, (text, label) in enumerate(texts())
    ]
    data = Dataset(Path("rows"), "yes-no", rows)
    folder = made("bert", "Model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).folder
    result = finetune(folder, Splits(data, data), tmp_path / "model", device="cpu", **FAST)
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert report["task"] == "yes-no"
    assert report["scores"]["dev"]["agreement"] == 1.0
    assert "is it a city?" in (tmp_path / "model" / "README.md").read_text("utf-8")
    assert task_of(result.kept.bert).name == "yes-no"
    scored = evaluate(result.kept.bert, data)
    assert 0.8 < interval(scored, "agreement", 20).low < 1.0  # all of 48


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_task_says_what_it_is(task: Task) -> None:
    assert task.about
    assert task.options <= set(TASK_OPTIONS)
    assert task.kinds
    assert "(" in task.usage
