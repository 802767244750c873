"""`bertsmith pretrain`, `plan`, `recipes`, `verify-resume` as a person types them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.corpus import prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import train

Run = Callable[..., Any]
SMALL = ["--set", "model.settings.hidden_size=32", "--set", "model.settings.num_attention_heads=2"]
SMALL += ["--set", "train.batch_tokens=256", "--set", "evaluate.tokens=256"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    text = folder / "text.txt"
    sentence = "The {} river runs past the {} house. A {} dog sleeps there.\n"
    words = ["old", "new", "red", "blue", "long", "short", "deep", "wide"]
    documents = [sentence.format(a, b, c) * 3 for a in words for b in words for c in words[:2]]
    text.write_text("\n".join(documents))
    train([text], "wordpiece", size=120).save(folder / "vocabulary")
    prepare([text], folder / "vocabulary", folder / "corpus", held_out=0.1, workers=0)
    return folder / "corpus"


def test_a_run_from_the_command_line(corpus: Path, tmp_path: Path, run: Run) -> None:
    given = ["tiny-bert", "--data", corpus, "--out", tmp_path / "run", *SMALL]
    shown = run("pretrain", *given, "--set", "train.steps=3", "--json")
    assert shown.status == 0, shown.err
    found = json.loads(shown.out)
    assert found["finished"]
    assert found["steps"] == 3
    assert "step      1" in shown.err  # lines where there is no terminal
    assert (tmp_path / "run" / "model" / "config.json").exists()
    with pytest.raises(BertsmithError, match="resume=True continues it"):
        run("pretrain", *given)
    resumed = run("pretrain", *given, "--resume", "--view", "none")
    assert resumed.status == 0
    assert "this run has ended at step 3" in resumed.err
    assert "own recipe: train.steps is 3" in resumed.err
    assert "steps                            3" in resumed.out
    from_it = run(
        "pretrain", "tiny-bert-no-nsp", "--data", corpus, "--from", tmp_path / "run" / "model",
        "--out", tmp_path / "more", "--set", "train.steps=1", "--view", "none", "--seed", 3,
    )  # fmt: skip
    assert from_it.status == 0, from_it.err
    assert "\nseed = 3\n" in (tmp_path / "more" / "recipe.toml").read_text()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["pretrain", "tiny-brt", "--out", "run"], "did you mean tiny-bert?"),
        (["pretrain", "tiny-bert", "--out", "run"], "no corpus: give data.corpus"),
        (["pretrain", "tiny-bert", "--out", "run", "--data", "nowhere"], "nowhere"),
        (["pretrain", "tiny-bert", "--out", "run", "--set", "train.steps"], "should look like"),
        (["pretrain", "tiny-bert", "--out", "run", "--resume"], "no run to resume"),
        (["plan", "tiny-bert", "--device", "abacus"], "unknown device"),
        (["plan", "tiny-bert", "--count", "0", "--device", "h200"], "at least one device"),
        (["recipes", "nothing"], "bertsmith has none of that name"),
        (["recipes", "--set", "a=b"], "needs a recipe"),
        (["verify-resume", "small-bert"], "time budget"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], fault: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertsmithError) as caught:
        run(*words)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_views_that_are_none(corpus: Path, tmp_path: Path, run: Run) -> None:
    given = ["tiny-bert", "--data", corpus, "--out", tmp_path / "run", "--view", "radio", *SMALL]
    with pytest.raises(BertsmithError, match="unknown view 'radio'; known: live, lines, none"):
        run("pretrain", *given)
    assert not (tmp_path / "run").exists()


def test_recipes_are_listed_and_printed(run: Run) -> None:
    listed = run("recipes")
    assert "tiny-bert " in listed.out
    assert all(len(line.split(None, 1)) == 2 for line in listed.out.splitlines())
    rows = [json.loads(line) for line in run("recipes", "--json").out.splitlines()]
    assert {"name", "about"} == rows[0].keys()
    printed = run("recipes", "bert-base", "--set", "train.seed=9")
    assert "seed = 9" in printed.out
    assert "steps = 900000" in printed.out
    assert json.loads(run("recipes", "bert-base", "--json").out)["train"]["steps"] == 1_000_000


def test_a_plan_is_shown(corpus: Path, run: Run) -> None:
    shown = run("plan", "tiny-bert", "--device", "h200", "--count", "2", "--data", corpus)
    assert shown.status == 0
    assert re.search(r"corpus .*: 100.0% of the tokens, [0-9,]+ times the text\n", shown.out)
    assert "tokens/s on 2 × h200 (estimated)" in shown.out
    found = json.loads(run("plan", "tiny-bert", "--device", "h200", "--json").out)
    assert found["steps"] == 600


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_says_so(number: int, corpus: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bertsmith.cli",
        "pretrain",
        "tiny-bert",
        "--data",
        str(corpus),
    ]
    command += ["--out", str(tmp_path / "run"), *SMALL, "--set", "train.steps=100000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    while not (tmp_path / "run" / "log.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "resume continues it" in error
    assert "Traceback" not in error
