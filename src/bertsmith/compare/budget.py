"""Budgets: tokens, floating-point operations or minutes → steps of each variant's recipe."""

from dataclasses import dataclass
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.train.building import built
from bertsmith.train.flops import training_flops
from bertsmith.train.planning import plan
from bertsmith.train.recipe import Recipe, checked

LEAST = 4  # steps: one before each evaluation


@dataclass(frozen=True)
class Cost:
    """What a budget buys a variant."""

    steps: int
    tokens: int
    flops: float

    @property
    def every(self) -> int:
        """Steps between evaluations, which happen after each quarter."""
        return self.steps // LEAST


def cost_of(recipe: Recipe, tokenizer: Any, kind: str, amount: float, where: str) -> Cost:
    """How many steps of a recipe a budget of this kind pays for, and what they cost.

    Steps are a multiple of four, so that each quarter ends with a step. Minutes are turned into
    steps by measuring a few of them here.
    """
    if recipe.train.ramp_from and recipe.train.ramp_steps:
        raise BertsmithError(
            f"{where}: its batch grows from train.ramp_from = {recipe.train.ramp_from:,} tokens, so"
            " that steps cost different amounts: set train.ramp_from = 0 in its settings"
        )
    module = built(recipe, tokenizer, device="meta").learner
    stages = recipe.lengths()
    shares = _shares(recipe)
    tokens = sum(share * batch for share, (_, batch, _) in zip(shares, stages, strict=True))
    flops = sum(
        share
        * batch
        * training_flops(
            module, length, tokens=recipe.train.micro_tokens, masked=recipe.masking.rate
        )
        for share, (length, batch, _) in zip(shares, stages, strict=True)
    )
    if kind == "minutes":
        train = recipe.train.model_copy(update={"steps": 0, "minutes": amount})
        by_clock = recipe.model_copy(update={"train": train})
        steps = plan(by_clock, device=recipe.train.device)["steps"]
    else:
        steps = int(amount / (tokens if kind == "tokens" else flops))
    if steps < LEAST:
        need = {"tokens": LEAST * tokens, "flops": LEAST * flops}.get(kind)
        least = f"; it needs at least {need:.3g}" if need else ""
        raise BertsmithError(
            f"{where}: budget.{kind} = {amount:g} is less than {LEAST} steps{least}"
        )
    steps -= steps % LEAST
    return Cost(steps, round(steps * tokens), steps * flops)


def with_steps(recipe: Recipe, cost: Cost, seed: int, keep: int = 2) -> Recipe:
    """The recipe with as many steps as a budget pays for; stages keep their proportions."""
    shares, stages = _shares(recipe), recipe.stages
    if stages:
        counts = [max(1, round(share * cost.steps)) for share in shares]
        last = len(stages) - 1
        stages = tuple(
            stage.model_copy(update={"steps": 0 if place == last else counts[place]})
            for place, stage in enumerate(stages)
        )
    train = recipe.train
    # A warm-up of so many steps keeps its proportion too, if the recipe says of how many.
    warmup = train.warmup / train.steps if 1 <= train.warmup < train.steps else train.warmup
    changes = {"steps": cost.steps, "minutes": 0.0, "seed": seed, "warmup": warmup}
    train = train.model_copy(update=changes)
    evaluate = recipe.evaluate.model_copy(update={"every": cost.every})
    keeping = recipe.checkpoint.model_copy(
        update={"every": cost.every, "keep": keep, "minutes": recipe.checkpoint.minutes or 5.0}
    )
    changed = recipe.model_copy(
        update={"stages": stages, "train": train, "evaluate": evaluate, "checkpoint": keeping}
    )
    checked(changed.model_dump(), f"a budget of {cost.steps:,} steps")
    return changed


def _shares(recipe: Recipe) -> list[float]:
    """The share of the steps that each stage has."""
    counts = [steps for _, _, steps in recipe.lengths()]
    total = recipe.train.steps or 2 * sum(counts) or 1  # by the clock: the last gets half
    early = [min(1.0, count / total) for count in counts[:-1]]
    return [*early, max(0.0, 1 - sum(early))]
