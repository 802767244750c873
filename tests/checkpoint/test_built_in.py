"""Models that come with the package: where they are found, and as what they are read."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bertsmith as bs
from bertsmith.checkpoint import built_in, convert, locate, read
from bertsmith.errors import BertsmithError

ROOT = Path(__file__).resolve().parents[2]
NAME = "bertsmith-small"


def test_the_package_has_models() -> None:
    assert [*built_in()] == ["bertsmith-classic", "bertsmith-embed", NAME]
    assert built_in()[NAME] == ROOT / "src" / "bertsmith" / "models" / NAME


def test_they_are_found_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # importing it fails
    assert locate(NAME) == built_in()[NAME]
    with pytest.raises(ImportError):
        locate("no-such-model")


def test_a_model_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate(NAME) == built_in()[NAME]
    (tmp_path / NAME).mkdir()
    assert locate(NAME) == built_in()[NAME]  # it is no model
    (tmp_path / NAME / "config.json").touch()
    assert locate(NAME).resolve() == tmp_path / NAME


@pytest.mark.parametrize("path", [Path(NAME), f"./{NAME}", f"somewhere/else/{NAME}"])
def test_a_path_is_no_name(path: str | Path) -> None:
    with pytest.raises(BertsmithError, match="no such directory"):
        locate(path)


def test_they_are_stored_in_half_precision_and_read_in_single() -> None:
    stored = dict(read(locate(NAME), dtype=None).model.named_parameters())
    for name, parameter in bs.load(NAME, device="cpu").model.named_parameters():
        assert (stored[name].dtype, parameter.dtype) == (torch.float16, torch.float32)
        assert torch.equal(stored[name].float(), parameter)
    asked = bs.load(NAME, device="cpu", dtype="bfloat16").model.parameters()
    assert {parameter.dtype for parameter in asked} == {torch.bfloat16}


def test_nothing_of_them_is_unused_or_new() -> None:
    report = read(locate(NAME)).report
    assert (report.unused, report.new, report.absent) == ((), (), ())


def test_convert_makes_such_a_directory(tmp_path: Path) -> None:
    """`bertsmith convert RUN/model src/bertsmith/models/NAME --dtype float16` made it."""
    bs.load(NAME, device="cpu").save(tmp_path / "single")
    done = convert(tmp_path / "single", tmp_path / "half", dtype=torch.float16)
    assert (done["dtype"], done["largest_difference"]) == ("float16", 0.0)
    folders = (locate(NAME), tmp_path / "half")
    ours, again = (load_file(folder / "model.safetensors") for folder in folders)
    assert ours.keys() == again.keys()
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in folders)
    assert before == after
