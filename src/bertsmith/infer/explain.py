"""Word contributions by integrated gradients (Sundararajan et al. 2017).

The embedding of every token moves in steps from that of an empty input to its own, and the change
of the output along the way is divided among the tokens. The contributions add up to the change.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bertsmith.batch import Batch
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.spans import words
from bertsmith.infer.windows import Window
from bertsmith.ledger import Ledger

STEPS = 32
Rows = list[dict[str, Any]]
Outputs = Sequence[tuple[int, int]]  # (row of a window, output) whose sum is explained


class Explanation:
    """The contributions of all tokens of one or two texts, as they were read for a prediction."""

    def __init__(self, bert: LoadedModel, texts: Sequence[str]) -> None:
        self.bert, self.texts = bert, texts
        self.encodings = bert.tokenizer.encode_many(texts, special=False)
        windower = replace(bert.windower(), ledger=Ledger())  # the prediction has counted already
        ids = [encoding.ids for encoding in self.encodings]
        self.windows = windower.single(0, *ids) if len(ids) == 1 else windower.pair(0, *ids)
        self.totals = [[0.0] * len(encoding) for encoding in self.encodings]

    def add(self, window: Window, head: str, outputs: Outputs, weight: float = 1.0) -> None:
        """Add what a window's tokens contribute to the sum of some outputs of a head."""
        gains = attribute(self.bert, window, head, outputs)
        for place, token in enumerate(window.tokens, window.first):
            self.totals[-1][token] += gains[place] * weight
        if len(self.totals) == 2:  # the first text is complete in every window
            start = self.bert.tokenizer.build([-1], [])[0].index(-1)
            for token in range(len(self.totals[0])):
                self.totals[0][token] += gains[start + token] * weight

    def words(self, windows: Sequence[Window]) -> Rows:
        """The words that these windows hold, each with the sum over its tokens."""
        held = {token for window in windows for token in window.tokens}
        rows = []
        for number, (text, encoding) in enumerate(zip(self.texts, self.encodings, strict=True)):
            spans = words(text, encoding)
            ends = [*(token for token, _, _ in spans[1:]), len(encoding)]
            for (token, start, end), stop in zip(spans, ends, strict=True):
                if number < len(self.texts) - 1 or token in held:
                    score = round(sum(self.totals[number][token:stop]), 6)
                    place = {"word": text[start:end], "start": start, "end": end, "text": number}
                    rows.append({**place, "score": score})
        return rows


def attribute(
    bert: LoadedModel, window: Window, head: str, outputs: Outputs, steps: int = STEPS
) -> list[float]:
    """How much each token of a window adds to the sum of some outputs of a head."""
    batch = Batch.of([window.ids], [window.segments]).to(bert.device)
    empty = bert.tokenizer.mask_id if bert.tokenizer.pad_id is None else bert.tokenizer.pad_id
    special = bert.tokenizer.special_ids
    blank = [token if token in special else empty or 0 for token in window.ids]
    empty_batch = Batch.of([blank], [window.segments]).to(bert.device)
    model = bert.model.eval()
    rows, columns = (list(side) for side in zip(*outputs, strict=True))
    with torch.no_grad():
        full, baseline = model.encoder.embedding(batch), model.encoder.embedding(empty_batch)
    gradient = torch.zeros_like(full)
    for step in range(steps):
        # The middle of each step: the sum converges to the integral faster.
        point = baseline + (full - baseline) * ((step + 0.5) / steps)
        point.requires_grad_()
        hook = model.encoder.embedding.register_forward_hook(lambda *_, at=point: at)
        try:
            with torch.enable_grad():
                value = model(batch, head)[rows, columns].float().sum()
                gradient += torch.autograd.grad(value, point)[0]
        finally:
            hook.remove()
    return ((full - baseline) * gradient / steps).sum(-1).float().tolist()
