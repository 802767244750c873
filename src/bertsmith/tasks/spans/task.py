"""Spans: labelled parts of a text that may overlap or lie in one another."""

from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from types import MappingProxyType
from typing import Annotated, Any, overload

import torch
from torch import Tensor

from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.windows import Window
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.spans.reading import READING, Spanned
from bertsmith.tasks.spans.training import SpansTraining, Word, inside, span_scores, words_of
from bertsmith.tasks.tagging.task import Entities, Entity, EntityTask
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.use import Askable, Call, RequestBody, Several, Texts, form, listed

Found = list[tuple[int, int, int, float]]  # first word, last word, type and probability


@EncoderTask
def find_spans(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[list[Entity]]]:
    """The labelled spans of every text, from the first to the last."""
    settings = bert.checkpoint.settings
    types, width = list(settings["span_types"]), int(settings["span_width"])
    encoded, windower = bert.encode(texts), bert.windower()
    spelled = [words_of(text, one) for text, one in zip(texts, encoded, strict=True)]
    windows = [
        window for number, one in enumerate(encoded) for window in windower.single(number, one.ids)
    ]
    results: list[list[Entity]] = [[] for _ in texts]
    parts: dict[int, list[range]] = {}
    for window in windows:
        parts.setdefault(window.number, []).append(window.tokens)
    outputs = yield bert.head_pass("tag", windows, tokens=True)
    for window, rows in zip(windows, outputs, strict=True):
        number = window.number
        text, own, others = texts[number], spelled[number], parts[number]
        for first, last, kind, score in _above(rows, window, own, len(types), width):
            tokens = range(own[first].first, own[last].last + 1)
            if best_window(others, tokens, len(encoded[number])) == window.tokens:
                start, end = own[first].start, own[last].end
                results[number].append(Entity(types[kind], text[start:end], start, end, score))
    for row in results:
        row.sort(key=lambda one: (one.start, -one.end, one.label))
    return results


def _above(
    outputs: Tensor, window: Window, spelled: Sequence[Word], types: int, width: int
) -> Found:
    """The spans of a window whose score is above 0."""
    own = inside(window, spelled)
    if not own.numbers:
        return []
    firsts, lasts = torch.tensor(own.firsts), torch.tensor(own.lasts)
    scores = span_scores(outputs, firsts, lasts, torch.zeros_like(firsts), types, width)
    places = (scores > 0).nonzero().tolist()
    chances = scores[scores > 0].sigmoid().tolist()
    return [
        (own.numbers[row], own.numbers[row] + more, kind, chance)
        for (row, more, kind), chance in zip(places, chances, strict=True)
    ]


def best_window(windows: Sequence[range], tokens: range, length: int) -> range:
    """Of the windows that hold a span whole, the one in which it is furthest from a cut."""

    def space(window: range) -> float:
        left = tokens.start - window.start if window.start else inf
        return min(left, window.stop - tokens.stop if window.stop < length else inf)

    complete = [one for one in windows if one.start <= tokens.start and tokens.stop <= one.stop]
    return max(complete, key=space)


# ------------------------------------------------------------------ asking

EXAMPLE = "She studied at the University of London and left the city of Paris."


class SpansRequest(RequestBody):
    """Texts in which spans are looked for."""

    inputs: Annotated[Texts, form("Text", EXAMPLE)]


class SpansMethods(Askable):
    """`find_spans`."""

    @overload
    def find_spans(self, texts: str) -> Entities: ...
    @overload
    def find_spans(self, texts: Several) -> list[Entities]: ...
    def find_spans(self, texts: Any) -> Any:
        """Find the labelled spans of a text, or of each of several; they may overlap."""
        return self.ask_each(TASK, texts, Entities)


# ------------------------------------------------------------------ the task


class SpansTask(EntityTask):
    """Labelled parts of a text that may overlap."""

    reading = READING
    usage = 'find_spans("Ada lived in the city of London.")'
    defaults = MappingProxyType({"batch_size": 16, "epochs": 5})
    stored = ("span_types", "span_width")
    kinds, carriers = (Spanned, TextExample), (Spanned,)
    learner, label_at, measures = SpansTraining, "spans", ("f1", "precision", "recall")

    # ---- asking
    verb, ability = "find-spans", "find spans"
    title, question = "Spans", "Labelled spans, which may lie in one another."
    Request, Answer, Methods = SpansRequest, list[list[Entity]], SpansMethods

    def call(self, bert: LoadedModel, request: SpansRequest) -> Call:
        """Texts at once."""
        texts = listed(request.inputs)
        return Call(find_spans, (texts,), texts)

    # ---- learning and predicting

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        """The text with the predicted spans."""
        return Spanned(example.text, tuple(sorted(prediction.value)), example.where)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        """The spans of every text."""
        predictions = []
        for entities in find_spans(bert, [example.text for example in examples]):
            value = tuple((one.start, one.end, one.label) for one in entities)
            confidence = min((one.score for one in entities), default=1.0)
            output = {"entities": [asdict(one) for one in entities]}
            predictions.append(Prediction(value, confidence, output))
        return predictions


TASK = SpansTask()
