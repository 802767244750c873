"""The probability above which "no answer" is the answer, tuned on the dev file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bertsmith.data import Dataset
from bertsmith.errors import BertsmithError
from bertsmith.metrics import best_threshold
from bertsmith.tasks.evaluate import Evaluation, scored
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.predict import predict

KEY = "no_answer_threshold"  # in config.json, beside what the model is


def has_empty(dataset: Dataset[Any]) -> bool:
    """Are there questions without an answer?"""
    return dataset.task == "answering" and any(one.impossible for one in dataset.examples)


def tuned(
    bert: LoadedModel, dataset: Dataset[Any] | None, known: Evaluation | None = None
) -> Evaluation:
    """Answers under the best threshold, which the model keeps; of a known evaluation, its own."""
    if known is not None:
        _set(bert, known.scores[KEY])
        return known
    assert dataset is not None
    _set(bert, 1.0)  # every question gets its best answer
    found = predict(bert, dataset.examples)
    gold = {e.id: [span.text for span in e.answers or ()] for e in dataset.examples}
    if len(gold) < len(found):
        raise BertsmithError("two questions have the same id, so that one would go unscored")
    pairs = list(zip(gold, found, strict=True))
    chances = {name: one.shown["no_answer"] for name, one in pairs}
    limit = best_threshold(gold, {name: one.value for name, one in pairs}, chances).value
    _set(bert, limit)
    kept = [
        replace(one, value="", confidence=one.shown["no_answer"], shown=one.shown | {"answer": ""})
        if one.shown["no_answer"] > limit
        else one
        for one in found
    ]
    result = scored(bert, dataset, kept)
    return replace(result, scores={**result.scores, KEY: limit})


def _set(bert: LoadedModel, limit: float) -> None:
    settings = {**bert.checkpoint.settings, KEY: limit}
    bert.checkpoint = replace(bert.checkpoint, settings=settings)
