"""What is written is whole, is what was meant, and is opened by others."""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from bertsmith.checkpoint import create, read, write
from bertsmith.errors import BertsmithError
from checkpoint.folders import SIZES, TINY, make, settings
from checkpoint.test_read import assert_same, values


@pytest.mark.parametrize("kind", TINY)
def test_round_trip_with_several_heads(kind: str, good: dict[str, Path], tmp_path: Path) -> None:
    found = read(good[kind])
    assert set(found.entries) >= set(TINY[kind][1])
    assert found.report.unused == found.report.new == found.report.absent == ()
    write(found, tmp_path)
    assert_same(read(tmp_path), found)
    before, after = (load_file(folder / "model.safetensors") for folder in (good[kind], tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    names = ["bertsmith.json", "config.json"]
    assert all((good[kind] / name).read_text() == (tmp_path / name).read_text() for name in names)


def test_every_file_is_there_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["bertsmith.json", "config.json", "model.safetensors"]
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o666 & ~umask()}


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_written_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    made = create({"model_type": "bert", **SIZES})
    write(made, tmp_path, dtype)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    assert f"torch.{json.loads((tmp_path / 'config.json').read_text())['dtype']}" == str(dtype)
    assert all(p.dtype == torch.float32 for p in made.model.parameters())  # ours are as they were


def test_unknown_keys_survive(tmp_path: Path) -> None:
    make(tmp_path)
    extra = {"mine": {"deep": [1, 2.5, None, "é\u2028"]}, "problem_type": "x", "null": None}
    settings(tmp_path, **extra)
    write(read(tmp_path), tmp_path / "again")
    stored = json.loads((tmp_path / "again" / "config.json").read_text("utf-8"))
    assert {key: stored[key] for key in extra} == extra


def test_settings_of_a_head_are_stored(tmp_path: Path) -> None:
    labels = {0: "no", 1: "yes", 2: "perhaps"}
    make(tmp_path, "bert", ("masked_lm",))
    write(read(tmp_path, new=("classify",), settings={"id2label": labels}), tmp_path)
    assert read(tmp_path).labels == ["no", "yes", "perhaps"]


def test_two_heads_in_one_place(tmp_path: Path) -> None:
    made = create({"model_type": "bert", **SIZES}, heads=("classify", "tag"))
    with pytest.raises(BertsmithError, match=r"classifier\.weight"):
        write(made, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ when it fails


def refused(checkpoint: Any, folder: Path) -> None:
    with pytest.raises(BertsmithError) as caught:
        write(checkpoint, folder)
    assert str(folder) in str(caught.value)
    assert "None" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_over_itself(tmp_path: Path) -> None:
    """A model that came from a directory may go back to it."""
    make(tmp_path)
    found = read(tmp_path)
    with torch.no_grad():
        for parameter in found.model.parameters():
            parameter += 1
    write(found, tmp_path)
    assert_same(read(tmp_path), found)


FULL = [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error:\nfull")]


@pytest.mark.parametrize("error", FULL, ids=["plain", "safetensors"])
def test_a_full_disk_leaves_the_old_model(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(tensors: Any, path: Path, **options: Any) -> None:
        Path(path).write_bytes(b"half a file")
        raise error

    monkeypatch.setattr(sys.modules["bertsmith.checkpoint.write"], "save_file", half)
    refused(create({"model_type": "bert", **SIZES}, seed=9), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_real_limit_leaves_the_old_model(tmp_path: Path) -> None:
    """The system itself stops the writing, halfway through the weights."""
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = create({"model_type": "bert", **SIZES}, seed=9)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        refused(made, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_places_that_cannot_be(tmp_path: Path) -> None:
    made = create({"model_type": "bert", **SIZES})
    (tmp_path / "file").write_text("kept")
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        refused(made, place)
    assert (tmp_path / "file").read_text() == "kept"
    (tmp_path / "model.safetensors").mkdir()
    refused(made, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused(create({"model_type": "bert", **SIZES}), tmp_path)


def test_settings_that_are_not_json(tmp_path: Path) -> None:
    refused(create({"model_type": "bert", **SIZES, "mine": torch.float32}), tmp_path)
    assert not (tmp_path / "config.json").exists()


# ------------------------------------------------------------------ others open it


@pytest.mark.parametrize(
    ("kind", "head", "name"),
    [
        ("bert", "masked_lm", "BertForMaskedLM"),
        ("albert", "classify", "AlbertForSequenceClassification"),
        ("distilbert", "answer", "DistilBertForQuestionAnswering"),
        ("deberta-v2", "tag", "DebertaV2ForTokenClassification"),
        ("modernbert", "masked_lm", "ModernBertForMaskedLM"),
    ],
)
def test_transformers_opens_a_fresh_model(kind: str, head: str, name: str, tmp_path: Path) -> None:
    made = create({"model_type": kind, **TINY[kind][0]}, heads=(head,))
    write(made, tmp_path)
    model, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    theirs = sum(parameter.numel() for parameter in model.parameters())
    assert theirs == sum(parameter.numel() for parameter in values(made).values())


def test_transformers_opens_a_model_with_heads_of_several_classes(good: dict[str, Path]) -> None:
    for name in ("BertForPreTraining", "BertForTokenClassification", "BertForQuestionAnswering"):
        _, info = getattr(transformers, name).from_pretrained(
            good["bert"], output_loading_info=True
        )
        assert not info["missing_keys"]
