"""The weights that a run keeps for a film: which steps, which values, and after an interruption."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertsmith.train import Recipe, pretrain
from bertsmith.train.state import Checkpoints

Make = Callable[..., Recipe]
STEPS = [0, 1, 2, 4, 8, 12]


def test_weights_of_powers_of_two_and_of_the_end(recipe: Make, tmp_path: Path) -> None:
    pretrain(recipe(checkpoint={"film": True}), tmp_path / "run", show="none")
    film, checkpoints = (
        Checkpoints(tmp_path / "run/film"),
        Checkpoints(tmp_path / "run/checkpoints"),
    )
    assert film.steps() == STEPS
    for step in (8, 12):
        kept, whole = film.read(step), checkpoints.read(step)
        assert kept.tensors.keys() == {"model"}
        assert kept.numbers == {"step": step, "tokens": whole.numbers["tokens"]}
        for name, value in whole.tensors["model"].items():
            assert torch.equal(kept.tensors["model"][name], value.half())
    first = film.read(0).tensors["model"]
    assert any(not torch.equal(value, first[name]) for name, value in kept.tensors["model"].items())


def test_a_film_changes_nothing_of_the_run(recipe: Make, tmp_path: Path) -> None:
    pretrain(recipe(), tmp_path / "plain", show="none")
    pretrain(recipe(checkpoint={"film": True}), tmp_path / "filmed", show="none")
    assert not (tmp_path / "plain/film").exists()
    last = [Checkpoints(tmp_path / run / "checkpoints").read(12) for run in ("plain", "filmed")]
    for name, value in last[0].tensors["model"].items():
        assert torch.equal(value, last[1].tensors["model"][name])


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_run_that_goes_on_keeps_the_same_film(ema: float, recipe: Make, tmp_path: Path) -> None:
    """Weights later than the checkpoint from which it goes on are kept again, to the bit."""
    run = tmp_path / "run"
    pretrain(recipe(checkpoint={"film": True, "keep": 9}, train={"ema": ema}), run, show="none")
    before = {step: Checkpoints(run / "film").read(step) for step in STEPS}
    for step in (8, 12):
        shutil.rmtree(run / f"checkpoints/step-{step:08}")
    (run / "film/step-00000012").rename(run / "film/step-00000011")  # of another end
    pretrain(recipe(), run, resume=True, show="none")
    film = Checkpoints(run / "film")
    assert film.steps() == STEPS
    for step in STEPS:
        now = film.read(step)
        assert now.numbers == before[step].numbers
        for name, value in before[step].tensors["model"].items():
            assert torch.equal(value, now.tensors["model"][name])
