"""The share of useful work of each rank, checked before a run starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.examples.division import divide
from bertsmith.examples.draw import Numbers
from bertsmith.kernels.float8 import ALIGNED
from bertsmith.train.recipe import MOST_TOKENS, Recipe, change_name

LEAST = 0.95  # share of the tokens that ranks compute which must be tokens of samples
FILL = 64  # micro-batches are padded to a multiple of so many tokens: fewer shapes to compile
SHORT = 0.1  # share of sequences that are not full, if no corpus is available
DRAWS = 2  # steps that are checked
TRIES = 16  # step sizes that are tried before the advice is to use fewer devices
Draw = Callable[[int, int], Iterable[Numbers]]  # (length, tokens in a step) → lengths of some steps


def passes_of(recipe: Recipe, tokens: int, ranks: int) -> int:
    """Return the number of micro-batches per rank and step."""
    return max(1, -(-tokens // (ranks * recipe.train.micro_tokens)))


def fill_of(recipe: Recipe, length: int, tokens: int, ranks: int) -> int:
    """Return the multiple of tokens to which micro-batches are padded.

    A compiled graph fits one shape, the largest that a micro-batch of the step can have. Else the
    padding is at most 1/64 of a micro-batch.
    """
    count = ranks * passes_of(recipe, tokens, ranks)
    if not recipe.train.compile:
        return int(min(FILL, 2 ** max(0, (tokens // (count * FILL)).bit_length() - 1)))
    if count > 1:
        even = -(-(tokens // length) // count) * length
        # Sequences of several lengths divide less evenly than full ones.
        spare = 0 if recipe.data.format == "joined" else length // 2
        tokens = max(even, -(-tokens // count)) + spare
    return tokens + (-tokens % ALIGNED if recipe.train.precision == "fp8" else 0)


def useful_share(recipe: Recipe, length: int, tokens: int, ranks: int, draw: Draw) -> float:
    """Return the share of the ranks' tokens that belong to samples, in steps of this size."""
    fill, micro_tokens = fill_of(recipe, length, tokens, ranks), recipe.train.micro_tokens
    shares = [
        divide(lengths, ranks=ranks, micro_tokens=micro_tokens, fill=fill).useful
        for lengths in draw(length, tokens)
    ]
    return float(np.mean(shares))


def full(length: int, tokens: int) -> list[Numbers]:
    """A step of full sequences."""
    return [np.full(max(1, tokens // length), length)]


def mixed(length: int, tokens: int) -> list[Numbers]:
    """Some steps in which every tenth sequence is of any length."""
    random, steps = np.random.default_rng(0), []
    for _ in range(DRAWS):
        count = 2 * tokens // length + 32
        lengths = random.integers(8, length, count, endpoint=True)
        lengths[random.random(count) >= SHORT] = length
        steps.append(lengths[: max(1, int(np.searchsorted(lengths.cumsum(), tokens, "right")))])
    return steps


def demand_busy(recipe: Recipe, ranks: int, draw: Draw | None = None) -> None:
    """Raise an error, with the settings to change, if the steps cannot keep all ranks busy.

    `draw` returns sequence lengths of some steps of the corpus; by default they are assumed.
    """
    if ranks == 1:
        return
    draws = [draw] if draw else [full] if recipe.data.format == "joined" else [full, mixed]

    def share(length: int, tokens: int, ranks: int) -> float:
        return min(useful_share(recipe, length, tokens, ranks, draw) for draw in draws)

    sizes = _sizes(recipe)
    shares = {key: min(share(n, tokens, ranks) for n in ns) for key, (tokens, ns) in sizes.items()}
    if min(shares.values()) >= LEAST:
        return
    changes = []
    for key, (tokens, lengths) in sizes.items():
        if shares[key] < LEAST:
            even = ranks * max(lengths)
            first = -(-tokens // even) * even
            batches = range(first, min(first + TRIES * even, MOST_TOKENS), even)
            enough = (b for b in batches if all(share(n, b, ranks) >= LEAST for n in lengths))
            changes.append((key, next(enough, 0)))
    larger = " ".join(change_name(f"{key}={batch}") for key, batch in changes)
    pairs = [(length, tokens) for tokens, lengths in sizes.values() for length in lengths]
    fewer = (2**n for n in reversed(range(ranks.bit_length())) if 2**n < ranks)
    busy = (count for count in fewer if all(share(*pair, count) >= LEAST for pair in pairs))
    raise BertsmithError(
        f"{ranks:,} devices would wait for one another: at most {min(shares.values()):.0%} of their"
        f" work would be useful, and {LEAST:.0%} is required; use"
        f" {f'{larger}, or' if all(batch for _, batch in changes) else 'only'}"
        f" {next(busy, 1):,} of the devices"
    )


def _sizes(recipe: Recipe) -> dict[str, tuple[int, list[int]]]:
    """The settings that determine the size of a step: tokens and sequence lengths."""
    train, sizes = recipe.train, dict[str, tuple[int, list[int]]]()
    for number, (length, tokens, _) in enumerate(recipe.lengths()):
        own = recipe.stages and recipe.stages[number].batch_tokens
        key = f"stages.{number}.batch_tokens" if own else "train.batch_tokens"
        sizes.setdefault(key, (tokens, []))[1].append(length)
    if train.ramp_from and train.ramp_steps:
        sizes["train.ramp_from"] = (train.ramp_from, [recipe.lengths()[0][0]])
    return sizes
