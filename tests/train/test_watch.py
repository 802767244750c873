"""Progress views: numbers that are not finite, long runs, several ranks."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.objectives import MultiObjective
from bertsmith.train import Recipe, pretrain
from bertsmith.train.building import built, open_corpus
from bertsmith.train.folder import RunFolder
from bertsmith.train.watch import Lines, Live, Watch, curve

Make = Callable[..., Recipe]


def shown(view: type[Watch], recipe: Recipe, folder: Path) -> Any:
    return view(RunFolder(folder), recipe, built(recipe, open_corpus(recipe).tokenizer))


def row(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "loss": loss, "gradient_norm": loss, "learning_rate": 0.0}


def timing(tokens: int = 100, ranks: int = 1) -> dict[str, Any]:
    return {"seconds": 0.1, "tokens": tokens, "elapsed": 1.0, "useful": 1.0, "ranks": ranks}


@pytest.mark.parametrize("view", ["live", "lines"])
def test_a_loss_that_is_not_a_number_ends_no_run(
    view: str, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, calls = MultiObjective.forward, 0

    def spoiled(learner: MultiObjective, *inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        loss, sums = forward(learner, *inputs)
        return loss * (math.nan if calls == 3 else 1.0), sums

    monkeypatch.setattr(MultiObjective, "forward", spoiled)
    made = recipe(train={"steps": 6, "micro_tokens": 512}, evaluate={"tokens": 0, "pseudo": 0})
    assert pretrain(made, tmp_path / "run", show=view)["finished"]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line, parse_constant=refuse)["loss"] for line in lines]
    assert [loss is None for loss in losses] == [False, False, True, False, False, False]


def test_the_live_view_keeps_few_losses(recipe: Make, tmp_path: Path) -> None:
    with shown(Live, recipe(train={"steps": 10**6}), tmp_path) as view:
        view.picture = lambda: ""
        for step in range(1, 5001):
            view.step(row(step, math.nan if step % 7 == 0 else 5000.0 - step), timing())
        points = view.losses.points()
    assert len(points) <= 150
    assert len(view.timings) <= 20
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert curve([y for _, y in points])[0] == "█"
    assert curve([y for _, y in points])[-1] == "▁"


def test_the_share_of_the_peak_is_that_of_one_device(recipe: Make, tmp_path: Path) -> None:
    shares = []
    for ranks in (1, 8):
        view = shown(Watch, recipe(), tmp_path)
        view.peak = 1e12
        view.step(row(1, 1.0), timing(1000 * ranks, ranks))
        shares.append(view.share())
    assert shares[1] == pytest.approx(shares[0])


def test_the_time_left_does_not_wrap_after_a_day(
    recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recipe(train={"steps": 1_000_001})
    view = shown(Lines, made, tmp_path)
    view.step(row(1, 1.0), timing() | {"seconds": 0.36})  # 100 hours
    assert "4 days, 4:00:00 left" in capsys.readouterr().err
