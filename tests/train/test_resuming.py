"""A run that was killed, stopped or damaged goes on as if nothing had happened."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bertsmith.checkpoint import read
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.files import digest
from bertsmith.train import pretrain
from bertsmith.train.state import Checkpoints
from bertsmith.train.step import TrainingStep
from model.tiny import TINY
from sampled import sampled
from train.recipes import OBJECTIVES, Make, log


def sums(run: Path) -> dict[str, str]:
    last = Checkpoints(run / "checkpoints").path(Checkpoints(run / "checkpoints").steps()[-1])
    files = [run / "log.jsonl", *sorted(last.glob("*.safetensors"))]
    return {path.name: digest(path) for path in [*files, run / "model" / "model.safetensors"]}


class KilledError(Exception):
    """A run that ended as if it were killed."""


@pytest.mark.parametrize("objective", sampled(["next", "replaced"], {"replaced"}))
def test_a_killed_run_goes_on_to_the_bit(
    objective: str, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped within each step, also before its log line and after it, then resumed."""
    made = recipe(
        model={"size": "bert-tiny", "settings": {**TINY["bert"], "vocab_size": 640}},
        train={"ema": 0.9, "steps": 10},
        stages=[{"length": 24, "steps": 3}, {"length": 32}],
        **OBJECTIVES[objective],
    )
    pretrain(made, tmp_path / "whole", show="none")
    update, count = TrainingStep._update, 0

    def fragile(step: TrainingStep, *arguments: Any) -> None:
        nonlocal count
        update(step, *arguments)
        count += 1
        if count in (1, 3, 6, 9):
            raise KilledError

    monkeypatch.setattr(TrainingStep, "_update", fragile)
    resume = False
    for _ in range(10):
        try:
            pretrain(made, tmp_path / "killed", show="none", resume=resume)
            break
        except KilledError:
            resume = True
    assert count > 10
    assert sums(tmp_path / "killed") == sums(tmp_path / "whole")


@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGINT], {signal.SIGTERM}))
def test_a_signal_saves_and_resuming_ends_alike(number: int, recipe: Make, tmp_path: Path) -> None:
    made = recipe(train={"steps": 40}, checkpoint={"every": 0})
    pretrain(made, tmp_path / "whole", show="none")

    def soon() -> None:
        while not (tmp_path / "run" / "log.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=soon).start()
    found = pretrain(made, tmp_path / "run", show="none")
    assert not found["finished"]
    assert found["signal"] == number
    assert 0 < found["steps"] < 40
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps()[-1] == found["steps"]
    again = pretrain(made, tmp_path / "run", show="none", resume=True)
    assert again["finished"]
    assert sums(tmp_path / "run") == sums(tmp_path / "whole")


def test_a_finished_run_resumed_changes_nothing(recipe: Make, tmp_path: Path) -> None:
    made = recipe(train={"steps": 3})
    found = pretrain(made, tmp_path / "run", show="none")
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    before = {path: digest(path) for path in files}
    assert pretrain(made, tmp_path / "run", show="none", resume=True) == found
    assert {path: digest(path) for path in files} == before


def test_a_run_goes_on_by_its_own_recipe_and_says_so(
    recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(recipe(train={"steps": 3}), tmp_path / "run", show="none")
    other = recipe(train={"steps": 5, "learning_rate": 0.5}, masking={"rate": 0.4})
    assert pretrain(other, tmp_path / "run", show="lines", resume=True)["steps"] == 3
    said = capsys.readouterr()
    text = said.out + said.err
    assert "continuing with the run's own recipe: train.steps is 3, not 5" in text
    assert "masking.rate is 0.15, not 0.4" in text
    assert "train.seed" not in text
    assert "this run has ended at step 3" in text


def test_a_damaged_checkpoint_is_named_and_passed_over(
    recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recipe(train={"steps": 8})
    pretrain(made, tmp_path / "run", show="none")
    before = sums(tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "step-00000008" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    pretrain(made, tmp_path / "run", show="lines", resume=True)
    said = capsys.readouterr().err
    assert "step-00000008/model.safetensors: damaged" in said
    assert "going back to step 4" in said
    assert sums(tmp_path / "run") == before


def test_what_cannot_be_resumed(
    recipe: Make, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BertsmithError, match="no run to resume"):
        pretrain(recipe(), tmp_path / "none", resume=True, show="none")
    made = recipe(train={"steps": 1})
    pretrain(made, tmp_path / "run", show="none")
    with pytest.raises(BertsmithError, match="already contains a run"):
        pretrain(made, tmp_path / "run", show="none")
    state = tmp_path / "run" / "checkpoints" / "step-00000001" / "state.json"
    assert json.loads(state.read_text())["corpus"] == Corpus.open(prepared).fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "fingerprint", lambda corpus: "another")
        with pytest.raises(BertsmithError, match="the run was started with another corpus"):
            pretrain(made, tmp_path / "run", resume=True, show="none")
    for file in (tmp_path / "run" / "checkpoints").glob("*/model.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(BertsmithError, match="no intact checkpoint to continue from"):
        pretrain(made, tmp_path / "run", resume=True, show="none")


# ------------------------------------------------------------------ going on from a model


def test_going_on_from_a_directory(recipe: Make, tmp_path: Path) -> None:
    first = recipe(train={"steps": 12})
    pretrain(first, tmp_path / "one", show="none")
    model = tmp_path / "one" / "model"
    go_on = recipe(model={"start": str(model)}, train={"steps": 1})
    pretrain(go_on, tmp_path / "two", show="none")
    held = log(tmp_path / "one")[-1]["held_out_masked_lm"]
    assert log(tmp_path / "two")[-1]["held_out_masked_lm"] == pytest.approx(held, abs=0.05)
    # A new objective brings a new head; the rest is read.
    pairs = recipe(model={"start": str(model)}, train={"steps": 1}, **OBJECTIVES["next"])
    pretrain(pairs, tmp_path / "three", show="none")
    assert read(tmp_path / "three" / "model").entries.keys() >= {"masked_lm", "next_sentence"}


def test_a_directory_with_another_vocabulary_is_refused(recipe: Make, tmp_path: Path) -> None:
    from bertsmith.checkpoint import Sentence, create, save
    from bertsmith.tokenizer import train

    (tmp_path / "text.txt").write_text("some other words " * 9)
    tokenizer = train([tmp_path / "text.txt"], "wordpiece", size=60, min_frequency=1)
    save(tmp_path / "other", create(TINY["bert"], vocab_size=60), tokenizer, Sentence())
    with pytest.raises(BertsmithError, match="its vocabulary is not the one"):
        pretrain(recipe(model={"start": str(tmp_path / "other")}), tmp_path / "run", show="none")
    assert not (tmp_path / "run").exists()
