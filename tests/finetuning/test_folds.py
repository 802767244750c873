"""Cross-validation: every row is scored once, and the model learns from all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith import BertsmithError, load
from bertsmith.finetuning import finetune
from bertsmith.metrics import bounds, over_seeds
from finetuning.conftest import Write, labelled
from tasks.models import Maker

FEW = {"epochs": 2, "learning_rate": 3e-3, "batch_size": 8, "device": "cpu"}


def test_every_row_is_scored_once(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [*labelled(48), {"text": "the only one of its kind", "label": "rare"}]
    file, out = write("t.jsonl", rows), tmp_path / "out"
    result = finetune(base().folder, file, out, folds=4, coverage=0.8, **FEW)
    report = json.loads((out / "report.json").read_text())
    assert len(result.folds) == len(report["folds"]) == 4
    assert sum(fold["count"] for fold in report["folds"]) == 48  # the rare label is never held out
    assert any(
        "rows in no fold, since no other has their label: 1" in note for note in result.notes
    )
    expected = over_seeds([fold["accuracy"] for fold in report["folds"]], bounds=bounds("accuracy"))
    assert report["over_seeds"]["dev"]["mean"] == pytest.approx(expected.mean)
    assert report["over_seeds"]["dev"]["low"] == pytest.approx(expected.low, nan_ok=True)
    assert report["files"]["train"]["examples"] == 49
    assert report["calibration"]["kept_apart"] == 48
    assert "4 folds" in (out / "report.html").read_text()
    bert = load(out, device="cpu")
    assert set(bert.checkpoint.labels) == {"city", "thing", "rare"}
    assert bert.checkpoint.settings["conformal"]["coverage"] == 0.8


def test_what_folds_cannot_do(base: Maker, write: Write) -> None:
    file = write("t.jsonl", labelled(24))
    for more, what in (
        ({"seeds": 2}, "cannot be combined with seeds"),
        ({"sweep": True, "hold_out": 0.2}, "a sweep needs a dev file"),
        ({"calibrate": True}, "cannot be combined with calibrate"),
        ({"dev": file}, "leave out the dev file"),
    ):
        with pytest.raises(BertsmithError, match=what):
            finetune(base().folder, file, folds=3, **FEW, **more)
    with pytest.raises(BertsmithError, match="folds"):
        finetune(base().folder, file, folds=101, **FEW)
