"""Checkpoints are whole or not there; damage is found and named."""

import json
import random
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bertsmith.errors import BertsmithError
from bertsmith.train.folder import RunFolder
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.state import Checkpoints, RunProgress, Saved, TensorState
from bertsmith.train.weights import Averages, Best


def tensors(step: int) -> dict[str, Any]:
    return {"model": {"w": torch.full((50, 50), float(step))}, "optimizer": {"w:m": torch.ones(9)}}


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (0, 5, 10, 15):
        checkpoints.save(step, tensors(step), {"step": step})
    assert checkpoints.steps() == [10, 15]
    saved, faults = checkpoints.newest()
    assert saved is not None
    assert not faults
    assert saved.numbers == {"step": 15}
    assert torch.equal(saved.tensors["model"]["w"], torch.full((50, 50), 15.0))


def test_every_flipped_bit_and_cut_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, tensors(5), {"step": 5})
    checkpoints.save(10, tensors(10), {"step": 10})
    draw = random.Random(0)
    files = sorted(path for path in checkpoints.path(10).iterdir())
    for number in range(60):
        file = files[number % len(files)]
        whole = file.read_bytes()
        broken = bytearray(whole)
        if number % 3:
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        else:
            del broken[draw.randrange(len(broken)) :]
        file.write_bytes(broken)
        saved, faults = checkpoints.newest()
        assert saved is not None
        assert saved.numbers["step"] == 5, file
        assert len(faults) == 1
        assert "step-00000010" in faults[0]
        assert "damaged" in faults[0]
        file.write_bytes(whole)
    assert checkpoints.newest()[0].numbers["step"] == 10  # type: ignore[union-attr]


def test_a_full_disk_leaves_the_last_one_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, tensors(5), {"step": 5})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            BertsmithError, match=r"cannot be written .*; the one of step 5 is intact"
        ):
            checkpoints.save(10, tensors(10), {"step": 10})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.steps() == [5]
    assert not list(tmp_path.glob(".writing-*"))
    assert checkpoints.newest()[0] is not None


def test_what_an_interrupted_writer_left_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / ".writing-step-00000007").mkdir(parents=True)
    (tmp_path / "step-0000000x").mkdir()
    assert checkpoints.steps() == []
    assert checkpoints.newest() == (None, [])
    checkpoints.save(8, tensors(8), {"step": 8})
    assert not list(tmp_path.glob(".writing-*"))


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, tensors(5), {"step": 5})
    for name in ("step-²", "step-٣", "step-7", "step-", "step-00000009.bak"):
        (tmp_path / name).mkdir()
    assert checkpoints.steps() == [5]
    assert checkpoints.newest()[1] == []


@pytest.mark.parametrize("manifest", ["[" * 100_000, '{"a":' * 100_000, "{}", "[]", "3", ""])
def test_a_manifest_that_lists_nothing_is_damaged(manifest: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, tensors(5), {"step": 5})
    checkpoints.save(10, tensors(10), {"step": 10})
    (checkpoints.path(10) / "manifest.json").write_text(manifest)
    saved, faults = checkpoints.newest()
    assert saved is not None
    assert saved.numbers == {"step": 5}
    assert len(faults) == 1
    assert "step-00000010: damaged (" in faults[0]
    assert "\n" not in faults[0]


NONE = {"damaged lines of the logs that were dropped": 0}


def test_logs_are_cut_to_a_step(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make("about = 'x'\n")
    for step in range(1, 6):
        folder.log({"step": step, "loss": 1 / step}, {"step": step, "seconds": 1})
    before = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    with (tmp_path / "log.jsonl").open("ab") as stream:
        stream.write(b'{"step": 6, "lo')
    assert folder.cut(RunProgress(step=3, evaluated=0)) == (NONE, [])
    assert (tmp_path / "log.jsonl").read_bytes() == b"".join(before[:3])
    assert len((tmp_path / "timing.jsonl").read_text().splitlines()) == 3
    assert json.loads(before[0])["loss"] == 1.0


def test_an_evaluation_that_a_checkpoint_does_not_know_is_dropped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        folder.log({"step": step, "loss": 1.0}, {"step": step, "seconds": 1})
        folder.log({"step": step, "held_out_loss": 2.0}, {"step": step, "evaluated": True})
    folder.cut(RunProgress(step=2, evaluated=1))
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["step"], "loss" in row) for row in rows] == [(1, True), (1, False), (2, True)]


