"""What a run will take, before it starts: tokens, operations, memory, time."""

from __future__ import annotations

import time
from typing import Any

import torch

from bertsmith.batch import Batch, Layout
from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model.attention import Attention
from bertsmith.train.building import built, open_corpus
from bertsmith.train.compiling import compile_rows
from bertsmith.train.flops import training_flops
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Halved
from bertsmith.train.recipe import Recipe

# Devices that a run may be planned for without having one: peak in bfloat16 (operations a
# second, dense, as the maker gives it) and memory in bytes.
DEVICES = {
    "a100": (312e12, 80e9),
    "h100": (989e12, 80e9),
    "h200": (989e12, 141e9),
    "l4": (121e12, 24e9),
    "l40s": (362e12, 48e9),
    "rtx4090": (165e12, 24e9),
    "t4": (65e12, 16e9),
    "v100": (125e12, 32e9),
}
SHARE = 0.35  # of the maker's peak; what training reaches with some care, if not measured


def plan(
    recipe: Recipe, tokenizer_size: int | None = None, device: str = "", count: int = 1
) -> dict[str, Any]:
    """Tokens, operations, memory and time of a run on one device or several.

    The vocabulary is the corpus's, where the recipe names one, unless its size is given; without
    either it is BERT's. With no device, or "cpu" or "cuda", a few steps are timed here; a name such
    as "h200" is reckoned from the maker's figures.
    """
    if count < 1:
        raise BertsmithError("a run needs at least one device")
    here = device in ("", "cpu", "cuda")
    if not here and device not in DEVICES:
        raise BertsmithError(f"unknown device {device!r}; known: cpu, cuda, {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("there is no GPU here: name one to reckon with, such as h200")
    if tokenizer_size is None:
        tokenizer_size = open_corpus(recipe).tokenizer.size if recipe.data.corpus else 30522
    made = built(recipe, _Sized(tokenizer_size))  # type: ignore[arg-type]
    parameters = sum(p.numel() for p in made.together.parameters())
    stages = recipe.lengths()
    cost = {length: training_flops(made.together, length) for length, _, _ in stages}
    if here:
        rate, used = _measured(recipe, made.together, device)  # at the first stage's length
        power = rate * cost[stages[0][0]]
    else:
        power, used = DEVICES[device][0] * SHARE, None
    power *= count
    shares = _steps(recipe, {length: power / each for length, each in cost.items()})
    tokens = sum(batch * steps for _, batch, steps in shares)
    work = sum(batch * steps * cost[length] for length, batch, steps in shares)
    memory = _memory(recipe, made.together, parameters)
    train = recipe.train
    return {
        "parameters": parameters,
        "vocabulary": tokenizer_size,
        "steps": sum(steps for _, _, steps in shares),
        "tokens": tokens,
        "operations": work,
        "tokens_per_second": tokens * power / work if work else 0.0,
        "measured": here,
        "devices": count,
        "hours": train.minutes / 60 if train.minutes else work / power / 3600,
        "memory_bytes": memory,
        "measured_memory_bytes": used,
        "fits": None if here else memory < DEVICES[device][1],
    }


def _steps(recipe: Recipe, rates: dict[int, float]) -> list[tuple[int, int, int]]:
    """How many steps each stage has: (length, tokens in a step, steps)."""
    *early, (length, batch, _) = recipe.lengths()
    train, found = recipe.train, []
    if train.steps:
        left = train.steps - sum(steps for _, _, steps in early)
        return [*early, (length, batch, max(left, 0))]
    seconds = 60 * train.minutes
    for size, tokens, steps in [*early, (length, batch, None)]:
        fit = int(seconds * rates[size] / tokens)
        found.append((size, tokens, fit if steps is None else min(steps, fit)))
        seconds -= found[-1][2] * tokens / rates[size]
    return found


class _Sized:
    """As much of a tokenizer as a model's shape needs."""

    pad_id = cls_id = sep_id = None

    def __init__(self, size: int) -> None:
        self.size = size


def _memory(recipe: Recipe, module: torch.nn.Module, parameters: int) -> int:
    """Bytes: weights, gradients and Adam's two moments, and what a pass keeps for the way back."""
    states = 16 * parameters
    half = 2 if recipe.train.precision == "bfloat16" else 4
    kept = 0
    for name, part in module.named_modules():
        if name.endswith("blocks"):
            for block in part.children():
                attention: Any = next(p for p in block.modules() if isinstance(p, Attention))
                width = attention.output.out_features
                inner = max(p.shape[0] for p in block.parameters() if p.ndim > 1)
                kept += half * (12 * width + 3 * inner)
    masked = recipe.masking.rate * recipe.train.micro_tokens
    rows = max(p.shape[0] for p in module.parameters() if p.ndim > 1)
    return int(states + recipe.train.micro_tokens * kept + masked * rows * (4 + 2 * half))


def _measured(recipe: Recipe, module: Any, device: str) -> tuple[float, int | None]:
    """Tokens a second over a few steps with random tokens, and the memory they took."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    there = chosen.type == "cuda"
    length = recipe.lengths()[0][0]
    sequences = max(1, min(recipe.train.micro_tokens, 131072 if there else 16384) // length)
    example = random_example(sequences, length, recipe).to(chosen)
    module.to(chosen).train()
    if recipe.train.compile and there:  # which takes half a minute; on a CPU, longer
        compile_rows(module)
    optimizer = optimizer_for(module, recipe.train)
    call = Halved(module) if recipe.train.precision == "bfloat16" else module
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        if there:
            torch.compiler.cudagraph_mark_step_begin()
        loss, _ = call(example, module.counts(example))
        loss.backward()
        optimizer.step()
        optimizer.clear()
        if there:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    used = torch.cuda.max_memory_allocated() if there else None
    return sequences * length / best, used


def random_example(sequences: int, length: int, recipe: Recipe) -> Example:
    """Full sequences of random tokens, masked at the recipe's rate."""
    random = torch.Generator().manual_seed(0)
    total = sequences * length
    ids = torch.randint(5, 1000, (total,), generator=random)
    layout = Layout.of([length] * sequences, most=length)
    rows = torch.randperm(total, generator=random)[: max(1, int(recipe.masking.rate * total))]
    rows = rows.sort().values
    labels = torch.randint(0, 2, (sequences,), generator=random)
    return Example(
        Batch(ids, torch.zeros_like(ids), layout), rows, ids[rows], labels, sequences, total
    )
