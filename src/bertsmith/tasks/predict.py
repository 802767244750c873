"""Predictions of any task: one for each example of a file, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bertsmith.data import Options, Question, Related, Scored, Tagged
from bertsmith.errors import BertsmithError
from bertsmith.tasks import tagging
from bertsmith.tasks.answering import find_answers
from bertsmith.tasks.choice import choose_many
from bertsmith.tasks.classification import classify
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.loaded import LoadedModel

PROBLEMS = {"multi_label_classification": "multilabel", "regression": "regression"}
LIKELY = 0.5  # what a label needs to apply, where several may


@dataclass(frozen=True)
class Prediction:
    """What a model says of one example.

    `value` is what metrics take: a label, labels, a number, tags, an answer's text, or the index
    of a choice; `shown` is what a file of predictions says.
    """

    value: Any
    confidence: float  # from 0 to 1
    shown: dict[str, Any] = field(default_factory=dict)


def task_of(bert: LoadedModel) -> str:
    """What a model was trained to do, by its head and config.json."""
    heads = bert.checkpoint.entries
    if "classify" in heads:
        problem = str(bert.checkpoint.settings.get("problem_type"))
        if problem in PROBLEMS:
            return PROBLEMS[problem]
        return "regression" if len(bert.checkpoint.labels) == 1 else "classification"
    for head, task in (("tag", "tagging"), ("answer", "answering"), ("choose", "choice")):
        if head in heads:
            return task
    return "similarity"


def predict(bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
    """A prediction for every example; of answers the `top` best are shown."""
    task = task_of(bert)
    if not examples:
        return []
    _fits(task, examples[0])
    return KINDS[task](bert, examples, top)


def _fits(task: str, example: Any) -> None:
    """Refuse examples that this model cannot read."""
    kinds: dict[type, tuple[str, ...]] = {
        Question: ("answering",),
        Options: ("choice",),
        Related: ("similarity",),
        Scored: ("regression", "similarity", "classification", "multilabel"),
    }
    known = kinds.get(type(example))
    if known and task not in known:
        raise BertsmithError(f"this model is for {task}; the file's examples are not")


def _labels(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    found = _classified(bert, examples)
    return [
        Prediction(one.label, one.score, {"label": one.label, "scores": one.scores})
        for one in found
    ]


def _several(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    made = []
    for one in _classified(bert, examples):
        chosen = tuple(name for name, score in one.scores.items() if score > LIKELY)
        # As sure as it is of the label that it is least sure of.
        sure = min(max(score, 1 - score) for score in one.scores.values())
        made.append(Prediction(chosen, sure, {"labels": list(chosen), "scores": one.scores}))
    return made


def _number(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    return [Prediction(one.score, 1.0, {"score": one.score}) for one in _classified(bert, examples)]


def _classified(bert: LoadedModel, examples: Sequence[Any]) -> list[Any]:
    pairs = [example.pair for example in examples]
    texts = [example.text for example in examples]
    second = None if all(pair is None for pair in pairs) else [pair or "" for pair in pairs]
    return classify(bert, texts, second)


def _tags(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    """Tags of the words that the file gives; of plain texts, of those that we find."""
    texts = [example.text for example in examples]
    if isinstance(examples[0], Tagged):
        rows = tagging.tag_given(bert, texts, [example.offsets for example in examples])
    else:
        rows = tagging.tag_words(bert, texts)
    spelled = any(label[:2] in ("B-", "I-", "S-", "U-") for label in bert.checkpoint.labels)
    made = []
    for text, row in zip(texts, rows, strict=True):
        tags = tuple(word.label for word in row)
        sure = min((word.score for word in row), default=1.0)
        shown: dict[str, Any] = {"words": [word.text for word in row], "tags": list(tags)}
        if spelled:
            shown["entities"] = [asdict(one) for one in tagging.entities(text, row)]
        made.append(Prediction(tags, sure, shown))
    return made


def _answers(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    """Answers; "none" where its probability is over the threshold that was tuned in training."""
    threshold = bert.checkpoint.settings.get("no_answer_threshold")
    limit = 1.0 if threshold is None else float(threshold)
    questions = [example.question for example in examples]
    made = []
    for found in find_answers(bert, questions, [one.passage for one in examples], top):
        answers = found.answers(top, empty=False)
        best = answers[0].text if answers else ""
        none = found.no_answer if threshold is not None else None
        value = "" if none is not None and none > limit else best
        sure = answers[0].score if answers else 0.0
        shown: dict[str, Any] = {"answer": value, "answers": [asdict(one) for one in answers]}
        if none is not None:
            shown["no_answer"] = none
        made.append(Prediction(value, sure if value else (none or 0.0), shown))
    return made


def _choices(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    found = choose_many(bert, [one.prompt for one in examples], [one.options for one in examples])
    return [
        Prediction(
            one.index,
            one.scores[one.index],
            {"choice": one.index, "text": one.text, "scores": one.scores},
        )
        for one in found
    ]


def headless(bert: LoadedModel) -> BertsmithError:
    """What to say of a model that can tell similarity only, and is given single texts."""
    has = ", ".join(bert.checkpoint.entries) or "none"
    return BertsmithError(
        f"this model has no head for a task (its heads: {has}), and one text is similar to "
        "nothing: bertsmith embed makes vectors, bertsmith finetune trains a head"
    )


def _similar(bert: LoadedModel, examples: Sequence[Any], top: int) -> list[Prediction]:
    """The cosine of the two texts of each example."""
    if any(len(example.texts) < 2 for example in examples):
        raise headless(bert)
    unique = list(dict.fromkeys(text for example in examples for text in example.texts))
    vectors = dict(zip(unique, embed(bert, unique, normalise=True), strict=True))
    made = []
    for example in examples:
        first, second, *_ = example.texts
        cosine = float(np.dot(vectors[first], vectors[second]))
        made.append(Prediction(cosine, 1.0, {"similarity": cosine}))
    return made


KINDS: dict[str, Callable[[LoadedModel, Sequence[Any], int], list[Prediction]]] = {
    "classification": _labels,
    "multilabel": _several,
    "regression": _number,
    "tagging": _tags,
    "answering": _answers,
    "choice": _choices,
    "similarity": _similar,
}
