"""Several processes fine-tune and distil together, with the result of one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from finetuning.conftest import FAST, Write, labelled
from finetuning.test_words import sentences
from processes import python
from tasks.models import Maker

Start = Callable[..., list[int]]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Run a verb in so many processes; see tests/train/ranks.py."""
    script = Path(__file__).parent.parent / "train" / "ranks.py"
    with python(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(ranks: int, verb: str, *given: Any, **settings: Any) -> list[int]:
            order = {"ranks": ranks, "verb": verb, "given": list(map(str, given))}
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(order | {"settings": settings}, default=str) + "\n")
            process.stdin.flush()
            ended: list[int] = json.loads(process.stdout.readline())
            return ended

        yield run
        assert process.stdin is not None
        process.stdin.close()


def gap(one: Path, other: Path) -> float:
    """The largest difference of two models' weights."""
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def scores(folder: Path) -> dict[str, float]:
    content = json.loads((folder / "report.json").read_text())
    found = {
        f"{split} {name}": x for split, row in content["scores"].items() for name, x in row.items()
    }
    return found | {"kept_epoch": content["kept_epoch"], "steps": content["steps"]}


PAIRS = [{"anchor": f"the {n} bees", "positive": f"a {n} storm"} for n in range(46)]
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "classification": (labelled(50), {"head_epochs": 1}),
    "tagging": (sentences(40), {}),
    "similarity": (PAIRS, {"task": "similarity"}),  # all items of a step learn together
    "frozen": (labelled(50), {"freeze": "encoder"}),
    "recomputed": (labelled(50), {"checkpointing": True, "ema": 0.9, "budget": 64}),
}


WAYS = {"2": (2, "ddp"), "4": (4, "ddp"), "fsdp": (2, "fsdp")}
FAST_PAIRS = {("classification", "fsdp"), ("tagging", "4"), ("similarity", "2")}
PAIRS_OF = [
    pytest.param(kind, way, marks=[] if (kind, way) in FAST_PAIRS else [pytest.mark.slow])
    for kind in CASES
    for way in WAYS
]


@pytest.mark.parametrize(("kind", "way"), PAIRS_OF)
def test_ranks_learn_what_one_process_learns(
    kind: str, way: str, base: Maker, write: Write, tmp_path: Path, start: Start
) -> None:
    """The last batch of an epoch has fewer items than ranks."""
    rows, more = CASES[kind]
    file, folder, out = write("t.jsonl", rows), base().folder, tmp_path / way
    settings: dict[str, Any] = {**FAST, "epochs": 2, "device": "cpu", "dev": file, "test": file}
    settings |= {"learning_rate": 1e-3, "batch_size": 16, **more}
    assert start(1, "finetune", folder, file, tmp_path / "alone", **settings) == [0]
    ranks, parallel = WAYS[way]
    ended = start(ranks, "finetune", folder, file, out, parallel=parallel, **settings)
    assert ended == [0] * ranks
    assert gap(tmp_path / "alone", out) < 1e-5
    assert scores(out) == pytest.approx(scores(tmp_path / "alone"), abs=1e-5)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("learn", ["task", pytest.param("vectors", marks=pytest.mark.slow)])
def test_ranks_distil_what_one_process_distils(
    learn: str, base: Maker, write: Write, tmp_path: Path, start: Start
) -> None:
    file, teacher = write("t.jsonl", labelled(40)), tmp_path / "teacher"
    settings: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 2, "device": "cpu"}
    assert start(1, "finetune", base().folder, file, teacher, dev=file, **settings) == [0]
    outs = [tmp_path / f"{learn}-{ranks}" for ranks in (1, 2)]
    for ranks, out in enumerate(outs, 1):
        ended = start(ranks, "distill", teacher, file, out, learn=learn, layers=1, **settings)
        assert ended == [0] * ranks
    assert gap(*outs) < 1e-5


@pytest.mark.slow
def test_seeds_and_a_resume_of_ranks(
    base: Maker, write: Write, tmp_path: Path, start: Start
) -> None:
    file = write("t.jsonl", labelled(32))
    settings: dict[str, Any] = {**FAST, "epochs": 2, "device": "cpu", "dev": file, "seeds": 2}
    assert start(2, "finetune", base().folder, file, tmp_path / "two", **settings) == [0, 0]
    assert start(1, "finetune", base().folder, file, tmp_path / "one", **settings) == [0]
    assert gap(tmp_path / "one", tmp_path / "two") < 1e-4
    assert start(2, "finetune", base().folder, file, tmp_path / "two", **settings) == [1, 1]
