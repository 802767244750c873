"""Layer by layer: what a model would guess at each depth, and how alike layers and models are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bertsmith.analysis.attention import Floats
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Hidden, Trace
from bertsmith.tasks.run import BUDGETS, packed

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class DepthGuess:
    """What a mask would be filled with if the model ended at some depth."""

    depth: int  # 0: the embeddings
    mask: int  # which mask of the text, from 0
    tokens: list[str]
    scores: list[float]


def lens(bert: LoadedModel, text: str, top: int = 5) -> list[DepthGuess]:
    """The guesses for each mask at every depth: the masked-LM head reads every layer's states.

    The head was trained on the last layer; what it makes of others is a view, not a truth.
    """
    bert.demand_head("masked_lm")
    if top < 1:
        raise BertsmithError(f"top must be a whole number from 1 up, not {top}")
    encoding = bert.tokenizer.encode(text)
    masks = [row for row, id_ in enumerate(encoding.ids) if id_ == bert.tokenizer.mask_id]
    if not masks:
        raise BertsmithError(f"the text has no mask: write {bert.tokenizer.mask_token}")
    if len(encoding) > bert.max_length:
        raise BertsmithError(f"the text has {len(encoding):,} tokens; {bert.max_length:,} are read")
    batch = Batch.of([encoding.ids], [encoding.segments]).to(bert.device)
    rows = torch.tensor(masks, device=bert.device)
    trace, size = Trace(states=True), bert.tokenizer.size
    found = []
    with torch.inference_mode():
        context = bert.model.encoder(batch, trace).context
        for depth, states in enumerate(trace.hidden):
            before = trace.hidden[max(0, depth - 1)]
            hidden = Hidden(bert.model.encoder.norm(states), before, context)
            logits = bert.model.heads["masked_lm"](hidden, batch, rows)[:, :size]
            scores, ids = logits.float().softmax(-1).topk(min(top, size))
            for mask, (chances, best) in enumerate(zip(scores.tolist(), ids.tolist(), strict=True)):
                words = [bert.tokenizer.decode([id_], skip_special=False).strip() for id_ in best]
                found.append(DepthGuess(depth, mask, words, chances))
    return found


def states(bert: LoadedModel, texts: Sequence[str]) -> Floats:
    """The mean state of each text at every depth: (layers + 1, N, D). Long texts are cut."""
    windows = bert.windows(texts, how=bert.windower(long="cut"))
    depth = len(bert.checkpoint.config.plan) + 1
    found = np.zeros((depth, len(windows), bert.checkpoint.config.width), np.float32)
    budget = bert.budget or BUDGETS.get(bert.device.type, 2048)
    for chosen in packed([len(window.ids) for window in windows], budget):
        group = [windows[number] for number in chosen]
        batch = Batch.of([one.ids for one in group], [one.segments for one in group])
        trace = Trace(states=True)
        with torch.inference_mode():
            last = bert.model.encoder(batch.to(bert.device), trace).last
            for layer, rows in enumerate([*trace.hidden[:-1], last]):
                means = [part.float().mean(0) for part in batch.layout.split(rows)]
                found[layer, chosen] = torch.stack(means).cpu().numpy()
    return found


def cka(first: Floats, second: Floats) -> float:
    """How alike two sets of vectors of the same things are: linear CKA (Kornblith et al. 2019).

    1 if one is the other turned and scaled, near 0 if they have nothing to do with each other.
    """
    if len(first) != len(second) or len(first) < 2:
        raise BertsmithError("CKA compares vectors of the same things, two or more")
    x, y = (one.astype(np.float64) - one.mean(0, dtype=np.float64) for one in (first, second))
    # Of the two equal ways to compute it, the one with the smaller matrices.
    if len(x) < max(x.shape[1], y.shape[1]):
        a, b = x @ x.T, y @ y.T
        shared, own, other = (a * b).sum(), np.square(a).sum(), np.square(b).sum()
    else:
        shared = np.square(x.T @ y).sum()
        own, other = np.square(x.T @ x).sum(), np.square(y.T @ y).sum()
    return float(shared / max(np.sqrt(own * other), 1e-30))


def alike(bert: LoadedModel, texts: Sequence[str], other: LoadedModel | None = None) -> Floats:
    """CKA between all depths of a model, or of two models, over the mean states of texts."""
    first = states(bert, texts)
    second = first if other is None else states(other, texts)
    return np.array([[cka(x, y) for y in second] for x in first], np.float32)
