"""Evaluation on held-out text: loss, accuracy, pseudo-perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.examples import Example, Examples
from bertsmith.model import Model
from bertsmith.train.distributed import Ranks

AT_ONCE = 16384  # maximum number of tokens in a pass; the passes are divided over the ranks
SAMPLES, MASKS = 3, 4  # texts whose filled masks are logged, and masks of each
AROUND = 12  # tokens shown after the last mask


def held_out(
    learner: Any,
    module: nn.Module,
    examples: Examples,
    *,
    tokens: int,
    micro_tokens: int,
    ranks: Ranks,
    stopped: Callable[[], bool],
) -> dict[str, Any] | None:
    """Return losses and accuracies on a fixed set of held-out samples; None when stopped.

    At most one epoch is read. With masked LM, `samples` shows how some masks were filled.
    """
    plan = examples.plan(0, tokens=tokens, micro_tokens=min(micro_tokens, AT_ONCE))
    (batches,) = plan.micro_batches
    once = (batch[batch < examples.source.count] for batch in batches)
    batches = [batch for batch in once if len(batch)]
    sums: dict[str, Tensor] = {}
    counts: dict[str, float] = {}
    samples: list[dict[str, Any]] = []
    rounds = -(-len(batches) // ranks.count)
    module.eval()
    try:
        for number in range(ranks.rank, rounds * ranks.count, ranks.count):
            if ranks.sum([stopped()])[0]:
                return None
            active = number < len(batches)
            example = examples.make(batches[number if active else 0])
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(number)
                own = learner.counts(example)
                _, pairs = module(example.to(ranks.device), own)
            for name, pair in pairs.items():
                sums[name] = sums.get(name, 0.0) + pair.cpu().double() * float(active)
                counts[name] = counts.get(name, 0) + (own.get(name, 0) if active else 0)
            if number == 0:
                samples = filled_masks(learner, example, examples)
    finally:
        module.train()
    total = iter(ranks.sum([float(x) for name in sums for x in (*sums[name], counts[name])]))
    scores: dict[str, Any] = {}
    for name, loss, correct, count in zip(sums, total, total, total, strict=True):
        if not count:  # a ratio: denominator and numerator
            scores[name] = correct / max(loss, 1)
            continue
        scores[name] = loss / count
        scores[f"{name}_accuracy"] = correct / count
    return scores | ({"samples": samples} if samples else {})


def filled_masks(learner: Any, example: Example, examples: Examples) -> list[dict[str, Any]]:
    """Return some texts of the last pass, with the most probable tokens for their masks."""
    tokenizer, mask_id = examples.source.tokenizer, examples.source.tokenizer.mask_id

    def token(id: Tensor) -> str:
        # Embedding tables are padded beyond the vocabulary.
        return tokenizer.token(int(id)) if int(id) < tokenizer.size else "[unused]"

    best = [objective.best for objective in learner.objectives if objective.best is not None]
    if not best or mask_id is None:
        return []
    probabilities, ids = (tensor.cpu() for tensor in best[0])
    samples: list[dict[str, Any]] = []
    seen, bounds = example.batch.ids, example.batch.layout.boundaries.tolist()
    for first, last in pairwise(bounds[: example.samples + 1]):
        inside = (example.rows >= first) & (example.rows < last)
        masks = (inside & (seen[example.rows] == mask_id)).nonzero().flatten()[:MASKS]
        if not len(masks) or len(samples) == SAMPLES:
            continue
        # Masks beyond the first few are shown as the original tokens.
        shown = seen.clone()
        shown[example.rows[inside]] = example.targets[inside]
        shown[example.rows[masks]] = mask_id
        end = min(last, int(example.rows[masks[-1]]) + AROUND)
        guesses = [
            [[token(id), round(float(p), 3)] for p, id in zip(*pair, strict=True)]
            for pair in zip(probabilities[masks], ids[masks], strict=True)
        ]
        targets = [token(example.targets[mask]) for mask in masks]
        text = tokenizer.decode(shown[first + 1 : end].tolist(), skip_special=False)
        samples.append({"text": text, "targets": targets, "guesses": guesses})
    return samples


ALONE = 2**18  # maximum number of tokens that pseudo-perplexity reads


@torch.no_grad()
def pseudo_perplexity(
    model: Model,
    examples: Examples,
    *,
    sequences: int,
    mask_id: int,
    device: torch.device,
    most: int,
    dtype: torch.dtype = torch.float32,
) -> float | None:
    """exp of the mean loss when each token alone is masked (Salazar et al. 2020).

    At most ALONE tokens are read: of large or long samples every second token or fewer.
    None if all tokens are special or unknown.
    """
    source = examples.source
    texts = examples.sequences(np.arange(min(sequences, source.count)))
    special = torch.tensor(sorted(source.tokenizer.special_ids))  # unknown tokens among them
    total, count = 0.0, 0
    model.eval()
    rows = np.split(texts.ids, np.cumsum(texts.lengths)[:-1])
    segments = np.split(texts.segments, np.cumsum(texts.lengths)[:-1])
    for ids, segment in zip(rows, segments, strict=True):
        row = torch.from_numpy(ids)
        places = (~torch.isin(row, special)).nonzero().flatten()
        room = max(1, ALONE // (len(rows) * len(row)))
        places = places[:: max(1, -(-len(places) // room))]
        for some in places.split(max(1, most // len(row))) if len(places) else ():
            numbers = torch.arange(len(some))
            copies = row.repeat(len(some), 1)
            copies[numbers, some] = mask_id
            batch = Batch.of(copies.tolist(), [segment.tolist()] * len(some)).to(device)
            where = (numbers * len(row) + some).to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
                logits = model(batch, "masked_lm", where).float()
            loss = nn.functional.cross_entropy(logits, row[some].to(device), reduction="sum")
            total, count = total + float(loss), count + len(some)
    model.train()
    return math.exp(min(total / count, 50.0)) if count else None