def test_a_damaged_line_takes_no_others_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        folder.log({"step": step, "loss": 1.0}, {"step": step, "seconds": 1})
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "log.jsonl").write_bytes(lines[0] + b"\0\xff\n" + lines[2])
    assert folder.cut(RunProgress(step=3, evaluated=0))[0] == dict.fromkeys(NONE, 1)
    assert (tmp_path / "log.jsonl").read_bytes() == lines[0] + lines[2]


def test_a_folder_with_a_run_is_not_begun_anew(tmp_path: Path) -> None:
    RunFolder(tmp_path).make("")
    with pytest.raises(BertsmithError, match="resume=True continues it"):
        RunFolder(tmp_path).make("")
    with pytest.raises(BertsmithError, match="no run"):
        RunFolder(tmp_path / "other").recipe()
    (tmp_path / "file").write_text("")
    with pytest.raises(BertsmithError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run").make("")


def test_a_checkpoint_that_is_being_replaced_is_not_lost(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, tensors(5), {"step": 5, "closed": False})
    checkpoints.save(5, tensors(5), {"step": 5, "closed": True})
    assert checkpoints.newest()[0].numbers["closed"]  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005"]
    # Killed between the two renames: the old one comes back.
    checkpoints.path(5).rename(tmp_path / ".replaced-step-00000005")
    (tmp_path / ".writing-step-00000005").mkdir()
    assert checkpoints.newest()[0].numbers["step"] == 5  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005"]


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make("")
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(BertsmithError, match=r"log.jsonl: cannot be written \(Is a directory\)"):
        folder.log({"step": 1}, {"step": 1})
    with pytest.raises(BertsmithError, match=r"log.jsonl: cannot be written"):
        folder.cut(RunProgress())


@pytest.mark.parametrize("optimizer", ["lamb", "stable_adamw", "adamw", "sharded"])
def test_step_counts_are_restored_where_the_optimizer_reads_them(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, a count that Python reads would make every parameter wait for the device."""
    train = SimpleNamespace(
        optimizer=optimizer.replace("sharded", "adamw"),
        learning_rate=1e-3,
        betas=(0.9, 0.98),
        epsilon=1e-6,
        weight_decay=0.1,
        layer_decay=1.0,
        matrix_learning_rate=0.1,
    )
    monkeypatch.setattr("bertsmith.train.state.assign", lambda *_: None)  # copies need a GPU
    with FakeTensorMode():
        module = nn.Module()
        module.weight = nn.Parameter(torch.empty((2, 3), device="cuda"))
        module.bias = nn.Parameter(torch.empty(2, device="cuda"))
        made = optimizer_for(module, train)
        if optimizer == "sharded":  # torch has no fused step for shards
            made.optimizers[0].param_groups[0] |= {"fused": None, "foreach": True}
            made.optimizers[0].param_groups[1] |= {"fused": None, "foreach": True}
        named = dict(module.named_parameters())
        stored = {
            f"{name}:{key}": torch.ones(()) if key == "step" else torch.ones(parameter.shape)
            for name, parameter in named.items()
            for key in ("step", "exp_avg")
        }
        model = {name: torch.ones(parameter.shape) for name, parameter in named.items()}
        state = TensorState(named, made, Averages(named, 0.0), Best())
        state.load(Saved({"averaged": 0}, {"model": model, "optimizer": stored}))
        kinds = {(key, value.device.type) for _, one in made.states() for key, value in one.items()}
    counts = "cuda" if optimizer == "adamw" else "cpu"
    assert kinds == {("step", counts), ("exp_avg", "cuda")}
