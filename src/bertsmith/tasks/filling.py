"""Fill masks: the most probable tokens at each mask."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, overload

import torch
from pydantic import Field

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel, positive
from bertsmith.infer.run import InferencePass, Steps
from bertsmith.infer.spans import trimmed
from bertsmith.infer.windows import Window, mask_rows
from bertsmith.model import Hidden, Model
from bertsmith.pages.results import grouped_bars, score_bars
from bertsmith.tasks.use import (
    Askable,
    Call,
    RequestBody,
    Several,
    TaskResult,
    Texts,
    Use,
    form,
    listed,
)
from bertsmith.tokenizer import Tokenizer


@dataclass(frozen=True)
class Guess(TaskResult):
    """A predicted token for a mask."""

    token: str
    score: float  # probability
    text: str  # the whole text with this guess in place
    id: int
    mask: int = 0  # which mask of the text, from 0


class Guesses(list[Guess]):
    """The predictions for the masks of one text, shown as bars in notebooks."""

    def _repr_html_(self) -> str:
        groups: dict[str, list[tuple[str, float]]] = {}
        for guess in self:
            groups.setdefault(f"mask {guess.mask + 1}", []).append((guess.token, guess.score))
        if len(groups) > 1:
            return grouped_bars(groups)
        return score_bars("", next(iter(groups.values()), []))


Ranked = list[tuple[float, int]]  # the best tokens of one mask: probability, id


@EncoderTask
def fill_mask(bert: LoadedModel, texts: Sequence[str], top: int) -> Steps[list[list[Guess]]]:
    """For every text the best guesses for each of its masks."""
    tokenizer, size = bert.tokenizer, bert.tokenizer.size
    if tokenizer.mask_id is None:
        raise BertsmithError("this tokenizer has no mask token")
    encoded = bert.encode(texts, spelled="mask")
    windower = bert.windower()
    windows: list[Window] = []
    for number, ids in enumerate(one.ids for one in encoded):
        masks = [place for place, id_ in enumerate(ids) if id_ == tokenizer.mask_id]
        if not masks:
            which = "the text" if len(texts) == 1 else f"text {number + 1} of {len(texts)}"
            raise BertsmithError(
                f"{which} has no mask token: write {tokenizer.mask_token} where a word is missing"
            )
        if len(ids) + tokenizer.special_count() <= windower.limit:
            windows += [_with_masks(one, masks) for one in windower.single(number, ids)]
        else:
            for near in _groups(masks, (windower.limit - tokenizer.special_count()) // 2):
                middle = (near[0] + near[-1]) // 2
                windows.append(_with_masks(windower.around(number, ids, middle, len(near)), near))

    def compute(
        model: Model, hidden: Hidden, batch: Batch, group: Sequence[Window]
    ) -> list[list[Ranked]]:
        picked = torch.tensor(mask_rows(group), device=hidden.last.device)
        # The embeddings may be padded to more rows than the vocabulary has.
        logits = model.heads["masked_lm"](hidden, batch, picked)[:, :size]
        chances, tokens = logits.float().softmax(-1).topk(min(top, size))
        best = zip(chances.tolist(), tokens.tolist(), strict=True)
        return [[list(zip(*next(best), strict=True)) for _ in one.masks] for one in group]

    results: list[list[Guess]] = [[] for _ in texts]
    counts = [0] * len(texts)
    ranks = yield InferencePass(windows, compute, ("masked_lm", top))
    for window, ranked_masks in zip(windows, ranks, strict=True):
        number = window.number
        for row, ranked in zip(window.masks, ranked_masks, strict=True):
            span = encoded[number].offsets[row - window.first + window.tokens.start]
            for score, id_ in ranked:
                whole = filled(tokenizer, texts[number], span, id_)
                word = tokenizer.decode([id_], skip_special=False).strip() or tokenizer.token(id_)
                results[number].append(Guess(word, score, whole, id_, counts[number]))
            counts[number] += 1
    return results


def _groups(masks: Sequence[int], reach: int) -> list[list[int]]:
    """Masks that share a window of a long text: from first to last at most `reach` tokens."""
    groups: list[list[int]] = []
    for place in masks:
        if groups and place - groups[-1][0] < reach:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _with_masks(window: Window, tokens: Sequence[int]) -> Window:
    return replace(window, masks=tuple(map(window.row, tokens)))


def filled(tokenizer: Tokenizer, text: str, span: tuple[int, int], id_: int) -> str:
    """A text with a token in place of a mask; one that continues a word is joined to it."""
    start, end = trimmed(text, *span)
    before, after = text[:start], text[end:]
    # Decoded after the mask token, it shows whether a space precedes it.
    mask = str(tokenizer.mask_token)
    piece = tokenizer.decode([tokenizer.mask_id or 0, id_], skip_special=False).removeprefix(mask)
    if before and not piece.startswith(" "):
        before = before.rstrip()
    elif tokenizer.kind == "wordpiece" or not before or before[-1].isspace():
        piece = piece.lstrip()  # the text has the space already, or is to have none
    return before + piece + after


EXAMPLES = (
    "The [MASK] sat on the mat.",
    "She plays the [MASK] in an orchestra.",
    "Two plus two is [MASK].",
)


class FillMaskRequest(RequestBody):
    """Texts with masks."""

    inputs: Annotated[
        Texts, form("Text", "Paris is the [MASK] of France.", insert="[MASK]", examples=EXAMPLES)
    ]
    top: Annotated[int, Field(ge=1, le=1000), form("", 8)] = 5


class FillMaskMethods(Askable):
    """`fill_mask`."""

    @overload
    def fill_mask(self, text: str, top: int = 5) -> Guesses: ...
    @overload
    def fill_mask(self, text: Several, top: int = 5) -> list[Guesses]: ...
    def fill_mask(self, text: str | Sequence[str], top: int = 5) -> Any:
        """Predict the masked tokens of a text, or of each of several texts."""
        most = positive(top, "top")
        return self.ask_each(TASK, text, lambda row, _: Guesses(row), top=most)


class FillMask(Use):
    """The likeliest tokens for every mask."""

    verb, order, ability = "fill-mask", 5, "fill masks"
    title, question = "Fill mask", "Which tokens could stand here?"
    heads = ("masked_lm",)
    Request, Answer, Methods = FillMaskRequest, list[list[Guess]], FillMaskMethods
    lists = ("inputs",)

    def call(self, bert: LoadedModel, request: FillMaskRequest) -> Call:
        """Every guess repeats its text."""
        texts, mask = listed(request.inputs), bert.tokenizer.mask_token or "[MASK]"
        letters = sum(text.count(mask) * len(text) for text in texts) * request.top
        return Call(fill_mask, (texts, request.top), texts, letters=letters)


TASK = FillMask()
