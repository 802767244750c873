"""Learning curves: measured by cross-validation, forecast, shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data
from bertsmith.tasks.task import Prediction
from label.test_errors import rows


def lucky(dataset: Dataset[Any]) -> Callable[[Sequence[Any]], list[Prediction]]:
    """A learner whose error is 1 / sqrt(labels), whatever it learns from."""
    chance = 1 - len(dataset) ** -0.5

    def predict(examples: Sequence[Any]) -> list[Prediction]:
        random = np.random.default_rng(len(dataset))
        right = random.random(len(examples)) < chance
        other = {"city": "food", "food": "city"}
        return [
            Prediction(one.label if yes else other[one.label], 1.0)
            for one, yes in zip(examples, right, strict=True)
        ]

    return predict


def test_a_known_law_is_forecast() -> None:
    data = read_data(rows(1200))
    curve = bs.learning_curve("any", data, learn=lucky, more=[1200], target=0.985)
    assert [one.labels for one in curve.points] == sorted(one.labels for one in curve.points)
    assert curve.points[-1].labels == 960
    said = curve.score(4800)
    assert said.low <= 1 - 4800**-0.5 <= said.high
    gain = curve.gain(1200)
    assert gain.low <= 1200**-0.5 - 2400**-0.5 <= gain.high
    content = curve.to_dict()
    assert json.loads(json.dumps(content))["more"][0]["labels"] == 1200
    assert content["target"]["labels"]["low"] < content["target"]["labels"]["value"]
    assert any(line.startswith("1,200 more labels: +") for line in curve.lines())


def test_a_real_curve(tmp_path: Path) -> None:
    curve = bs.learning_curve("bertsmith-embed", rows(80), repeats=1, device="cpu")
    assert curve.metric == "accuracy"
    assert curve.labels == 80
    assert all(one.high <= 1 for one in (*curve.points, curve.score(80)))
    assert {one.name for one in curve.classes} == {"city", "food"}
    curve.save(tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert "How many more labels?" in page
    assert "<svg" in page
    assert curve._repr_html_()


def test_bad_input() -> None:
    with pytest.raises(BertsmithError, match="needs 40 labelled rows"):
        bs.learning_curve("bertsmith-embed", rows(20))
    with pytest.raises(BertsmithError, match="target must be a score"):
        bs.learning_curve("bertsmith-embed", rows(80), target=90)
    with pytest.raises(BertsmithError, match="numbers of labels from 1"):
        bs.learning_curve("bertsmith-embed", rows(80), more=[0])
    with pytest.raises(BertsmithError, match="unknown score 'bogus'; available: accuracy"):
        bs.learning_curve("any", rows(80), learn=lucky, metric="bogus")
