"""Which words mattered: integrated gradients (Sundararajan et al. 2017), in a few lines.

The embedding of every token is brought in steps from that of an empty input to its own, and what
the output gains on the way is shared among the tokens. The shares add up to the whole gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.tasks.bert import Bert
from bertsmith.tasks.predicting import Prediction, task_of
from bertsmith.tasks.tagging import words
from bertsmith.tasks.windows import Window
from bertsmith.tokenizer import Encoding

STEPS = 32
Target = Callable[[Tensor], Tensor]  # a head's outputs → the one number to explain


def explain(
    bert: Bert, example: Any, found: Prediction, steps: int = STEPS
) -> list[dict[str, Any]]:
    """Every word of an example with how much it spoke for the prediction (below 0: against)."""
    task = task_of(bert)
    if task not in ("classification", "multilabel", "regression"):
        raise BertsmithError(f"explanations are for labels and numbers of texts, not for {task}")
    labels = bert.checkpoint.labels
    chosen = [labels.index(found.value)] if task == "classification" else [0]
    if task == "multilabel":
        chosen = [labels.index(name) for name in found.value] or list(range(len(labels)))
    texts = [example.text] if example.pair is None else [example.text, example.pair]
    encoded = bert.encode(texts)
    windower = bert.windower()
    ids = [one.ids for one in encoded]
    windows = windower.single(0, *ids) if len(ids) == 1 else windower.pair(0, *ids)
    totals = [[0.0] * len(one) for one in encoded]
    size = sum(len(window.tokens) for window in windows) or 1
    for window in windows:
        share = len(window.tokens) / size if len(windows) > 1 else 1.0
        gains = attribute(bert, window, lambda out: out[0, chosen].sum(), steps)
        _add(totals, window, gains, share, encoded)
    rows = []
    for number, (text, encoding) in enumerate(zip(texts, encoded, strict=True)):
        rows += _words(text, encoding, totals[number], number)
    return rows


def attribute(bert: Bert, window: Window, target: Target, steps: int = STEPS) -> list[float]:
    """How much each token of a window adds to a number that the classifier's outputs give."""
    batch = Batch.of([window.ids], [window.segments]).to(bert.device)
    empty = bert.tokenizer.mask_id if bert.tokenizer.pad_id is None else bert.tokenizer.pad_id
    special = bert.tokenizer.special_ids
    blank = [token if token in special else empty or 0 for token in window.ids]
    nothing = Batch.of([blank], [window.segments]).to(bert.device)
    model = bert.model.eval()
    with torch.no_grad():
        full, void = model.encoder.embedding(batch), model.encoder.embedding(nothing)
    gradient = torch.zeros_like(full)
    for step in range(steps):
        # The middle of each stretch of the way: the sum nears the integral faster.
        point = void + (full - void) * ((step + 0.5) / steps)
        point.requires_grad_()
        hook = model.encoder.embedding.register_forward_hook(lambda *_, at=point: at)
        try:
            with torch.enable_grad():
                value = target(model(batch, "classify").float())
                gradient += torch.autograd.grad(value, point)[0]
        finally:
            hook.remove()
    gains: list[float] = ((full - void) * gradient / steps).sum(-1).float().tolist()
    return gains


def _add(
    totals: list[list[float]],
    window: Window,
    gains: list[float],
    share: float,
    encoded: list[Encoding],
) -> None:
    """Give a window's gains to the tokens that they belong to."""
    last = totals[-1]
    for place, token in enumerate(window.tokens):
        last[token] += gains[window.first + place] * share
    if len(totals) == 2:  # the first text stands whole before the second
        before = window.first - len(encoded[0]) - 1
        start = _find(window.ids, encoded[0].ids, before)
        for token in range(len(encoded[0])):
            totals[0][token] += gains[start + token] * share


def _find(ids: list[int], part: list[int], most: int) -> int:
    """Where the first text begins in a window."""
    for start in range(max(1, most + 2)):
        if ids[start : start + len(part)] == part:
            return start
    raise BertsmithError("the first text is not where it should be in its window")


def _words(text: str, encoding: Encoding, gains: list[float], number: int) -> list[dict[str, Any]]:
    """The gains of words: the sum over their tokens."""
    found = list(words(text, encoding))
    ends = [*(token for token, _, _ in found[1:]), len(encoding)]
    return [
        {
            "word": text[start:end],
            "start": start,
            "end": end,
            "text": number,
            "score": round(sum(gains[token:stop]), 6),
        }
        for (token, start, end), stop in zip(found, ends, strict=True)
    ]
