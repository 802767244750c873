"""Several processes train as one does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from bertsmith.errors import BertsmithError
from bertsmith.train import Recipe, verify_resume

RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]

# The command, with a second rank that is late: what the first wrote meanwhile is on disk.
LATE = """
import os, time
from bertsmith.cli.app import main
from bertsmith.train.loop import Trainer

def run(self, run=Trainer.run):
    time.sleep(2 * int(os.environ.get("RANK", "0")))
    return run(self)

Trainer.run = run
main()
"""


def trained(recipe: Recipe, folder: Path, name: str, ranks: int, *more: str) -> Path:
    """A run by the command line, alone or with torchrun."""
    file = folder / f"{name}.toml"
    file.write_text(recipe.toml())
    script = folder / "late.py"
    script.write_text(LATE)
    launch = [*RUN, f"--nproc-per-node={ranks}"] if ranks > 1 else [sys.executable]
    command = [*launch, str(script), "pretrain", str(file), "--out", str(folder / name)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--view", "none", *more],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / name


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def assert_alike(one: Path, other: Path) -> None:
    mine, theirs = rows(one), rows(other)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert a[key] == pytest.approx(b[key], abs=1e-5, rel=1e-5), key
    left, right = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    for name in left:
        assert float((left[name] - right[name]).abs().max()) < 1e-4, name


STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture
def plain(recipe: Any) -> Recipe:
    """No dropout: its draws differ from rank to rank. Steps have an odd number of parts."""
    base = recipe()
    settings = {**base.model.settings, **STILL}
    return recipe(
        model={"size": "bert-tiny", "settings": settings},
        data={"format": "next"},
        objectives={"masked_lm": 1, "next_sentence": 1},
        train={"steps": 8, "micro_tokens": 180},
        evaluate={"every": 4},
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_give_the_losses_of_one(how: str, plain: Recipe, tmp_path: Path) -> None:
    two = plain.model_copy(update={"train": plain.train.model_copy(update={"parallel": how})})
    assert_alike(trained(plain, tmp_path, "one", 1), trained(two, tmp_path, "two", 2))


@pytest.mark.slow
def test_another_number_of_processes_goes_on(plain: Recipe, tmp_path: Path) -> None:
    whole = trained(plain, tmp_path, "whole", 1)
    half = plain.model_copy(update={"train": plain.train.model_copy(update={"steps": 4})})
    run = trained(half, tmp_path, "part", 1)
    # The same run with its full number of steps, from there on with two processes.
    (run / "recipe.toml").write_text(plain.toml())
    trained(plain, tmp_path, "part", 2, "--resume")
    mine, theirs = ([r for r in rows(x) if "loss" in r] for x in (whole, run))
    assert [r["samples"] for r in mine] == [r["samples"] for r in theirs]
    for a, b in zip(mine, theirs, strict=True):
        if a["step"] <= 4:  # the schedule knew another end
            continue
        assert a["masked_lm"] == pytest.approx(b["masked_lm"], abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_kills_are_survived_to_the_bit(ranks: int) -> None:
    """Ten real kills of one process, four of two; the script does two hundred when asked."""
    script = Path(__file__).parents[1] / "slow" / "kill_runs.py"
    command = [sys.executable, str(script), f"--ranks={ranks}", f"--kills={(10, 4)[ranks - 1]}"]
    done = subprocess.run([*command, "--each=5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "runs equal" in done.stdout


@pytest.mark.slow
def test_a_person_can_prove_it(recipe: Any) -> None:
    found = verify_resume(recipe(train={"steps": 16}), steps=16, kills=2)
    assert found["equal"], found
    assert found["kills"] == 2
    with pytest.raises(BertsmithError, match="by the clock"):
        verify_resume(recipe(train={"steps": 0, "minutes": 1}))
