"""Branches: a cool-down equals the same schedule run at once; a finished run is extended."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bertsmith as bs
from bertsmith.cli.app import app
from bertsmith.errors import BertsmithError
from bertsmith.pages.runs import compare_runs, read_run
from bertsmith.train import Recipe, pretrain

Make = Callable[..., Recipe]
STABLE = {"schedule": "stable", "warmup": 0.25, "ema": 0.9, "optimizer": "adamw"}


@pytest.fixture(scope="module")
def stable(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 12 steps at a constant rate, with checkpoints of steps 4, 8 and 12."""
    from train.conftest import SMALL

    recipe = {
        "model": {"size": "bert-tiny", "settings": SMALL},
        "data": {"corpus": str(prepared), "length": 32},
        "train": {"steps": 12, "batch_tokens": 512, "learning_rate": 1e-3, "decay": 0.0} | STABLE,
        "evaluate": {"tokens": 256, "pseudo": 0, "every": 4},
        "checkpoint": {"every": 4, "keep": 9},
    }
    out = tmp_path_factory.mktemp("runs") / "stable"
    pretrain(Recipe.model_validate(recipe), out, show="none")
    return out


def files(run: Path) -> dict[str, bytes]:
    last = max((run / "checkpoints").glob("step-*"))
    names = [run / "log.jsonl", run / "model" / "model.safetensors"]
    names += sorted(last.glob("*.safetensors"))
    return {str(path.relative_to(run)): path.read_bytes() for path in names}


