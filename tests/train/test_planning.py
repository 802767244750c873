"""What a run will take, before it starts."""

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.train import load_recipe, plan, recipe_names

SHALLOW = {"num_hidden_layers": 2}  # building a whole large model takes seconds


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_planned(name: str) -> None:
    if name.startswith("tiny-"):
        found = plan(load_recipe(name, ["train.micro_tokens=128"]), 1000, "cpu")
        assert found["measured"]
        assert found["tokens_per_second"] > 0
        return
    found = plan(
        load_recipe(name, [f"model.settings.{k}={v}" for k, v in SHALLOW.items()]), 1000, "h200", 8
    )
    assert found["hours"] > 0
    assert found["memory_bytes"] > 0


def test_a_plan_by_the_clock_has_the_stages_that_fit() -> None:
    changes = ["train.steps=0", "model.settings.num_hidden_layers=2"]
    stages = "stages=[{length=128, steps=1000}, {length=512}]"
    short, long = (
        plan(load_recipe("bert-base", [*changes, stages, f"train.minutes={minutes}"]), 1000, "h200")
        for minutes in (0.1, 60)
    )
    assert 0 < short["steps"] < 1000 < long["steps"]
    for found, minutes in ((short, 0.1), (long, 60)):
        seconds = found["tokens"] / found["tokens_per_second"]
        assert seconds == pytest.approx(60 * minutes, rel=0.05)


def test_a_plan_counts_what_is_known() -> None:
    found = plan(load_recipe("bert-base"), 30522, "h200")
    assert found["parameters"] == pytest.approx(110e6, rel=0.01)
    assert found["tokens"] == 900_000 * 32_768 + 100_000 * 131_072
    # Six operations a weight and token, and attention.
    assert found["operations"] == pytest.approx(found["tokens"] * 6 * 85e6, rel=0.1)
    for bad in ("abacus", "cuda"):
        with pytest.raises(BertsmithError, match=r"device|GPU"):
            plan(load_recipe("bert-base"), 30522, bad)
