"""Averages, bad steps, rollbacks and signals in the middle of an epoch."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import BertsmithError
from bertsmith.finetuning import Interrupted, finetune, plan
from bertsmith.train.distributed import Ranks
from bertsmith.train.optimizer import CompositeOptimizer
from bertsmith.train.step import TrainingStep
from bertsmith.train.weights import Averages
from finetuning.conftest import FAST, Write, labelled
from finetuning.test_resume import Stopper, report, weights
from tasks.models import Maker

Paths = tuple[Path, Path, Path]
THREE: dict[str, Any] = {**FAST, "epochs": 3, "batch_size": 8, "device": "cpu"}  # steps an epoch


@pytest.fixture
def paths(made: Maker, write: Write, tmp_path: Path) -> Paths:
    """A model, a file of 24 rows, and a place for the result."""
    return made("bert", "Model").folder, write("t.jsonl", labelled(24)), tmp_path / "out"


class Spoiler:
    """Does something to the gradients of some steps, counted from 1."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        steps: Iterable[int],
        spoil: Callable[[torch.Tensor], Any] = lambda gradient: gradient.fill_(math.nan),
    ) -> None:
        self.calls, real = 0, TrainingStep._gradients

        def spoiled(step: TrainingStep, *arguments: Any) -> Any:
            self.calls += 1
            found = real(step, *arguments)
            if self.calls in steps:
                for parameter in step.parameters:
                    if parameter.grad is not None:
                        spoil(parameter.grad)
            return found

        patch.setattr(TrainingStep, "_gradients", spoiled)


# ------------------------------------------------------------------ averages, steps of no weight


