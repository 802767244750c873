"""The loop's clock, learning rate and scores: by the clock, resumed, rolled back."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.train import Recipe, pretrain, verify
from bertsmith.train.loop import Trainer
from bertsmith.train.recipe import load_recipe
from bertsmith.train.step import TrainingStep
from bertsmith.train.verify import verify_resume

Make = Callable[..., Recipe]


def rows(run: Path, name: str = "log.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def ticking(monkeypatch: pytest.MonkeyPatch, ticks: Iterator[float]) -> None:
    """Let the loop read a clock that does not depend on the machine."""
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += next(ticks)
        return now

    monkeypatch.setattr("bertsmith.train.loop.time", SimpleNamespace(monotonic=monotonic))


def seconds(*first: float) -> Iterator[float]:
    yield from first
    while True:
        yield 0.5


# ------------------------------------------------------------------ warm-up


def test_warm_up_in_steps_is_exact_by_the_clock(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the first step takes a third of the time, as one that compiles does."""
    ticking(monkeypatch, seconds(0, 0, 0, 0, 0, 20.0))
    train = {"steps": 0, "minutes": 1.0, "warmup": 8, "learning_rate": 1.0}
    pretrain(recipe(train=train, evaluate={"tokens": 0}), tmp_path / "run", show="none")
    rates = [row["learning_rate"] for row in rows(tmp_path / "run")]
    assert len(rates) > 16
    assert rates[:9] == pytest.approx([step / 8 for step in range(9)])
    assert rates[9:] == sorted(rates[9:], reverse=True)  # then it decays, to almost 0
    assert rates[-1] < 0.1


def test_a_time_that_ends_within_the_warm_up_is_noted(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking(monkeypatch, seconds())
    train = {"steps": 0, "minutes": 0.1, "warmup": 1000}
    found = pretrain(recipe(train=train), tmp_path / "run", show="none")
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["warm-up steps that the budget did not reach"] == 1000 - found["steps"]


def test_a_warm_up_that_is_longer_than_the_run_is_refused() -> None:
    with pytest.raises(BertsmithError, match=r"warmup is 10000 steps, but the run has 1000: lower"):
        load_recipe("bert-base", ["train.steps=1000"])
    made = load_recipe("bert-base", ["train.steps=10_001"])
    assert made.train.warmup == 10_000


def test_verifying_a_run_shortens_its_warm_up(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "_finish", stop)
    with pytest.raises(KeyboardInterrupt):
        verify_resume(recipe(train={"steps": 900, "warmup": 300}), steps=8, folder=tmp_path)
    assert load_recipe(tmp_path / "recipe.toml").train.warmup == 4


# ------------------------------------------------------------------ rollbacks


def test_a_rollback_does_not_turn_back_the_clock(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking(monkeypatch, seconds())
    gradients, calls = TrainingStep._gradients, 0

    def spoiled(step: TrainingStep, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = gradients(step, *arguments)
        if calls in (9, 10, 11):
            next(step.module.parameters()).grad.fill_(math.nan)  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(TrainingStep, "_gradients", spoiled)
    train = {"steps": 0, "minutes": 0.5}
    made = recipe(train=train, evaluate={"tokens": 0, "pseudo": 0}, checkpoint={"every": 4})
    found = pretrain(made, tmp_path / "run", show="none")
    assert found["steps"] == calls - 3
    timing = rows(tmp_path / "run", "timing.jsonl")
    elapsed = [row["elapsed"] for row in timing]
    assert elapsed == sorted(elapsed)
    spent = sum(row["seconds"] for row in timing)
    assert elapsed[-1] > spent + 1.5  # the three bad steps were paid for
    assert 60 * found["minutes"] == pytest.approx(elapsed[-1], abs=0.01)


# ------------------------------------------------------------------ scores after a resume


@pytest.fixture
def continuing(recipe: Make, tmp_path: Path) -> Recipe:
    """Six steps from a stored model, which is evaluated before the first."""
    pretrain(recipe(train={"steps": 1}, evaluate={"tokens": 0}), tmp_path / "first", show="none")
    start = {"start": str(tmp_path / "first" / "model")}
    return recipe(model=start, train={"steps": 6}, evaluate={"every": 0}, checkpoint={"every": 2})


def test_a_resumed_run_keeps_the_scores_of_its_start(
    continuing: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pretrain(continuing, tmp_path / "whole", show="none")
    step = Trainer._step

    def stopped(trainer: Trainer, *arguments: Any) -> Any:
        if trainer.progress.step == 3:
            trainer.stopped.number = 15
        return step(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopped)
        assert not pretrain(continuing, tmp_path / "run", show="none")["finished"]
    again = pretrain(continuing, tmp_path / "run", resume=True, show="none")
    assert again["held_out_masked_lm_at_start"] == whole["held_out_masked_lm_at_start"]
    assert again.keys() == whole.keys()


@pytest.mark.parametrize("damage", [None, "", "[1]", "{}"])
def test_a_kill_before_the_summary_loses_no_scores(
    damage: str | None, continuing: Recipe, tmp_path: Path
) -> None:
    """Neither does a summary that is damaged."""
    run, timed = tmp_path / "run", ("minutes", "tokens_per_second")
    before = pretrain(continuing, run, show="none")
    card, marker = run / "model" / "README.md", run / "model" / "bertsmith.json"
    files = card.read_text(), marker.read_text()
    if damage is None:
        (run / "summary.json").unlink()
    else:
        (run / "summary.json").write_text(damage)
    after = pretrain(continuing, run, resume=True, show="none")
    assert {k: v for k, v in after.items() if k not in timed} == {
        k: v for k, v in before.items() if k not in timed
    }
    assert json.loads((run / "summary.json").read_text()) == after
    assert (card.read_text(), marker.read_text()) == files
