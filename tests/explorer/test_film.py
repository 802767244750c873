"""The film of a run: its page gives what torch gives at every step, and is moved by keyboard."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from analysis.browser import Watched, chromium
from bertsmith.batch import Batch
from bertsmith.cli.app import app
from bertsmith.errors import BertsmithError
from bertsmith.explorer import film
from bertsmith.explorer.film import load_step
from bertsmith.infer.opening import open_model
from bertsmith.train import pretrain
from bertsmith.train.recipe import checked
from bertsmith.train.state import Checkpoints
from explorer.node import worker
from train.conftest import SMALL
from train.conftest import prepared as prepared

TEXT = "the [MASK] of a function is an object and its name is [MASK]."
STEPS = [0, 1, 2, 4, 8, 16, 32, 40]


@pytest.fixture(scope="module")
def filmed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose predictions change: large steps, few weights."""
    out = tmp_path_factory.mktemp("film") / "run"
    recipe = {
        "model": {"size": "bert-tiny", "settings": SMALL},
        "data": {"corpus": str(prepared), "length": 32, "format": "next"},
        "objectives": {"masked_lm": 1.0, "next_sentence": 1.0},
        "train": {"steps": 40, "batch_tokens": 1024, "micro_tokens": 1024, "learning_rate": 0.01},
        "evaluate": {"tokens": 512, "pseudo": 1, "every": 20},
        "checkpoint": {"every": 0, "film": True},
    }
    pretrain(checked(recipe, "test"), out, show="none")
    return out


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_probabilities_are_those_of_torch_at_every_step(
    dtype: str, filmed: Path, tmp_path: Path
) -> None:
    done = film(filmed, tmp_path / "film.html", dtype=dtype)
    assert done["steps"] == STEPS
    bert, checkpoints = open_model(filmed / "model", device="cpu"), Checkpoints(filmed / "film")
    encoding = bert.tokenizer.encode(TEXT, spelled="mask")
    rows = [at for at, token in enumerate(encoding.ids) if token == bert.tokenizer.mask_id]
    assert len(rows) == 2
    seen = []
    with worker(tmp_path / "film.html") as page:
        for number, step in enumerate(STEPS):
            load_step(bert, checkpoints, step)
            with torch.inference_mode():
                batch = Batch.of([encoding.ids], [encoding.segments])
                ours = bert.model(batch, "masked_lm", torch.tensor(rows)).softmax(-1)
            asked = {"head": "masked_lm", "first": TEXT, "rows": rows, "checkpoint": number}
            logits = torch.tensor(page.ask("logits", **asked)["logits"])
            theirs = logits.softmax(-1)
            assert (ours - theirs).abs().max() < (1e-2 if dtype == "int8" else 1e-3)
            seen.append(ours)
            guess = page.ask("guess", first=TEXT, second=None, checkpoint=number)["masks"]
            assert [one["score"] for one in guess] == pytest.approx(
                logits[:, : bert.tokenizer.size].softmax(-1).max(-1).values.tolist(), abs=1e-4
            )
    assert (seen[0] - seen[-1]).abs().max() > 0.03  # so that a page of one step would fail


def test_neighbours_are_those_of_the_vectors(filmed: Path, tmp_path: Path) -> None:
    film(filmed, tmp_path / "film.html", dtype="float16")
    bert, token = open_model(filmed / "model", device="cpu"), 300
    load_step(bert, Checkpoints(filmed / "film"), 40)
    vectors = torch.nn.functional.normalize(bert.model.encoder.embedding.token.weight.data, dim=-1)
    cosines = vectors @ vectors[token]
    cosines[[token, *bert.tokenizer.special_ids]] = -2
    best = cosines[: bert.tokenizer.size].topk(4)
    with worker(tmp_path / "film.html") as page:
        shown = page.ask("chart", ids=[token, 310], top=3)
        near = page.ask("near", token=token, top=4)
    assert [one["id"] for one in near["nearest"]] == best.indices.tolist()
    assert [one["score"] for one in near["nearest"]] == pytest.approx(
        best.values.tolist(), abs=2e-3
    )
    ids = [word["id"] for word in shown["words"]]
    assert set(best.indices[:3].tolist()) <= set(ids)
    # The two directions are those of a principal component analysis, up to their signs.
    own = vectors[ids] - vectors[ids].mean(0)
    axes = torch.linalg.svd(own, full_matrices=False).Vh[:2]
    places = torch.tensor(near["places"])
    assert places.abs() == pytest.approx((own @ axes.T).abs(), abs=0.02)


