"""Stopping at any moment: within seconds, losing at most the step in hand."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.files import digest, locked
from bertsmith.model.block import PostNormBlock
from bertsmith.train import Recipe, pretrain
from bertsmith.train.loop import Trainer
from bertsmith.train.step import TrainingStep

Make = Callable[..., Recipe]


def rows(run: Path) -> list[dict[str, Any]]:
    log = run / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def equal(one: Path, other: Path) -> bool:
    names = ("log.jsonl", "model/model.safetensors")
    return all(digest(one / name) == digest(other / name) for name in names)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_long_step_is_given_up(
    number: int, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of half a minute does not make a person wait for it, forward or backward."""
    made = recipe(train={"steps": 6}, checkpoint={"every": 0})
    pretrain(made, tmp_path / "whole", show="none")
    forward, began = PostNormBlock.forward, [0.0]

    def slow(block: PostNormBlock, *inputs: Any) -> Any:
        output = forward(block, *inputs)
        if (tmp_path / "run" / "log.jsonl").exists():
            output.register_hook(lambda gradient: time.sleep(4))
            if not began[0]:
                began[0] = time.monotonic()
                threading.Timer(1.0, os.kill, (os.getpid(), number)).start()
        return output

    with monkeypatch.context() as patch:
        patch.setattr(PostNormBlock, "forward", slow)
        summary = pretrain(made, tmp_path / "run", show="none")
    assert time.monotonic() - began[0] < 10
    assert (summary["finished"], summary["signal"], summary["steps"]) == (False, number, 1)
    assert pretrain(made, tmp_path / "run", show="none", resume=True)["finished"]
    assert equal(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("step", [0, 5, 12])
def test_an_evaluation_that_a_signal_ends_is_made_up_for(
    step: int, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = recipe(train={"steps": 2}, evaluate={"tokens": 0})
    pretrain(first, tmp_path / "start", show="none")
    start = {"start": str(tmp_path / "start" / "model")}  # so that step 0 is evaluated too
    made = recipe(model=start, checkpoint={"every": 0})
    pretrain(made, tmp_path / "whole", show="none")
    evaluate = Trainer._evaluate

    def interrupted(trainer: Trainer) -> bool:
        if trainer.progress.step == step:
            trainer.stopped = int(signal.SIGTERM)
        return evaluate(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_evaluate", interrupted)
        assert not pretrain(made, tmp_path / "run", show="none")["finished"]
    assert [row["step"] for row in rows(tmp_path / "run") if "loss" not in row] == [
        done for done in (0, 5, 10, 12) if done < step
    ]
    assert pretrain(made, tmp_path / "run", show="none", resume=True)["finished"]
    assert equal(tmp_path / "run", tmp_path / "whole")
    assert [row["step"] for row in rows(tmp_path / "run") if "loss" not in row] == [0, 5, 10, 12]


def test_a_run_in_work_is_left_alone(recipe: Make, tmp_path: Path) -> None:
    made = recipe(train={"steps": 1})
    pretrain(made, tmp_path / "run", show="none")
    holder = f"from bertsmith.files import locked\nwith locked({str(tmp_path / 'run')!r}):"
    holder += "\n    print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BertsmithError, match="another bertsmith process is working in it"):
            pretrain(made, tmp_path / "run", resume=True, show="none")
        other.communicate(b"\n")
    assert pretrain(made, tmp_path / "run", resume=True, show="none")["finished"]
    with locked(tmp_path / "run"):
        pass  # it was let go


def test_a_run_without_a_checkpoint_says_that_it_starts_anew(
    recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recipe(train={"steps": 1})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").write_text(made.toml())
    assert pretrain(made, tmp_path / "run", resume=True, show="lines")["finished"]
    assert "no checkpoint yet, so it starts at step 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kept", ["", "about", "[train]\nseed", "micro_tokens", "[checkpoint]\nevery"]
)
def test_a_cut_recipe_is_one_line(kept: str, recipe: Make, tmp_path: Path) -> None:
    """Also where what is left is TOML: defaults in place of what is lost would be another run."""
    made = recipe(train={"steps": 1})
    pretrain(made, tmp_path / "run", show="none")
    file = tmp_path / "run" / "recipe.toml"
    text = file.read_text()
    file.write_text(text[: text.index("\n", text.index(kept) + len(kept)) + 1] if kept else "")
    with pytest.raises(BertsmithError, match=r"recipe\.toml: damaged, since .* is missing"):
        pretrain(made, tmp_path / "run", resume=True, show="none")
    file.write_text(text[:-9])
    with pytest.raises(BertsmithError, match=r"recipe\.toml"):
        pretrain(made, tmp_path / "run", resume=True, show="none")


def test_a_run_overwrites_nothing(recipe: Make, prepared: Path, tmp_path: Path) -> None:
    """Neither the corpus it reads nor anything else that is in the folder."""
    before = {path: digest(path) for path in prepared.rglob("*") if path.is_file()}
    made = recipe(train={"steps": 1})
    with pytest.raises(BertsmithError, match="not empty; choose a new folder"):
        pretrain(made, prepared, show="none")
    assert {path: digest(path) for path in prepared.rglob("*") if path.is_file()} == before
    (tmp_path / "file").write_text("")
    with pytest.raises(BertsmithError, match="a file; a run is a folder"):
        pretrain(made, tmp_path / "file", show="none")


def test_weights_do_not_change_while_a_step_may_be_given_up(recipe: Make, tmp_path: Path) -> None:
    """The flag that lets a signal end a step is down before the weights change."""
    seen: list[bool] = []
    update = TrainingStep._update

    def look(step: TrainingStep, *arguments: Any) -> None:
        seen.append(step.computing)
        update(step, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingStep, "_update", look)
        pretrain(recipe(train={"steps": 2}), tmp_path / "run", show="none")
    assert seen == [False, False]
