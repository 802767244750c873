"""Stopping at any moment: within seconds, losing at most the step in hand."""

import json
import os
import shutil
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
from bertsmith.folders import check_replaceable
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
            trainer.stopped.number = int(signal.SIGTERM)
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


# ------------------------------------------------------------------ damaged folders


def stopped_run(made: Recipe, run: Path, patch: pytest.MonkeyPatch, step: int = 6) -> None:
    """A run that a signal stopped after some steps."""
    real = Trainer._step

    def stop(trainer: Trainer, *arguments: Any) -> Any:
        if trainer.progress.step == step - 1:
            trainer.stopped.number = int(signal.SIGTERM)
        return real(trainer, *arguments)

    with patch.context() as patched:
        patched.setattr(Trainer, "_step", stop)
        assert pretrain(made, run, show="none")["steps"] == step


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", ""])
def test_a_damaged_log_is_named_when_a_run_resumes(
    damage: str,
    recipe: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, log = recipe(train={"steps": 8}), tmp_path / "run" / "log.jsonl"
    stopped_run(made, tmp_path / "run", monkeypatch)
    whole = log.read_bytes()
    if damage == "gone":
        log.unlink()
    elif damage == "cut":
        log.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        log.write_bytes(whole.replace(b'"samples": ', b'"samples": 1', 1))
    assert pretrain(made, tmp_path / "run", show="lines", resume=True)["finished"]
    note = f"{log}: lines up to step 6 are damaged or missing; the run continues without them"
    assert (note in capsys.readouterr().err) == bool(damage)
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    noted = "logs that were damaged or cut when the run resumed: log.jsonl"
    assert ledger.get(noted, 0) == bool(damage)
    # Known from then on: another resume has nothing to say.
    pretrain(made, tmp_path / "run", show="lines", resume=True)
    assert "damaged or missing" not in capsys.readouterr().err


def test_what_a_kill_leaves_behind_is_removed(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a model directory of which only some files were written."""
    made, run = recipe(train={"steps": 8}), tmp_path / "run"
    pretrain(made, tmp_path / "whole", show="none")
    stopped_run(made, run, monkeypatch)
    (run / ".ledger.json-0123456789ab.part").write_text("{")
    (run / ".model-a1b2c3d4.part" / "new" / "model").mkdir(parents=True)
    (run / "model").mkdir()
    (run / "model" / "config.json").write_text("{}")
    (run / "model" / "tokenizer.json").write_text("{}")
    assert pretrain(made, run, show="none", resume=True)["finished"]
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
    names = {path.name for path in (tmp_path / "whole" / "model").iterdir()}
    assert {path.name for path in (run / "model").iterdir()} == names
    runs = (tmp_path / "whole", run)
    markers = [json.loads((one / "model" / "bertsmith.json").read_text()) for one in runs]
    for marker in markers:
        card = marker["files"].pop("README.md")  # has the minutes that the run took
        assert card.startswith("sha256 ")
    assert markers[0] == markers[1]
    check_replaceable(run / "model", overwrite=True)  # every file is as bertsmith.json says


# ------------------------------------------------------------------ a start that is gone


@pytest.mark.parametrize("when", ["while it trains", "while it is stopped"])
def test_a_run_ends_without_the_model_that_it_started_from(
    when: str, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(recipe(train={"steps": 2}), tmp_path / "first", show="none")
    made = recipe(model={"start": str(tmp_path / "first" / "model")}, train={"steps": 8})
    pretrain(made, tmp_path / "whole", show="none")
    run, real = tmp_path / "run", Trainer.run
    if when == "while it is stopped":
        stopped_run(made, run, monkeypatch)
        shutil.rmtree(tmp_path / "first")
    else:

        def without(trainer: Trainer) -> bool:
            shutil.rmtree(tmp_path / "first")
            return real(trainer)

        monkeypatch.setattr(Trainer, "run", without)
    assert pretrain(made, run, show="none", resume=when == "while it is stopped")["finished"]
    assert equal(run, tmp_path / "whole")
    for name in ("config.json", "bertsmith.json"):
        one, other = (
            json.loads((run / "model" / name).read_text()) for run in (run, tmp_path / "whole")
        )
        one.get("files", {}).pop("README.md", None)
        other.get("files", {}).pop("README.md", None)
        assert one == other


def test_torchrun_resumes_its_own_run_after_a_machine_came_or_went(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its restart count stays 0 then; the id of the job tells."""
    made, run = recipe(train={"steps": 8}), tmp_path / "run"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    stopped_run(made, run, monkeypatch)
    for other in ("job-8", "none"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", other)
        with pytest.raises(BertsmithError, match="resume=True continues it"):
            pretrain(made, run, show="none")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    found = pretrain(made, run, show="none")
    assert (found["finished"], found["steps"]) == (True, 8)
