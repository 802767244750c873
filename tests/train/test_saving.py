"""Checkpoints are written while training goes on, and are what they were when they began."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertsmith.errors import BertsmithError
from bertsmith.train import Recipe, pretrain
from bertsmith.train.loop import Trainer
from bertsmith.train.state import BackgroundWriter, Checkpoints
from train.test_distributed import Runner, ranks, rows

__all__ = ["ranks"]
PATIENCE = 120  # seconds, on a busy machine
MakeRecipe = Callable[..., Recipe]


def test_steps_go_on_while_a_checkpoint_is_written(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of step 4 is held until step 7 is done, and stores step 4 as it was."""
    made = recipe(checkpoint={"every": 4, "keep": 9}, evaluate={"every": 0})
    pretrain(made, tmp_path / "whole", show="none")
    write, advance, later = Checkpoints.write, Trainer._advance, threading.Event()

    def held(self: Checkpoints, step: int, parts: Any) -> Any:
        assert step != 4 or later.wait(PATIENCE)
        return write(self, step, parts)

    def advanced(self: Trainer, *given: Any) -> Any:
        note = advance(self, *given)
        if note.timing["step"] == 7:
            assert not Checkpoints(tmp_path / "run" / "checkpoints").path(4).exists()
            later.set()
        return note

    monkeypatch.setattr(Checkpoints, "write", held)
    monkeypatch.setattr(Trainer, "_advance", advanced)
    pretrain(made, tmp_path / "run", show="none")
    assert later.is_set()
    for step in (4, 8, 12):
        one, other = (
            Checkpoints(tmp_path / n / "checkpoints").path(step) for n in ("run", "whole")
        )
        for file in ("model.safetensors", "optimizer.safetensors"):
            assert (one / file).read_bytes() == (other / file).read_bytes(), step


def test_an_error_ends_the_run_at_the_next_step(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, advance, failed = Checkpoints.write, Trainer._advance, threading.Event()

    def full(self: Checkpoints, step: int, parts: Any) -> Any:
        if step == 4:
            failed.set()
            raise BertsmithError("the checkpoint cannot be written (no space)")
        return save(self, step, parts)

    def advanced(self: Trainer, *given: Any) -> Any:
        note = advance(self, *given)
        if note.timing["step"] == 5:
            assert failed.wait(PATIENCE)
        return note

    monkeypatch.setattr(Checkpoints, "write", full)
    monkeypatch.setattr(Trainer, "_advance", advanced)
    with pytest.raises(BertsmithError, match="no space"):
        pretrain(recipe(train={"steps": 40}), tmp_path / "run", show="none")
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [0]
    assert rows(tmp_path / "run")[-1]["step"] <= 8
    monkeypatch.undo()
    resumed = pretrain(recipe(train={"steps": 40}), tmp_path / "run", resume=True, show="none")
    assert resumed["finished"]


def test_a_rank_that_fails_does_not_leave_the_others_waiting(tmp_path: Path) -> None:
    """The first rank waits for shards of the second, which says that its disk is full."""
    state: Any = SimpleNamespace(shards=2, copied=lambda ranks: {"model": {"w": torch.ones(2)}})
    first: Any = SimpleNamespace(
        first=True,
        rank=0,
        device=torch.device("cpu"),
        run_on_first=lambda job: job(),
        collect=lambda own: [own, None],
    )
    with BackgroundWriter(Checkpoints(tmp_path), state, first) as writer:
        writer.start(3, {"step": 3})
        first.collect = lambda own: [own, "rank 1: no space"]
        with pytest.raises(BertsmithError, match="rank 1: no space"):
            writer.settle()
    assert Checkpoints(tmp_path).steps() == []


@pytest.mark.parametrize(
    ("parallel", "count"), [("fsdp", 2), pytest.param("hsdp", 4, marks=pytest.mark.slow)]
)
def test_shards_are_stored_apart_and_read_as_one(
    parallel: str, count: int, recipe: MakeRecipe, ranks: Runner, tmp_path: Path
) -> None:
    """A sharded run equals one of copies, continues with any number of ranks, and finds damage."""
    settings = recipe().model.settings | {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "intermediate_size": 65,  # the second rank has less
    }
    made = recipe(
        model={"size": "bert-tiny", "settings": settings},
        train={"parallel": parallel, "ema": 0.5, "steps": 8},
        evaluate={"keep": "best", "every": 2},
    )
    run = ranks(made, tmp_path / "run", count)
    copies = made.model_copy(update={"train": made.train.model_copy(update={"parallel": "ddp"})})
    other = ranks(copies, tmp_path / "copies", 2)
    kept = [Checkpoints(one / "checkpoints") for one in (run, other)]
    last = kept[0].path(8)
    names = ("average", "best", "model", "optimizer")
    assert sorted(path.name for path in last.glob("*.safetensors")) == [
        f"{name}-0000{rank}-of-00002.safetensors" for name in names for rank in (1, 2)
    ]
    one, two = (checkpoints.read(8).tensors for checkpoints in kept)
    assert one.keys() == two.keys() == set(names)
    for name in names:
        assert one[name].keys() == two[name].keys()
        for key, value in one[name].items():
            assert value.shape == two[name][key].shape, key
            assert float((value - two[name][key]).abs().max()) < 1e-3, key
    log = rows(run)
    # Without the end, damaged in a shard: from step 4 again, with two processes of copies.
    shard = last / "optimizer-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    assert kept[0].newest()[1][0].startswith(str(shard))
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace(f'"{parallel}"', '"ddp"'))
    (run / "summary.json").unlink()
    ranks(copies, run, 1, resume=True)
    for a, b in zip(log, rows(run), strict=True):
        assert a.get("loss") == pytest.approx(b.get("loss"), abs=1e-5)