def test_averaged_weights_are_kept(
    made: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After t steps, the weights of step s count (1 - d) d^(t - s) / (1 - d^t)."""
    seen: list[dict[str, torch.Tensor]] = []
    update = TrainingStep._update

    def watched(step: TrainingStep, *arguments: Any) -> None:
        update(step, *arguments)
        named = step.module.named_parameters()
        seen.append({name: one.detach().double().clone() for name, one in named})

    monkeypatch.setattr(TrainingStep, "_update", watched)
    file = write("t.jsonl", labelled(24))
    result = finetune(made("bert", "Model").folder, file, dev=file, ema=0.7, keep="last", **THREE)
    assert len(seen) == 9
    shares = [0.3 * 0.7 ** (9 - number) / (1 - 0.7**9) for number in range(1, 10)]
    assert sum(shares) == pytest.approx(1)
    kept = dict(result.kept.bert.model.named_parameters())
    for name, last in seen[-1].items():
        mean = sum(share * one[name] for share, one in zip(shares, seen, strict=True))
        found = kept[name.removeprefix("model.")].detach().double()
        assert float((found - mean).abs().max()) < 1e-6, name
        if "word" in name:
            assert float((found - last).abs().max()) > 1e-5


def test_a_step_of_no_weight_changes_nothing(
    made: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One example a step, and those of one class weigh nothing."""
    updates, step = [0], CompositeOptimizer.step

    def counted(optimizer: CompositeOptimizer) -> None:
        updates[0] += 1
        step(optimizer)

    monkeypatch.setattr(CompositeOptimizer, "step", counted)
    settings = {**THREE, "batch_size": 1, "epochs": 2, "class_weights": "city=0", "ema": 0.5}
    result = finetune(
        made("bert", "Model").folder, write("t.jsonl", labelled(12)), hold_out=0, **settings
    )
    assert (result.kept.history.steps, updates[0]) == (24, 12)
    assert sum(loss > 0 for loss in result.kept.history.losses) == 12
    assert [row["epoch"] for row in result.kept.history.epochs] == [1, 2]


# ------------------------------------------------------------------ bad steps


def test_spikes_are_skipped(made: Maker, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    settings = {**THREE, "epochs": 7, "hold_out": 0, "learning_rate": 1e-5, "keep": "last"}
    line = "steps skipped because the gradients' norm was over 20 times the usual"
    for spike in (20.0, 0.0):
        with monkeypatch.context() as patch:
            Spoiler(patch, {19}, lambda gradient: gradient.mul_(1e4))
            run = finetune(folder, file, spike=spike, **settings).kept
        assert run.bert.ledger.counts.get(line, 0) == bool(spike)
        assert math.isnan(run.history.losses[18]) == bool(spike)
        assert (run.history.steps, len(run.history.epochs)) == (21, 7)


def test_three_bad_steps_roll_back(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the end of the first epoch, of three steps; the samples of the bad steps are left out."""
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(24)), tmp_path / "o"
    with monkeypatch.context() as patch:
        spoiler = Spoiler(patch, {5, 6, 7})
        finetune(folder, file, out, dev=file, **{**THREE, "epochs": 4})
    assert spoiler.calls == 7 + 9
    content = report(out)
    assert (content["steps"], content["interrupted"]) == (12, None)
    assert [row["epoch"] for row in content["epochs"]] == [1, 2, 3, 4]
    assert content["ledger"]["rollbacks after three bad steps in a row"] == 1
    assert content["ledger"]["steps skipped because the gradients were not numbers"] == 3
    assert not any("stopped after" in note for note in content["notes"])
    with monkeypatch.context() as patch:  # killed after the rollback: the same happens again
        Spoiler(patch, {5, 6, 7})
        with pytest.raises(Interrupted):
            finetune(
                folder, file, tmp_path / "p", dev=file, watch=Stopper(9), **{**THREE, "epochs": 4}
            )
    with monkeypatch.context() as patch:
        Spoiler(patch, {2, 3, 4})
        finetune(folder, file, tmp_path / "p", dev=file, resume=True, **{**THREE, "epochs": 4})
    assert weights(tmp_path / "p") == weights(out)
    assert report(tmp_path / "p") == content


@pytest.mark.parametrize("steps", [(1, 2, 3), (4, 5, 6)])
def test_bad_steps_without_a_checkpoint_are_an_error(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: tuple[int]
) -> None:
    """There is none before the first epoch has ended, and none without a place for it."""
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    out = tmp_path / "out" if steps[0] == 1 else None
    with monkeypatch.context() as patch:
        Spoiler(patch, steps)
        with pytest.raises(BertsmithError) as error:
            finetune(folder, file, out, hold_out=0, **THREE)
    assert (
        str(error.value) == f"{file}: the loss was NaN or infinite 3 times: lower the learning rate"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.jsonl"]


def test_epochs_are_counted_by_their_steps(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of one step, which is bad, is not scored; the last epoch is still the last."""
    file, out = write("t.jsonl", labelled(8)), tmp_path / "out"
    with monkeypatch.context() as patch:
        Spoiler(patch, {2})
        finetune(made("bert", "Model").folder, file, out, dev=file, **{**THREE, "keep": "last"})
    content = report(out)
    assert [row["epoch"] for row in content["epochs"]] == [1, 3]
    assert content["kept_epoch"] == 3
    assert not any("stopped after" in note for note in content["notes"])


# ------------------------------------------------------------------ signals


def signalled(patch: pytest.MonkeyPatch, at: int) -> None:
    """SIGTERM in the middle of a step, counted from 1."""
    calls, real = [0], TrainingStep._gradients

    def interrupted(step: TrainingStep, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(step, *arguments)

    patch.setattr(TrainingStep, "_gradients", interrupted)


def states(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("out.partial/state-*/step-*"))


@pytest.mark.parametrize(
    ("more", "at", "left"),
    [
        ({}, 6, 4),
        pytest.param(
            {"optimizer": "muon", "ema": 0.9, "spike": 50.0}, 6, 4, marks=pytest.mark.slow
        ),
        pytest.param({"head_epochs": 1}, 3 + 5, 5, marks=pytest.mark.slow),
        pytest.param({"freeze": "encoder"}, 5, 5, marks=pytest.mark.slow),
        ({"patience": 1, "learning_rate": 1e-7}, 5, 2),  # which ends after the second epoch
        pytest.param({"freeze": "1", "checkpointing": True}, 2, 8, marks=pytest.mark.slow),
    ],
)
def test_a_signal_in_an_epoch_loses_no_step(
    paths: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
    at: int,
    left: int,
) -> None:
    folder, file, out = paths
    settings = {**THREE, "dev": file, **more}
    finetune(folder, file, tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        signalled(patch, at)
        with pytest.raises(Interrupted, match="the same command with resume=True continues"):
            finetune(folder, file, out, **settings)
    assert [path.name for path in states(tmp_path)] == [
        f"step-{at - 3 * ('head_epochs' in more) - 1:08}"
    ]
    counter = Stopper(-1)
    finetune(folder, file, out, resume=True, watch=counter, **settings)
    assert counter.steps == left
    assert weights(out) == weights(tmp_path / "whole")
    assert report(out) == report(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "t.jsonl", "whole"]


class Ender(Stopper):
    """Sends a signal when an epoch is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == -self.at:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    "when",
    [
        "evaluation",
        *(pytest.param(when, marks=pytest.mark.slow) for when in ("last step", "last epoch")),
    ],
)
def test_a_signal_is_heard_at_the_end_of_an_epoch(
    when: str, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the very end of a seed: the next one is not trained."""
    folder, file, out = paths
    settings = {**THREE, "epochs": 2, "dev": file, "seeds": 2}
    finetune(folder, file, tmp_path / "whole", **settings)
    real, calls = plan._evaluated, [0]

    def evaluated(*arguments: Any) -> Any:
        calls[0] += 1
        if when == "evaluation" and calls[0] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    watch = Ender({"evaluation": 0, "last step": 6, "last epoch": -2}[when], signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_evaluated", evaluated)
        with pytest.raises(Interrupted, match="resume=True continues"):
            finetune(folder, file, out, watch=watch, **settings)
    assert watch.steps == 6
    assert [path.name for path in states(tmp_path)] == ["step-00000006"]
    counter = Stopper(-1)
    result = finetune(folder, file, out, resume=True, watch=counter, **settings)
    assert counter.steps == 6  # the second seed's
    assert [run.history.examples for run in result.seeds] == [48, 48]
    assert weights(out) == weights(tmp_path / "whole")
    assert report(out) == report(tmp_path / "whole")


def test_weights_are_exchanged_without_interruption(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while averages take the place of weights comes before the evaluation."""
    folder, file, out = paths
    settings = {**THREE, "dev": file, "ema": 0.9}
    finetune(folder, file, tmp_path / "whole", **settings)
    apply = Averages.apply

    def signalling(averages: Averages, values: Any = None) -> None:
        apply(averages, values)
        if values is averages.values:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Averages, "apply", signalling)
        with pytest.raises(
            Interrupted, match="before the first epoch ended: the same command with"
        ):
            finetune(folder, file, out, **settings)
    finetune(folder, file, out, resume=True, **settings)
    assert weights(out) == weights(tmp_path / "whole")
    assert report(out) == report(tmp_path / "whole")


def test_a_rank_that_left_a_step_writes_nothing(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rank writes the best epoch; the others end in a line, too."""
    # Aborting a step, a rank leaves the others; this one is then the second.
    monkeypatch.setattr(Ranks, "leave", lambda ranks: setattr(ranks, "rank", 1))
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    signalled(monkeypatch, 6)
    with pytest.raises(Interrupted, match=r"^interrupted$"):
        finetune(folder, file, tmp_path / "out", dev=file, **THREE)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ damaged states


def test_a_damaged_state_is_one_line_and_a_replaced_one_is_found(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file, out = paths
    settings = {**THREE, "hold_out": 0, "head_epochs": 1}
    finetune(folder, file, tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        signalled(patch, 3 + 5)
        with pytest.raises(Interrupted):
            finetune(folder, file, out, **settings)
    (state,) = states(tmp_path)
    tensors = state / "model.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BertsmithError, match="no intact checkpoint to continue from") as error:
        finetune(folder, file, out, resume=True, **settings)
    assert "\n" not in str(error.value)
    tensors.write_bytes(whole)
    # Killed while the state was written again: the former one had been put aside.
    state.rename(state.with_name(f".replaced-{state.name}"))
    state.with_name(f".writing-{state.name}").mkdir()
    counter = Stopper(-1)
    finetune(folder, file, out, resume=True, watch=counter, **settings)
    assert counter.steps == 5
    assert weights(out) == weights(tmp_path / "whole")