def test_a_cool_down_equals_the_same_schedule_run_at_once(stable: Path, tmp_path: Path) -> None:
    summary = pretrain(None, tmp_path / "cooled", branch=f"{stable}@8", cool_down=4, show="none")
    assert summary["steps"] == 12
    rows = [json.loads(line) for line in (tmp_path / "cooled/log.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if "loss" in row]
    assert rates[:3] == pytest.approx([0, 1e-3 / 3, 2e-3 / 3])
    assert rates[3:9] == [1e-3] * 6
    assert rates[9:] == pytest.approx([1e-3 * (1 - (n / 4) ** 0.5) for n in (1, 2, 3)])
    recipe = bs.train.load_recipe(tmp_path / "cooled" / "recipe.toml")
    assert (recipe.train.steps, recipe.train.decay, recipe.train.warmup) == (12, 4.0, 3.0)
    pretrain(recipe, tmp_path / "once", show="none")
    assert files(tmp_path / "cooled") == files(tmp_path / "once")
    assert files(tmp_path / "cooled") != files(stable)


def test_a_finished_run_is_extended_and_the_extension_resumes(stable: Path, tmp_path: Path) -> None:
    longer = bs.train.load_recipe(stable / "recipe.toml", ["train.steps=16", "train.warmup=3"])
    pretrain(longer, tmp_path / "once", show="none")
    pretrain(longer, tmp_path / "longer", branch=stable, show="none")
    assert files(tmp_path / "longer") == files(tmp_path / "once")
    again = pretrain(longer, tmp_path / "longer", resume=True, show="none")
    assert again["steps"] == 16


def test_other_data_from_a_branch_on(stable: Path, prepared: Path, tmp_path: Path) -> None:
    """A cool-down on other text: the samples are counted on, the tokens of corpora anew."""
    corpora = [{"path": str(prepared), "weight": 1.0}]
    base = bs.train.load_recipe(stable / "recipe.toml")
    data = base.data.model_copy(update={"length": 16, "corpus": "", "corpora": ()})
    made = base.model_copy(update={"data": data})
    made = Recipe.model_validate(made.model_dump() | {"data": {"corpora": corpora, "length": 16}})
    summary = pretrain(made, tmp_path / "run", branch=f"{stable}@4", cool_down=2, show="none")
    assert summary["steps"] == 6
    before = read_run(stable)
    assert summary["tokens"] < before.last("tokens")  # type: ignore[operator]


def test_runs_show_the_tree(stable: Path, tmp_path: Path) -> None:
    changes = {"train.steps": 9}
    short = bs.pretrain(out=tmp_path / "short", branch=f"{stable}@8", changes=changes, show="none")
    assert short.summary["steps"] == 9
    bs.pretrain(out=tmp_path / "cool", branch=f"{short.out}@9", cool_down=1, show="none")
    folders = [str(folder) for folder in (tmp_path / "cool", stable, tmp_path / "short")]
    shown = CliRunner().invoke(app, ["runs", *folders])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("stable"))
    assert lines[start : start + 3] == [
        "stable: 12 steps",
        "└── short: from step 8, 9 steps",
        "    └── cool: from step 9, 10 steps",
    ]
    rows = CliRunner().invoke(app, ["runs", *folders, "--json"]).output.splitlines()
    assert json.loads(rows[0])["branch"] == {"run": str(short.out.resolve()), "step": 9}
    assert json.loads(rows[1])["branch"] is None
    page = compare_runs([read_run(folder) for folder in folders]).html()
    assert "└── short: from step 8" in page
    alone = CliRunner().invoke(app, ["runs", folders[0]]).output  # its origin is not shown
    assert f"cool: from step 9 of {short.out.resolve()}, 10 steps" in alone


@pytest.mark.parametrize(
    ("step", "more", "why"),
    [
        (4, ["schedule=linear"], r"that of this run falls \(train.schedule = \"linear\"\)"),
        (8, ["decay=0.5"], r"that of this run falls from step 6 on"),
    ],
)
def test_a_cool_down_needs_a_constant_rate(
    stable: Path, tmp_path: Path, step: int, more: list[str], why: str
) -> None:
    """From the falling rate of another schedule, it would jump up to the peak first."""
    changes = [f"train.{one}" for one in more]
    falling = bs.train.load_recipe(stable / "recipe.toml", changes)
    pretrain(falling, tmp_path / "run", show="none")
    with pytest.raises(BertsmithError, match=f"a cool-down begins at a constant .* {why}"):
        pretrain(
            None, tmp_path / "cooled", branch=f"{tmp_path}/run@{step}", cool_down=4, show="none"
        )
    assert not (tmp_path / "cooled").exists()
    pretrain(
        None, tmp_path / "longer", branch=f"{tmp_path}/run@{step}",
        changes=["train.steps=13"], show="none",
    )  # fmt: skip


def test_a_recipe_in_hand_takes_no_changes(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="of a recipe that is named; this one lacks train"):
        pretrain(recipe(), tmp_path / "run", changes=["train.steps=3"], show="none")


def test_mistakes(stable: Path, tmp_path: Path) -> None:
    def fault(*words: Any) -> str:
        run = CliRunner().invoke(app, ["pretrain", *map(str, words), "--out", str(tmp_path / "x")])
        assert isinstance(run.exception, BertsmithError)
        assert not (tmp_path / "x").exists()
        assert "\n" not in str(run.exception)
        return str(run.exception)

    changed = ["--set", "train.steps=20"]
    assert "no checkpoint of step 7; there are 0, 4, 8, 12" in fault("--branch", f"{stable}@7")
    assert "contains no run to branch from" in fault("--branch", tmp_path / "nothing")
    assert "train.steps is 12: set more" in fault("--branch", stable)
    assert "name a recipe" in fault()
    assert "cool_down needs a branch" in fault("tiny-bert", "--cool-down", "5")
    assert "leave out branch" in fault("--branch", stable, "--resume", *changed)
    optimizer = fault("--branch", stable, *changed, "--set", "train.optimizer=muon")
    assert "a branch keeps train.optimizer, which is 'adamw', not 'muon'" in optimizer
    assert "a branch keeps objectives" in fault(
        "--branch", stable, *changed, "--set", "objectives.replaced=1"
    )
    assert "did you mean train.decay" in fault("--branch", stable, "--set", "train.decai=1")
    assert "train.decay is 50 steps" in fault(
        "--branch", stable, *changed, "--set", "train.decay=50"
    )
