"""An interrupted fine-tuning keeps the best epoch, and continues to the same result."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from safetensors.numpy import load_file

from bertsmith import BertsmithError, load
from bertsmith.finetuning import Interrupted, finetune
from finetuning.conftest import FAST, Write, labelled
from tasks.models import Maker


class Stopper:
    """Interrupts a run in a step, by an exception or by a signal."""

    def __init__(self, at: int, number: int = 0) -> None:
        self.at, self.number, self.steps = at, number, 0

    def step(self, done: int, total: int, loss: float) -> None:
        self.steps += 1
        if self.steps == self.at:
            if not self.number:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.number)

    def epoch(self, row: dict[str, Any]) -> None: ...


def weights(folder: Path) -> dict[str, bytes]:
    return {name: one.tobytes() for name, one in load_file(folder / "model.safetensors").items()}


def report(folder: Path) -> dict[str, Any]:
    """The report of a run, without how long anything took."""
    content = json.loads((folder / "report.json").read_text())
    del content["examples_per_second"]
    for name in ("baseline", "vectors"):
        (content.get(name) or {}).pop("seconds", None)
    return content


@pytest.mark.parametrize(
    ("more", "at"),
    [
        ({}, 5),
        pytest.param({"optimizer": "muon"}, 8, marks=pytest.mark.slow),
        pytest.param({"patience": 1, "learning_rate": 1e-7}, 5, marks=pytest.mark.slow),
        pytest.param({"seeds": 2}, 10, marks=pytest.mark.slow),
        ({"sweep": True, "sweep_rates": (1e-6, 3e-3), "sweep_epochs": (2,), "seeds": 2}, 7),
    ],
)
def test_resuming_gives_the_same_model(
    made: Maker, write: Write, tmp_path: Path, more: dict[str, Any], at: int
) -> None:
    """Three steps an epoch, with dropout; bit for bit."""
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    settings: dict[str, Any] = {**FAST, "epochs": 3, "batch_size": 8, "device": "cpu", **more}
    settings |= {"dev": file, "test": file}
    finetune(folder, file, tmp_path / "whole", **settings)
    out = tmp_path / "out"
    with pytest.raises(Interrupted, match="resume=True continues"):
        finetune(folder, file, out, watch=Stopper(at), **settings)
    first = json.loads((out / "report.json").read_text())
    assert first["interrupted"]
    assert load(out, device="cpu").classify("Paris").label in ("city", "thing")
    counter = Stopper(-1)
    finetune(folder, file, out, resume=True, watch=counter, **settings)
    assert weights(out) == weights(tmp_path / "whole")
    assert report(out) == report(tmp_path / "whole")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["out", "t.jsonl", "whole"]


def test_finished_seeds_are_not_trained_again(made: Maker, write: Write, tmp_path: Path) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    settings: dict[str, Any] = {**FAST, "epochs": 2, "batch_size": 8, "dev": file, "seeds": 3}
    with pytest.raises(Interrupted):
        finetune(folder, file, tmp_path / "out", watch=Stopper(15), **settings)
    counter = Stopper(-1)
    result = finetune(folder, file, tmp_path / "out", resume=True, watch=counter, **settings)
    assert counter.steps == 6  # the third seed's; two were finished
    assert [run.model is None for run in result.seeds].count(False) == 1
    assert len(result.to_dict()["seeds"]) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_keep_the_best_epoch(
    made: Maker, write: Write, tmp_path: Path, number: int
) -> None:
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=r"epoch 1 of 3\) is in"):
        finetune(folder, file, out, dev=file, epochs=3, batch_size=8, watch=Stopper(3, number))
    assert signal.getsignal(number) is before
    assert report(out)["interrupted"] == {"epochs": 1, "of": 3}


def test_what_cannot_be_resumed(made: Maker, write: Write, tmp_path: Path) -> None:
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 8, "hold_out": 0}
    with pytest.raises(BertsmithError, match="no interrupted run to resume"):
        finetune(folder, file, out, resume=True, **settings)
    with pytest.raises(Interrupted, match="nothing was written"):
        finetune(folder, file, out, watch=Stopper(1), **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.jsonl"]
    with pytest.raises(Interrupted):
        finetune(folder, file, out, watch=Stopper(3), **settings)
    for _ in range(2):  # with the best epoch so far, and without
        with pytest.raises(
            BertsmithError, match="an interrupted run; continue it with resume=True"
        ):
            finetune(folder, file, out, **settings)
        rmtree(out, ignore_errors=True)
    with pytest.raises(BertsmithError, match="started with epochs 3, not 4; use the same options"):
        finetune(folder, file, out, resume=True, **{**settings, "epochs": 4})
    other = write("u.jsonl", labelled(18))
    with pytest.raises(BertsmithError, match="the data changed since"):
        finetune(folder, other, out, resume=True, **settings)
    finetune(folder, file, out, resume=True, **settings)
    assert report(out)["interrupted"] is None
    with pytest.raises(BertsmithError, match="this run has ended; there is nothing to resume"):
        finetune(folder, file, out, resume=True, **settings)
    with pytest.raises(BertsmithError, match="not empty"):
        finetune(folder, file, out, **settings)


def test_an_epoch_that_was_shown_is_stored(made: Maker, write: Write, tmp_path: Path) -> None:
    class Shown(Stopper):
        def epoch(self, row: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "hold_out": 0}
    with pytest.raises(Interrupted, match="and the same command with resume=True continues"):
        finetune(folder, file, out, watch=Shown(0), **settings)
    told: list[int] = []
    Shown.epoch = lambda self, row: told.append(row["epoch"])  # type: ignore[method-assign]
    finetune(folder, file, out, resume=True, watch=Shown(0), **settings)
    assert told == [2]


def test_interrupted_before_anything_was_stored(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "hold_out": 0}
    with monkeypatch.context() as patched:
        patched.setattr("bertsmith.train.loop.Trainer.save", stop)
        with pytest.raises(Interrupted, match="but it cannot be continued"):
            finetune(folder, file, out, **settings)
    with pytest.raises(BertsmithError, match="name another folder, or use overwrite=True"):
        finetune(folder, file, out, **settings)
    finetune(folder, file, out, overwrite=True, **settings)


def test_an_older_model_stays_until_the_new_one_is_whole(
    made: Maker, write: Write, tmp_path: Path
) -> None:
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "hold_out": 0}
    finetune(folder, file, out, **settings)
    before = weights(out)
    again = {**settings, "seed": 5, "overwrite": True}
    with pytest.raises(Interrupted, match="is as it was before"):
        finetune(folder, file, out, watch=Stopper(3), **again)
    assert weights(out) == before
    with pytest.raises(BertsmithError, match="an older model; use resume=True with overwrite=True"):
        finetune(folder, file, out, resume=True, **{**again, "overwrite": False})
    finetune(folder, file, out, resume=True, **again)
    assert weights(out) != before


def test_a_folder_that_appears_while_it_trains_is_left_alone(
    made: Maker, write: Write, tmp_path: Path
) -> None:
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"

    class Maker(Stopper):
        def epoch(self, row: dict[str, Any]) -> None:
            out.mkdir()
            (out / "thesis.txt").write_text("mine")

    with pytest.raises(BertsmithError, match="not empty"):
        finetune(folder, file, out, epochs=1, hold_out=0, watch=Maker(-1))
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    (out / "thesis.txt").unlink()
    finetune(folder, file, out, epochs=1, hold_out=0, resume=True, watch=Stopper(1))  # no step left
    assert (out / "model.safetensors").exists()


def test_two_commands_cannot_write_one_directory(made: Maker, write: Write, tmp_path: Path) -> None:
    folder, file, out = made("bert", "Model").folder, write("t.jsonl", labelled(16)), tmp_path / "o"
    seen: list[str] = []

    class Second(Stopper):
        def step(self, done: int, total: int, loss: float) -> None:
            with pytest.raises(BertsmithError, match="another bertsmith process") as error:
                finetune(folder, file, out, epochs=1, hold_out=0)
            seen.append(str(error.value))

    finetune(folder, file, out, epochs=1, hold_out=0, batch_size=16, watch=Second(-1))
    assert len(seen) == 1
    assert (out / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["n" * 300, "file/below"])
def test_names_that_cannot_be_written_are_found_before_training(
    made: Maker, write: Write, tmp_path: Path, name: str
) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(16))
    (tmp_path / "file").write_text("")
    with pytest.raises(BertsmithError, match="cannot be written") as error:
        finetune(folder, file, tmp_path / name, epochs=1, watch=Stopper(1))
    assert "\n" not in str(error.value)
