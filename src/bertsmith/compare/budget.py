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


def cost_of(recipe: Recipe, tokenizer: Any, kind: str, amount: float, where: str) -> Cost:
    """The steps of a recipe that a budget pays for: a multiple of four, so that quarters are whole.

    Minutes are turned into steps by measuring a few of them here.
    """
    if recipe.train.ramp_from and recipe.train.ramp_steps:
        raise BertsmithError(
            f"{where}: its batch grows from train.ramp_from = {recipe.train.ramp_from:,} tokens, so"
            " that steps cost different amounts: set train.ramp_from = 0 in its settings"
        )
    module = built(recipe, tokenizer, device="meta").learner
    stages = recipe.lengths()
    counts: dict[str, Any] = {"tokens": recipe.train.micro_tokens, "masked": recipe.masking.rate}
    tokens = flops = 0.0  # of a step, on average
    for fraction, (length, batch, _) in zip(_stage_fractions(recipe), stages, strict=True):
        tokens += fraction * batch
        flops += fraction * batch * training_flops(module, length, **counts)
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
    values, train = recipe.model_dump(), recipe.train
    if stages := values["stages"]:
        for stage, fraction in zip(stages, _stage_fractions(recipe), strict=True):
            stage["steps"] = max(1, round(fraction * cost.steps))
        stages[-1]["steps"] = 0  # the rest
    # A warm-up of so many steps keeps its proportion too, if the recipe says of how many.
    warmup = train.warmup / train.steps if 1 <= train.warmup < train.steps else train.warmup
    values["train"] |= {"steps": cost.steps, "minutes": 0.0, "seed": seed, "warmup": warmup}
    every = cost.steps // LEAST
    values["evaluate"]["every"] = every
    minutes = recipe.checkpoint.minutes or 5.0
    values["checkpoint"] |= {"every": every, "keep": keep, "minutes": minutes}
    return checked(values, f"a budget of {cost.steps:,} steps")


def _stage_fractions(recipe: Recipe) -> list[float]:
    counts = [steps for _, _, steps in recipe.lengths()]
    total = recipe.train.steps or 2 * sum(counts) or 1  # by the clock: the last gets half
    early = [min(1.0, count / total) for count in counts[:-1]]
    return [*early, max(0.0, 1 - sum(early))]
