"""`bertsmith.pretrain`: pre-training as a Python function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bertsmith as bs


def test_pretrain_returns_its_model_and_summary(prepared: Path, tmp_path: Path) -> None:
    changes = {
        "train.steps": 2,
        "train.batch_tokens": 256,
        "train.micro_tokens": 256,
        "data.length": 32,
        "evaluate.tokens": 256,
        "model.settings.hidden_size": 32,
    }
    run = bs.pretrain(
        "tiny-bert", data=prepared, out=tmp_path / "run", changes=changes, show="none"
    )
    assert run.model.fill_mask("the [MASK] statement", top=2)
    assert json.loads(json.dumps(run.to_dict()))["finished"]
    assert repr(run) == f"<pre-training finished, in {tmp_path / 'run'}>"
    with pytest.raises(bs.BertsmithError, match="resume"):
        bs.pretrain("tiny-bert", data=prepared, out=tmp_path / "run", changes=changes, show="none")
    with pytest.raises(bs.BertsmithError, match="did you mean"):
        bs.pretrain("tiny-bert", data=prepared, out=tmp_path / "b", changes={"train.stepz": 3})
