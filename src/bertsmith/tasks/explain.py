"""Which words mattered: integrated gradients (Sundararajan et al. 2017), in a few lines.

The embedding of every token is brought in steps from that of an empty input to its own, and what
the output gains on the way is shared among the tokens. The shares add up to the whole gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Tagged
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.predict import Prediction, task_of
from bertsmith.tasks.tagging import first_tokens, words
from bertsmith.tasks.windows import Window, clearest
from bertsmith.tokenizer import Encoding

STEPS = 32
Rows = list[dict[str, Any]]
Aims = list[tuple[int, int]]  # (row of a window, output) whose sum is explained
Gains = list[list[float]]  # of each token of each text


def explain(bert: LoadedModel, example: Any, found: Prediction, steps: int = STEPS) -> Rows:
    """Every word of an example with how much it spoke for the prediction (below 0: against).

    Of tags, every entity (or word, where tags spell none) with the words that spoke for it.
    """
    task = task_of(bert)
    if task not in KINDS:
        raise BertsmithError(
            f"explanations are for labels, numbers, tags and answers, not for {task}"
        )
    return KINDS[task](bert, example, found, steps)


def attribute(
    bert: LoadedModel, window: Window, head: str, aims: Aims, steps: int = STEPS
) -> list[float]:
    """How much each token of a window adds to the sum of some outputs of a head."""
    batch = Batch.of([window.ids], [window.segments]).to(bert.device)
    empty = bert.tokenizer.mask_id if bert.tokenizer.pad_id is None else bert.tokenizer.pad_id
    special = bert.tokenizer.special_ids
    blank = [token if token in special else empty or 0 for token in window.ids]
    nothing = Batch.of([blank], [window.segments]).to(bert.device)
    model = bert.model.eval()
    rows, outputs = (list(side) for side in zip(*aims, strict=True))
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
                value = model(batch, head)[rows, outputs].float().sum()
                gradient += torch.autograd.grad(value, point)[0]
        finally:
            hook.remove()
    gains: list[float] = ((full - void) * gradient / steps).sum(-1).float().tolist()
    return gains


# ------------------------------------------------------------------ labels and numbers


def _of_labels(bert: LoadedModel, example: Any, found: Prediction, steps: int) -> Rows:
    """What spoke for a label, for labels or for a number: all windows do, by their length."""
    labels, task = bert.checkpoint.labels, task_of(bert)
    chosen = [labels.index(found.value)] if task == "classification" else [0]
    if task == "multilabel":
        chosen = [labels.index(name) for name in found.value] or list(range(len(labels)))
    texts = [example.text] if example.pair is None else [example.text, example.pair]
    encoded, windows = _read(bert, texts)
    totals = _none(encoded)
    size = sum(len(window.tokens) for window in windows)
    for window in windows:
        share = len(window.tokens) / size if len(windows) > 1 else 1.0
        gains = attribute(bert, window, "classify", [(0, one) for one in chosen], steps)
        _add(bert, totals, window, gains, share)
    return _shown(texts, encoded, totals, windows)


# ------------------------------------------------------------------ tags


def _of_tags(bert: LoadedModel, example: Any, found: Prediction, steps: int) -> Rows:
    """What spoke for the tags of each entity, in the window in which its first word is clearest."""
    encoded, windows = _read(bert, [example.text])
    best = clearest([window.tokens for window in windows], len(encoded[0]))
    rows = []
    for stretch, tags in _stretches(bert, example, found, encoded[0]):
        window = windows[best[tags[0][0]]]
        shift = window.first - window.tokens.start
        aims = [(token + shift, label) for token, label in tags if token in window.tokens]
        totals = _none(encoded)
        _add(bert, totals, window, attribute(bert, window, "tag", aims, steps))
        rows.append({**stretch, "words": _shown([example.text], encoded, totals, [window])})
    return rows


def _stretches(
    bert: LoadedModel, example: Any, found: Prediction, encoding: Encoding
) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """Every entity (or word), with the first token and the label of each of its words."""
    text, labels = example.text, bert.checkpoint.labels
    places: list[tuple[int | None, int, int]] = list(words(text, encoding))
    if isinstance(example, Tagged):
        firsts = first_tokens(encoding.offsets, example.offsets)
        places = [(one, *place) for one, place in zip(firsts, example.offsets, strict=True)]
    tagged = [
        (token, start, end, label)
        for (token, start, end), label in zip(places, found.value, strict=True)
        if token is not None
    ]
    listed = found.shown.get("entities")
    if listed is None:
        listed = [{"label": label, "start": start, "end": end} for _, start, end, label in tagged]
    for one in listed:
        start, end = one["start"], one["end"]
        tags = [(token, labels.index(tag)) for token, s, _, tag in tagged if start <= s < end]
        if tags:
            yield {"label": one["label"], "text": text[start:end], "start": start, "end": end}, tags


# ------------------------------------------------------------------ answers


def _of_answers(bert: LoadedModel, example: Any, found: Prediction, steps: int) -> Rows:
    """What spoke for an answer, or for there being none, in the window that decided on it."""
    texts = [example.question, example.passage]
    encoded, windows = _read(bert, texts)
    spans = dict.fromkeys(range(len(windows)), (0, 0))  # where "no answer" stands
    if found.value:
        start, end = (found.shown["answers"][0][side] for side in ("start", "end"))
        offsets = encoded[1].offsets
        inside = [token for token, (s, e) in enumerate(offsets) if e > max(s, start) and s < end]
        spans = {
            number: (inside[0] + shift, inside[-1] + shift)
            for number, window in enumerate(windows)
            if inside[0] in window.tokens and inside[-1] in window.tokens
            for shift in [window.first - window.tokens.start]
        }
    scores = _answer_scores(bert, windows)
    # An answer is as good as its best window says; there is none if no window has one.
    pick = max if found.value else min
    number = pick(spans, key=lambda n: float(scores[n][spans[n], (0, 1)].sum()))
    window, (first, last) = windows[number], spans[number]
    totals = _none(encoded)
    gains = attribute(bert, window, "answer", [(first, 0), (last, 1)], steps)
    _add(bert, totals, window, gains)
    return _shown(texts, encoded, totals, [window])


def _answer_scores(bert: LoadedModel, windows: Sequence[Window]) -> list[Tensor]:
    return bert.run(
        windows,
        lambda hidden, batch, _: batch.layout.split(bert.model.heads["answer"](hidden, batch)),
    )


KINDS: dict[str, Callable[[LoadedModel, Any, Prediction, int], Rows]] = {
    "classification": _of_labels,
    "multilabel": _of_labels,
    "regression": _of_labels,
    "tagging": _of_tags,
    "answering": _of_answers,
}


# ------------------------------------------------------------------ tokens and words


def _read(bert: LoadedModel, texts: Sequence[str]) -> tuple[list[Encoding], list[Window]]:
    """Texts as they were read for the prediction, which has counted what there was to count."""
    encoded = bert.tokenizer.encode_many(texts, special=False)
    windower = replace(bert.windower(), ledger=Ledger())
    ids = [one.ids for one in encoded]
    return encoded, windower.single(0, *ids) if len(ids) == 1 else windower.pair(0, *ids)


def _none(encoded: Sequence[Encoding]) -> Gains:
    return [[0.0] * len(one) for one in encoded]


def _add(
    bert: LoadedModel, totals: Gains, window: Window, gains: list[float], share: float = 1.0
) -> None:
    """Give a window's gains to the tokens that they belong to."""
    for place, token in enumerate(window.tokens, window.first):
        totals[-1][token] += gains[place] * share
    if len(totals) == 2:  # the first text stands whole before the second
        start = bert.tokenizer.build([-1], [])[0].index(-1)
        for token in range(len(totals[0])):
            totals[0][token] += gains[start + token] * share


def _shown(
    texts: Sequence[str], encoded: Sequence[Encoding], totals: Gains, windows: Sequence[Window]
) -> Rows:
    """The words that these windows hold, each with what its tokens gained together."""
    held = {token for window in windows for token in window.tokens}
    rows = []
    for number, (text, encoding) in enumerate(zip(texts, encoded, strict=True)):
        found = list(words(text, encoding))
        ends = [*(token for token, _, _ in found[1:]), len(encoding)]
        for (token, start, end), stop in zip(found, ends, strict=True):
            if number < len(texts) - 1 or token in held:
                gained = round(sum(totals[number][token:stop]), 6)
                place = {"word": text[start:end], "start": start, "end": end, "text": number}
                rows.append({**place, "score": gained})
    return rows
