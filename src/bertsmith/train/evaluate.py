"""How good is it on text it has not seen: loss, accuracy, pseudo-perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.examples import Examples
from bertsmith.model import Model
from bertsmith.train.distributed import Ranks


def held_out(
    learner: Any,
    module: nn.Module,
    examples: Examples,
    *,
    tokens: int,
    most: int,
    ranks: Ranks,
    stopped: Callable[[], bool],
) -> dict[str, float] | None:
    """Losses and accuracies over held-out samples, the same every time; None when stopped.

    An epoch is never passed: a small held-out split is used once.
    """
    plan = examples.plan(0, tokens=tokens, most=most)
    count = min(plan.end, examples.source.count)
    parts = [(first, min(n, count - first)) for first, n in plan.parts if first < count]
    sums: dict[str, Tensor] = {}
    counts: dict[str, float] = {}
    rounds = -(-len(parts) // ranks.count)
    module.eval()
    try:
        for number in range(ranks.rank, rounds * ranks.count, ranks.count):
            if ranks.sum([stopped()])[0]:
                return None
            idle = number >= len(parts)
            example = examples.make(parts[0 if idle else number])
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(number)
                own = learner.counts(example)
                _, found = module(example.to(ranks.device), own)
            for name, pair in found.items():
                sums[name] = sums.get(name, 0.0) + pair.cpu() * (0.0 if idle else 1.0)
                counts[name] = counts.get(name, 0) + (0 if idle else own.get(name, 0))
    finally:
        module.train()
    names = list(sums)
    total = ranks.sum([float(x) for name in names for x in (*sums[name], counts[name])])
    result: dict[str, float] = {}
    for place, name in enumerate(names):
        loss, right, of = total[3 * place : 3 * place + 3]
        if not of:  # a ratio: the whole and the part
            result[name] = right / max(loss, 1)
            continue
        result[name] = loss / of
        result[f"{name}_accuracy"] = right / of
    return result


ALONE = 2**18  # tokens that pseudo-perplexity reads: of longer sequences some places are hidden


@torch.no_grad()
def pseudo_perplexity(
    model: Model,
    examples: Examples,
    *,
    sequences: int,
    mask_id: int,
    device: torch.device,
    most: int,
    half: bool = False,
) -> float:
    """exp of the mean loss when each token alone is hidden (Salazar et al. 2020).

    Of sequences that are many or long, every second token or fewer: it reads ALONE tokens at most.
    """
    source = examples.source
    made = examples.sequences(np.arange(min(sequences, source.count)))
    special = torch.tensor(sorted(source.tokenizer.special_ids))
    total, count = 0.0, 0
    model.eval()
    rows = np.split(made.ids, np.cumsum(made.lengths)[:-1])
    segments = np.split(made.segments, np.cumsum(made.lengths)[:-1])
    for ids, segment in zip(rows, segments, strict=True):
        row = torch.from_numpy(ids)
        places = (~torch.isin(row, special)).nonzero().flatten()
        room = max(1, ALONE // (len(rows) * len(row)))
        places = places[:: -(-len(places) // room)] if len(places) > room else places
        for some in places.split(max(1, most // len(row))):
            copies = row.repeat(len(some), 1)
            copies[torch.arange(len(some)), some] = mask_id
            batch = Batch.of(copies.tolist(), [segment.tolist()] * len(some)).to(device)
            where = (torch.arange(len(some)) * len(row) + some).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                logits = model(batch, "masked_lm", where).float()
            loss = nn.functional.cross_entropy(logits, row[some].to(device), reduction="sum")
            total, count = total + float(loss), count + len(some)
    model.train()
    return math.exp(min(total / max(count, 1), 50.0))
