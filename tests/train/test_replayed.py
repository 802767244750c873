"""Pre-training steps as a GPU replays them, run on a CPU: the same run, its log a little late."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.train import Recipe, planning, pretrain, pretraining
from bertsmith.train.captured import CapturedStep, DeviceGuard, garbage_kept
from bertsmith.train.guard import ENOUGH, FAULTS, REMEMBERED, Guard

Make = Callable[..., Recipe]


def log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def ran(made: Recipe, run: Path, replay: bool, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    monkeypatch.setattr(pretraining, "can_replay", lambda *_: replay)
    return pretrain(made, run, show="none", **more)


def test_steps_with_a_frozen_generator_are_replayed(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"steps": 4, "batch_tokens": 512, "micro_tokens": 512, "device": "cpu"}
    first = recipe(objectives={"masked_lm": 1}, train=part, evaluate={"every": 0})
    pretrain(first, tmp_path / "generator", show="none")
    made = recipe(
        objectives={"masked_lm": 1, "replaced": 10},
        # So cold a generator makes its best guess: no draw, and the two runs are the same.
        generator={
            "model": str(tmp_path / "generator" / "model"),
            "fills": 0.5,
            "temperature": 1e-4,
        },
        train=part,
        evaluate={"every": 0},
    )
    rows = {}
    for replay in (False, True):
        run = tmp_path / str(replay)
        ran(made, run, replay, monkeypatch)
        rows[replay] = [row for row in log(run) if "replaced" in row]
        assert not (run / "generator").exists()
    assert len(rows[True]) == len(rows[False]) == 4
    for one, other in zip(rows[False], rows[True], strict=True):
        for key in ("loss", "masked_lm", "replaced"):
            assert other[key] == pytest.approx(one[key], rel=2e-3, abs=2e-3), key


@pytest.mark.parametrize("generator", [False, True])
def test_steps_with_pairs_are_replayed(
    generator: bool, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"steps": 4, "batch_tokens": 512, "micro_tokens": 512, "device": "cpu"}
    common: Any = {"train": part, "evaluate": {"every": 0}}
    objectives = {"sentence_order": 1.0, "masked_lm": 1.0}
    if generator:
        pretrain(recipe(objectives={"masked_lm": 1}, **common), tmp_path / "g", show="none")
        common["generator"] = {"model": str(tmp_path / "g/model"), "fills": 0.5}
        common["generator"] |= {"temperature": 1e-4}
        objectives["replaced"] = 10.0
    made = recipe(objectives=objectives, data={"format": "order"}, **common)
    rows = {}
    for replay in (False, True):
        run = tmp_path / str(replay)
        ran(made, run, replay, monkeypatch)
        rows[replay] = [row for row in log(run) if "sentence_order" in row]
    assert len(rows[True]) == len(rows[False]) == 4
    for one, other in zip(rows[False], rows[True], strict=True):
        for key in ("loss", "masked_lm", "sentence_order"):  # rounding may change a best guess
            assert other[key] == pytest.approx(one[key], rel=5e-3, abs=2e-3), key


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_replayed_runs_are_the_same_runs(
    optimizer: str, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {
        "steps": 12,
        "batch_tokens": 512,
        "micro_tokens": 512,
        "device": "cpu",
        "optimizer": optimizer,
    }
    made = recipe(objectives={"masked_lm": 1}, train=part, evaluate={"every": 5})
    logs = {}
    for replay in (False, True):
        run = tmp_path / str(replay)
        assert ran(made, run, replay, monkeypatch)["finished"]
        logs[replay] = log(run)
    assert [row["step"] for row in logs[True]] == [row["step"] for row in logs[False]]
    for one, other in zip(logs[False], logs[True], strict=True):
        assert one.keys() == other.keys()
        for key in set(one) & {"loss", "masked_lm", "masked_lm_accuracy", "gradient_norm"}:
            assert other[key] == pytest.approx(one[key], rel=2e-3, abs=2e-3), key
        assert {k: one.get(k) for k in ("tokens", "samples")} == {
            k: other.get(k) for k in ("tokens", "samples")
        }


def test_a_replayed_run_goes_on(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"steps": 10, "batch_tokens": 512, "micro_tokens": 512, "device": "cpu"}
    made = recipe(objectives={"masked_lm": 1}, train=part, checkpoint={"every": 4, "keep": 9})
    ran(made, tmp_path / "run", True, monkeypatch)
    whole = log(tmp_path / "run")
    for late in (8, 10):
        for path in (tmp_path / "run" / "checkpoints").glob(f"step-*{late:02d}"):
            path.rename(tmp_path / path.name)
    (tmp_path / "run" / "summary.json").unlink()
    ran(made, tmp_path / "run", True, monkeypatch, resume=True)
    again = log(tmp_path / "run")
    assert [row["loss"] for row in again if "loss" in row] == [
        row["loss"] for row in whole if "loss" in row
    ]


def test_bad_steps_roll_a_replayed_run_back(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"steps": 24, "batch_tokens": 256, "micro_tokens": 256, "device": "cpu"}
    made = recipe(objectives={"masked_lm": 1}, train=part, checkpoint={"every": 4})
    real, calls = CapturedStep.__call__, []

    def broken(self: CapturedStep, passes: Any, fraction: float, seed: int) -> Any:
        calls.append(seed)
        bad = len(calls) in (3, 6, 7, 8)  # one alone, and three in a row
        weights = next(iter(self.parameters))
        good = weights.detach().clone()
        if bad:
            weights.data.fill_(math.nan)
        rows = real(self, passes, fraction, seed)
        if bad:
            weights.data.copy_(good)
        return rows

    monkeypatch.setattr(CapturedStep, "__call__", broken)
    found = ran(made, tmp_path / "run", True, monkeypatch)
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert found["finished"]
    assert ledger["rollbacks after three bad steps in a row"] == 1
    assert ledger[f"steps skipped because {FAULTS[1]}"] == 4


def test_the_guard_on_the_device_decides_as_the_guard_does() -> None:
    torch.manual_seed(0)
    norms = torch.rand(150) + 1
    norms[[20, 90, 91]] = 50.0
    norms[30] = math.nan
    plain, device = Guard(spike=10.0), DeviceGuard(10.0, torch.device("cpu"))
    for step, norm in enumerate(norms):
        loss = torch.tensor(math.inf if step == 40 else 1.0)
        fault = plain.check(float(norm), float(loss))
        assert bool(device.check(loss, norm)) == bool(fault), step
    assert len(plain.recent) == REMEMBERED > ENOUGH
    again = DeviceGuard(10.0, torch.device("cpu"))
    again.load(plain.recent)
    assert sorted(again.recent.tolist()) == pytest.approx(sorted(device.recent.tolist()))
    assert int(again.check(torch.tensor(1.0), torch.tensor(60.0))) == 3


def test_no_garbage_is_collected_during_a_capture() -> None:
    with garbage_kept():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="capture"), garbage_kept():
        raise ValueError("the capture failed")
    assert gc.isenabled()


def test_a_plan_measures_the_steps_that_a_run_replays(
    recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"batch_tokens": 512, "micro_tokens": 512, "device": "cpu", "optimizer": "muon"}
    made = recipe(objectives={"masked_lm": 1}, train=part)
    counted = []
    real = CapturedStep.__call__

    def call(self: CapturedStep, *arguments: Any) -> Any:
        counted.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(CapturedStep, "__call__", call)
    monkeypatch.setattr(planning, "can_replay", lambda *_: True)
    found = planning.plan(made, device="cpu")
    assert found["tokens_per_second"] > 0
    assert len(counted) > planning.MEASURED
