"""No recipe leaves devices idle: steps divide well over ranks, or the run is refused."""

import re
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.examples.division import divide
from bertsmith.objectives import TAUGHT
from bertsmith.train import Recipe, load_recipe, plan, recipe_names
from bertsmith.train.planning import LEAST, demand_busy, fill_of

RANKS = (1, 2, 4, 8, 64)


def drawn(length: int, tokens: int, seed: int, short: float) -> NDArray[np.int64]:
    """Lengths of a step's samples, of which a share is short."""
    random = np.random.default_rng(seed)
    lengths = random.integers(8, length + 1, 2 * tokens // length + 64)
    lengths[random.random(len(lengths)) >= short] = length
    return lengths[: max(1, int(np.searchsorted(lengths.cumsum(), tokens, "right")))]


def useful(recipe: Recipe, ranks: int, short: float) -> float:
    """The smallest useful share of a recipe's stages, each the mean of a few steps."""
    shares = []
    for length, tokens, _ in recipe.lengths():
        fill = fill_of(recipe, length, tokens, ranks)
        cut = partial(divide, ranks=ranks, micro_tokens=recipe.train.micro_tokens, fill=fill)
        steps = [drawn(length, tokens, seed, short) for seed in (11, 12)]
        shares.append(np.mean([cut(step).useful for step in steps]))
    return float(min(shares))


def planned(recipe: Recipe, ranks: int) -> str:
    """The line that refuses to plan a recipe for so many devices, if one does."""
    if not recipe.model.size:  # the model that a run starts from, which may be its generator too
        tiny = load_recipe("tiny-bert")
        recipe = recipe.model_copy(update={"model": tiny.model, "generator": tiny.generator})
    if recipe.objectives.keys() & TAUGHT:  # a teacher changes nothing of how steps divide
        recipe = recipe.model_copy(update={"objectives": {"masked_lm": 1.0}})
    try:
        plan(recipe, 1000, "h200", ranks)
    except BertsmithError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_keeps_ranks_busy_or_is_refused(name: str, ranks: int) -> None:
    recipe = load_recipe(name)
    refused = planned(recipe, ranks)
    if ranks <= 8:
        assert not refused
    if refused:
        assert re.search(r"use.* (train|stages\.\d)\.(batch_tokens|ramp_from)=\d+, or \d+", refused)
        return
    assert useful(recipe, ranks, short=0.0) >= LEAST
    if recipe.data.format != "joined":  # whose sequences are all full
        assert useful(recipe, ranks, short=0.1) >= LEAST - 0.01


@pytest.mark.parametrize("ranks", [24, 64, 300])
@pytest.mark.parametrize("name", ["tiny-bert", "bertsmith-small", "modernbert-base", "bert-base"])
def test_following_the_advice_helps(name: str, ranks: int) -> None:
    recipe = load_recipe(name)
    with_advice = planned(recipe, ranks)
    if not with_advice:
        return
    changes = re.findall(r"(?:train|stages)[\w.]+=\d+", with_advice)
    assert changes
    demand_busy(load_recipe(name, changes), ranks)
    fewer = re.search(r"or ([\d,]+) of the devices", with_advice)
    assert fewer
    demand_busy(recipe, int(fewer[1].replace(",", "")))


def test_the_lengths_of_a_corpus_may_be_given() -> None:
    recipe = load_recipe("bert-base")
    demand_busy(recipe, 8)
    with pytest.raises(BertsmithError, match=r"at most 12%.*use only 1 of the devices"):
        demand_busy(recipe, 8, lambda length, tokens: [np.array([512])])


def test_a_batch_that_is_ramped_up_must_be_large_enough_from_the_start() -> None:
    changes = ["train.ramp_from=1024", "train.ramp_steps=10", "train.compile=false"]
    recipe = load_recipe("small-bert", changes)
    with pytest.raises(BertsmithError, match=r"use train\.ramp_from=\d+, or 8 of the devices"):
        demand_busy(recipe, 64)


def test_a_compiled_step_has_one_shape() -> None:
    for name in ("small-bert", "bertsmith-small", "modernbert-base"):
        recipe = load_recipe(name)
        for ranks in (1, 2, 8):
            for length, tokens, _ in recipe.lengths():
                fill = fill_of(recipe, length, tokens, ranks)
                short = 0.0 if recipe.data.format == "joined" else 0.1
                lengths = drawn(length, tokens, 5, short)
                division = divide(
                    lengths, ranks=ranks, micro_tokens=recipe.train.micro_tokens, fill=fill
                )
                parts = [part for rank in division.micro_batches for part in rank]
                assert all(0 < lengths[part].sum() <= fill for part in parts)


@pytest.mark.parametrize(("tokens", "ranks"), [(1000, 1), (4096, 1), (10_000, 3)])
def test_micro_batches_in_fp8_are_multiples_of_16(tokens: int, ranks: int) -> None:
    changes = ["train.steps=1", "train.compile=true", f"train.micro_tokens={tokens}"]
    plain, narrow = (
        fill_of(load_recipe("tiny-bert", [*changes, f"train.precision={name}"]), 128, tokens, ranks)
        for name in ("bfloat16", "fp8")
    )
    assert narrow % 16 == 0
    assert plain <= narrow < plain + 16
