"""Commands as Python functions: `bertsmith.finetune`, `evaluate` and `predict`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import bertsmith as bs
from finetuning.conftest import labelled
from tasks.models import Made


def test_finetune_evaluate_predict(made: Callable[..., Made], tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in labelled(24)))
    result = bs.finetune(made("bert", "Model").folder, file, dev=file, epochs=1, device="cpu")
    assert result.model.classify("Paris").label in ("city", "thing")
    assert result.model.classify("Paris").to_dict().keys() == {"label", "score", "scores"}
    assert json.loads(json.dumps(result.to_dict()))["task"] == "classification"
    assert "classification: accuracy dev" in repr(result)
    scores = bs.evaluate(result.model, file)
    assert scores.scores == result.kept.scores["dev"]
    assert json.loads(json.dumps(scores.to_dict()))["details"]["confusion"]["labels"]
    assert "on 24 examples" in repr(scores)
    with pytest.raises(bs.BertsmithError, match="unknown score 'bogus'; available: accuracy"):
        bs.evaluate(result.model, file, metric="bogus")
    for text in ("Paris is a city", "Paris is a city. " * 100):
        with pytest.raises(bs.BertsmithError, match="no such file; texts are given as a list"):
            bs.predict(result.model, text)
    assert list(inspect.signature(bs.finetune).parameters)[:3] == ["model", "data", "out"]
    rows = bs.predict(result.model, ["Paris", "bees"])
    assert [row["label"] in ("city", "thing") for row in rows] == [True, True]