def test_a_small_page_leaves_out_the_first_steps(filmed: Path, tmp_path: Path) -> None:
    whole = film(filmed, tmp_path / "whole.html")
    less = film(filmed, tmp_path / "less.html", megabytes=0.13)
    assert less["steps"][0] == 0
    assert less["steps"][1] > 1
    assert less["steps"][-1] == 40
    assert less["bytes"] < whole["bytes"]
    with worker(tmp_path / "whole.html") as page, worker(tmp_path / "less.html") as other:
        last = [one.ask("guess", first=TEXT, second=None, checkpoint=at)["masks"]
                for one, at in ((page, 7), (other, len(less["steps"]) - 1))]  # fmt: skip
    assert last[0] == last[1]


def test_the_verb(filmed: Path, tmp_path: Path) -> None:
    def said(*words: str) -> Any:
        return CliRunner().invoke(app, ["export", *words])

    out = str(tmp_path / "film.html")
    done = said(str(filmed), "--html", out, "--example", TEXT, "--json")
    assert json.loads(done.output)["steps"] == STEPS
    refused = said(str(filmed / "model"), "--html", out, "--megabytes", "3")
    assert "--megabytes" in str(refused.exception)
    plain = tmp_path / "plain"
    shutil.copytree(filmed, plain)
    shutil.rmtree(plain / "film")
    with pytest.raises(BertsmithError, match=r"changes=\{'checkpoint\.film': True\}"):
        film(plain, out)
    shutil.copytree(filmed / "film", plain / "film")
    (plain / "summary.json").unlink()
    with pytest.raises(BertsmithError, match="has not ended"):
        film(plain, out)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.mark.slow
def test_the_slider_by_keyboard(browser: Any, filmed: Path, tmp_path: Path) -> None:
    film(filmed, tmp_path / "film.html", examples=[TEXT])
    shown = Watched(browser, tmp_path / "film.html")
    page = shown.page

    def press(key: str) -> None:
        runs = page.evaluate("document.documentElement.dataset.runs")
        page.keyboard.press(key)
        page.wait_for_selector(f"html:not([data-runs='{runs}'])")

    page.wait_for_function("document.querySelectorAll('#guesses td small').length === 16")
    assert page.inner_text("#step").startswith("Step 40 of 40")
    page.focus("#checkpoint")
    press("Home")
    assert page.inner_text("#step") == "Step 0: random weights"
    assert float(page.locator("[data-answer=masked_lm] .value").first.inner_text()[:-1]) < 5
    for step in STEPS[1:]:
        press("ArrowRight")
        assert page.inner_text("#step").startswith(f"Step {step} of 40")
        guess = page.locator(f"#guesses td[data-at='{STEPS.index(step)}']").first.inner_text()
        best = page.locator("[data-answer=masked_lm] .rows li").first.inner_text()
        assert guess.split() == best.split()[:2]
    assert "step=40" in page.evaluate("location.hash")
    assert page.locator(".chart svg").count() == 4
    assert page.locator("#words text.own").count() >= 5
    page.click("#play")
    page.wait_for_selector("#step:has-text('Step 1 of')")
    page.click("#play")
    page.goto(f"{page.url.partition('#')[0]}#text=a+name&step=4")
    page.wait_for_selector("#step:has-text('Step 4 of')")
    assert page.input_value("#first") == "a name"
    assert shown.faults == []
    shown.context.close()
