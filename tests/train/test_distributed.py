"""Several processes train as one does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from select import select
from typing import Any

import pytest
from safetensors.torch import load_file

from bertsmith.errors import BertsmithError
from bertsmith.train import Recipe, pretrain, verify_resume
from model.tiny import TINY
from processes import python
from sampled import sampled
from train.conftest import SMALL
from train.test_gradients import errors, small

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
PATIENCE = 300  # seconds, after which ranks wait for one another in vain
Runner = Callable[..., Path]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Train by a recipe in so many processes; see ranks.py."""
    errors = tmp_path_factory.mktemp("ranks") / "errors.txt"
    with errors.open("w") as stderr:
        server = python(
            Path(__file__).with_name("ranks.py"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    assert server.stdin is not None
    assert server.stdout is not None

    def run(
        recipe: Recipe, out: Path, count: int, resume: bool = False, gradients: int = 0
    ) -> Path:
        file = out.with_suffix(".toml")
        file.write_text(recipe.toml())
        order = {"recipe": str(file), "out": str(out), "ranks": count}
        order |= {"resume": resume, "gradients": gradients}
        print(json.dumps(order), file=server.stdin, flush=True)
        assert select([server.stdout], [], [], PATIENCE)[0], "the ranks wait for one another"
        assert json.loads(server.stdout.readline() or "[]") == [0] * count, errors.read_text()
        return out

    yield run
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def assert_alike(one: Path, other: Path) -> None:
    mine, theirs = rows(one), rows(other)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys()
        for key in a.keys() - {"samples"}:
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
        train={"steps": 8, "micro_tokens": 180, "ema": 0.5},
        evaluate={"every": 4},
    )


def difference(one: Path, other: Path) -> float:
    """The relative L2 distance of two runs' weights."""
    mine, theirs = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    gap = sum(float((mine[name] - theirs[name]).double().square().sum()) for name in mine)
    size = sum(float(weight.double().square().sum()) for weight in mine.values())
    return float((gap / size) ** 0.5)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one process, by optimizer."""
    return {}


CASES = [
    (optimizer, count, parallel)
    for optimizer in ("adamw", "lamb", "stable_adamw", "muon")
    for count, parallel in ((2, "ddp"), (4, "ddp"), (2, "fsdp"), (4, "fsdp"))
]
QUICK = {("adamw", 2, "ddp"), ("muon", 2, "fsdp")}


@pytest.mark.parametrize(("optimizer", "count", "parallel"), sampled(CASES, QUICK))
def test_several_processes_train_the_model_of_one(
    optimizer: str,
    count: int,
    parallel: str,
    plain: Recipe,
    ranks: Runner,
    tmp_path: Path,
    alone: dict[str, Path],
) -> None:
    changes = {"optimizer": optimizer, "steps": 20, "parallel": parallel, "micro_tokens": 256}
    made = plain.model_copy(update={"train": plain.train.model_copy(update=changes)})
    if optimizer not in alone:
        alone[optimizer] = ranks(made, tmp_path / "one", 1)
    several = ranks(made, tmp_path / "several", count)
    assert_alike(alone[optimizer], several)
    # Muon's iterations amplify the smallest singular values of a gradient, so its rounding too,
    # some hundred times.
    assert difference(alone[optimizer], several) < (1e-4 if optimizer == "muon" else 1e-6)
    summary = json.loads((several / "summary.json").read_text())
    assert summary["ranks"] == count
    assert summary["useful_share"] > 0.9


@pytest.mark.parametrize("family", sampled(TINY, {"bert"}))
def test_half_precision_is_the_same_on_several_ranks(
    family: str, recipe: Any, ranks: Runner, tmp_path: Path
) -> None:
    """Gradients of two processes, whole copies or shards, are as near float32's as those of one."""
    made = small(recipe, family, "next")

    def found(name: str, count: int, **train: Any) -> dict[str, Any]:
        changed = made.model_copy(update={"train": made.train.model_copy(update=train)})
        return load_file(ranks(changed, tmp_path / name, count, gradients=2048))

    whole = found("whole", 1)
    rounding = max(errors(found("half", 1, precision="bfloat16"), whole).values())
    assert rounding < 0.03
    for parallel in ("ddp", "fsdp"):
        half = found(parallel, 2, precision="bfloat16", parallel=parallel)
        gaps = errors(half, whole)
        worst = sorted(gaps.items(), key=lambda one: -one[1])[:5]
        assert worst[0][1] < 1.25 * rounding, worst
        same = found(f"{parallel} in float32", 2, parallel=parallel)
        assert max(errors(same, whole).values()) < 1e-4


def test_texts_are_compared_with_those_of_all_ranks(
    recipe: Any, ranks: Runner, tmp_path: Path
) -> None:
    """Half the pairs on each rank, in one pass or in several: the gradient is that of one rank."""
    made = small(recipe, "bert", "crops")

    def found(name: str, count: int, micro_tokens: int, parallel: str = "ddp") -> dict[str, Any]:
        train = made.train.model_copy(update={"parallel": parallel})
        changed = made.model_copy(update={"train": train})
        return load_file(ranks(changed, tmp_path / name, count, gradients=micro_tokens))

    whole = found("whole", 1, 4096)
    for count, micro_tokens, parallel in ((2, 4096, "ddp"), (2, 300, "fsdp"), (3, 450, "ddp")):
        same = found(f"{count}-{micro_tokens}", count, micro_tokens, parallel)
        assert max(errors(same, whole).values()) < 1e-5


@pytest.mark.slow
def test_torchrun_starts_it(plain: Recipe, ranks: Runner, tmp_path: Path) -> None:
    one, two = ranks(plain, tmp_path / "one", 1), tmp_path / "two"
    command = [*TORCHRUN, "-m", "bertsmith.cli", "pretrain", str(one.with_suffix(".toml"))]
    done = subprocess.run(
        [*command, "--out", str(two), "--view", "none"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert_alike(one, two)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_rank(plain: Recipe, ranks: Runner, tmp_path: Path) -> None:
    """A rank is killed after some steps: all begin again, from the newest checkpoint."""
    long = plain.train.model_copy(update={"steps": 100})
    kept = plain.checkpoint.model_copy(update={"every": 5})
    made = plain.model_copy(update={"train": long, "checkpoint": kept})
    whole = ranks(made, tmp_path / "whole", 2)
    run = tmp_path / "run"
    command = [*TORCHRUN, "--max-restarts=2", "-m", "bertsmith.cli", "pretrain"]
    command += [str(whole.with_suffix(".toml")), "--out", str(run), "--view", "none"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as group:
        while not (run / "checkpoints" / "step-00000010").exists():
            assert group.poll() is None, group.communicate()[1]
            time.sleep(0.02)
        children = subprocess.run(
            ["pgrep", "-P", str(group.pid)], capture_output=True, text=True, check=True
        )
        os.kill(int(children.stdout.split()[-1]), signal.SIGKILL)
        _, error = group.communicate(timeout=PATIENCE)
    assert group.returncode == 0, error
    assert (run / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()
    assert difference(whole, run) == 0


def test_a_recipe_that_leaves_ranks_idle_is_refused(
    plain: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.train.distributed.Ranks.broadcast", lambda self, value: value)
    monkeypatch.setattr(
        "bertsmith.train.distributed.Ranks.process_group", lambda self: nullcontext()
    )
    monkeypatch.setenv("WORLD_SIZE", "64")
    with pytest.raises(BertsmithError, match=r"64 devices .* use train\.batch_tokens="):
        pretrain(plain, tmp_path / "run", show="none")
    assert not (tmp_path / "run").exists()


def test_another_number_of_processes_goes_on(plain: Recipe, ranks: Runner, tmp_path: Path) -> None:
    whole = ranks(plain, tmp_path / "whole", 1)
    half = plain.model_copy(update={"train": plain.train.model_copy(update={"steps": 4})})
    run = ranks(half, tmp_path / "part", 1)
    # The same run with its full number of steps, from there on with two processes.
    (run / "recipe.toml").write_text(plain.toml())
    ranks(plain, run, 2, resume=True)
    mine, theirs = ([r for r in rows(x) if "loss" in r] for x in (whole, run))
    assert [r["samples"] for r in mine] == [r["samples"] for r in theirs]
    for a, b in zip(mine, theirs, strict=True):
        if a["step"] <= 4:  # the schedule knew another end
            continue
        assert a["masked_lm"] == pytest.approx(b["masked_lm"], abs=0.2)


@pytest.mark.slow
def test_kills_are_survived_to_the_bit() -> None:
    """Five real kills of one process, five of two; the script does hundreds when asked."""
    script = Path(__file__).parents[1] / "slow" / "kill_runs.py"
    command = [sys.executable, str(script), "--ranks", "1", "2", "--kills=5", "--each=5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs equal") == 2


@pytest.mark.slow
def test_a_person_can_prove_it(recipe: Any) -> None:
    found = verify_resume(recipe(train={"steps": 8}), steps=8, kills=1)
    assert found["equal"], found
    assert found["kills"] == 1
    with pytest.raises(BertsmithError, match="time budget"):
        verify_resume(recipe(train={"steps": 0, "minutes": 1}))


@pytest.mark.slow
def test_two_ranks_learn_from_a_teacher(
    recipe: Callable[..., Recipe], ranks: Runner, tmp_path: Path
) -> None:
    """Relations leave some parameters without a gradient, of which every rank must know."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    shape = {"size": "bert-tiny", "settings": {**SMALL, **off}}
    pretrain(recipe(model=shape, train={"steps": 1}), tmp_path / "teacher", show="none")
    table = {"model": str(tmp_path / "teacher" / "model")}
    made = recipe(
        model=shape, objectives={"relations": 1.0}, teacher=table, train={"steps": 4, "seed": 5}
    )
    pretrain(made, tmp_path / "one", show="none")
    ranks(made, tmp_path / "two", 2)
    alone, both = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("one", "two"))
    for name, weights in alone.items():
        assert float((weights - both[name]).norm() / weights.norm().clamp(min=1e-3)) < 1e-4, name
