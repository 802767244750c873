"""Fill masks: which tokens could stand here?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Hidden
from bertsmith.tasks.windows import Window

if TYPE_CHECKING:
    from bertsmith.tasks.bert import Bert


@dataclass(frozen=True)
class Guess:
    """One token that could stand in place of a mask."""

    token: str
    score: float  # probability
    text: str  # the whole text with this guess in place
    id: int
    mask: int = 0  # which mask of the text, from 0


def fill_mask(bert: Bert, texts: Sequence[str], top: int) -> list[list[Guess]]:
    """For every text the best guesses for each of its masks."""
    mask, token = bert.tokenizer.mask_id, bert.tokenizer.mask_token
    if mask is None:
        raise BertsmithError("this tokenizer has no mask token")
    top = min(top, bert.checkpoint.config.vocabulary)
    encoded = bert.tokenizer.encode_many(texts, special=False)
    windower = bert.windower()
    windows: list[Window] = []
    places: list[list[int]] = []  # for each window the tokens to guess
    for number, encoding in enumerate(encoded):
        masks = [place for place, id_ in enumerate(encoding.ids) if id_ == mask]
        if not masks:
            raise BertsmithError(
                f"text {number} has no mask: write {token} where a word is missing"
            )
        if len(encoding) + bert.tokenizer.special_count() <= windower.limit:
            windows += windower.single(number, encoding.ids)
            places.append(masks)
        else:
            bert.ledger.note("masks read in a window of a text longer than the model", len(masks))
            windows += [windower.around(number, encoding.ids, place) for place in masks]
            places += [[place] for place in masks]

    def compute(
        hidden: Hidden, batch: Batch, chosen: list[int]
    ) -> list[list[tuple[int, list[tuple[float, int]]]]]:
        rows, counts = [], []
        for start, number in zip(batch.layout.boundaries.tolist(), chosen, strict=False):
            window = windows[number]
            rows += [start + window.first + place - window.tokens.start for place in places[number]]
            counts.append(len(places[number]))
        picked = torch.tensor(rows, device=hidden.last.device)
        logits = bert.model.heads["masked_lm"](hidden, batch, picked)
        scores, ids = logits.float().softmax(-1).topk(top)
        found = [
            list(zip(s, i, strict=True)) for s, i in zip(scores.tolist(), ids.tolist(), strict=True)
        ]
        split = iter(found)
        return [[(place, next(split)) for place in places[number]] for number in chosen]

    results: list[list[Guess]] = [[] for _ in texts]
    for window, found in zip(windows, bert.run(windows, compute), strict=True):
        text, guesses = texts[window.number], results[window.number]
        for place, best in found:
            start, end = encoded[window.number].offsets[place]
            order = len(guesses) // top
            for score, id_ in best:
                piece = bert.tokenizer.decode([id_], skip_special=False)
                whole = text[:start] + piece + text[end:]
                guesses.append(Guess(piece.strip(), score, whole, id_, order))
    return results
