"""Classify: the labels of texts with their scores, from any model with a classification head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, overload

import torch
from torch import Tensor

from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import Activation, EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.texts import listed_strings
from bertsmith.pages.results import score_bars, score_table
from bertsmith.tasks.use import (
    Askable,
    Call,
    PairScores,
    RequestBody,
    Several,
    TaskResult,
    Texts,
    Use,
    form,
    listed,
)

THRESHOLD = 0.5  # the probability from which a label of a multi-label model applies
POSITIVE = ("1", "true", "yes", "positive", "pos", "entailment", "duplicate", "equivalent")


@dataclass(frozen=True)
class Classification(TaskResult):
    """The best label and its probability; for regression models, the value."""

    label: str
    score: float
    scores: dict[str, float]  # of every label
    labels: list[str] | None = None  # of a multi-label model: those that apply, if any

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python values; `labels` of multi-label models only."""
        content = super().to_dict()
        if self.labels is None:
            del content["labels"]
        return content

    def _repr_html_(self) -> str:
        ranked = sorted(self.scores.items(), key=lambda item: -item[1])
        if len(ranked) == 1:  # a value, not a probability
            return score_table("", [], ranked)
        title = self.label if self.labels is None else ", ".join(self.labels) or "no label"
        return score_bars(title, ranked)


@EncoderTask
def window_votes(
    bert: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None, activation: Activation
) -> Steps[list[tuple[int, int, Tensor]]]:
    """The votes of all windows: the number of the text or pair, the length, and the scores."""
    windows = bert.windows(texts, pairs)
    outputs = yield bert.head_pass("classify", windows, activation)
    votes = zip(windows, outputs, strict=True)
    return [(window.number, max(1, len(window.tokens)), scores) for window, scores in votes]


@EncoderTask
def vote(
    bert: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None, activation: Activation
) -> Steps[list[list[float]]]:
    """The scores of every label, for every text or pair. Windows of a long text vote by length."""
    total, weight = torch.zeros(len(texts), len(bert.checkpoint.labels)), torch.zeros(len(texts), 1)
    for number, length, scores in (yield from window_votes.steps(bert, texts, pairs, activation)):
        total[number] += scores * length
        weight[number] += length
    return (total / weight).tolist()


@EncoderTask
def classify(
    bert: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None
) -> Steps[list[Classification]]:
    """A label for every text or pair, from any model with a classification head."""
    labels = bert.checkpoint.labels
    rows = yield from vote.steps(bert, texts, pairs, activation(bert.checkpoint))
    results = []
    for row in rows:
        scores = dict(zip(labels, row, strict=True))
        best = labels[_decided(bert.checkpoint, row)]
        applying = _applying(bert.checkpoint, scores)
        results.append(Classification(best, scores[best], scores, applying))
    return results


def _applying(checkpoint: Checkpoint, scores: dict[str, float]) -> list[str] | None:
    if checkpoint.settings.get("problem_type") != "multi_label_classification":
        return None
    stored = checkpoint.settings.get("label_thresholds")
    limits: dict[str, float] = stored if isinstance(stored, dict) else {}
    return [name for name, score in scores.items() if score > limits.get(name, THRESHOLD)]


def _decided(checkpoint: Checkpoint, row: Sequence[float]) -> int:
    """The index of the label: the likeliest, or of two labels by the model's threshold."""
    stored = checkpoint.settings.get("decision_threshold")
    if isinstance(stored, dict) and len(row) == 2 and stored.get("label") in checkpoint.labels:
        place = checkpoint.labels.index(stored["label"])
        return place if row[place] > float(stored["value"]) else 1 - place
    return max(range(len(row)), key=row.__getitem__)


def activation(checkpoint: Checkpoint) -> Activation:
    """How the outputs of a classification head become scores."""
    problem = checkpoint.settings.get("problem_type")
    if problem == "multi_label_classification":
        return torch.sigmoid
    return raw if len(checkpoint.labels) == 1 or problem == "regression" else softmax


def raw(logits: Tensor) -> Tensor:
    """The outputs themselves."""
    return logits


def softmax(logits: Tensor) -> Tensor:
    """Probabilities that add up to 1."""
    return logits.softmax(-1)


def positive(labels: Sequence[str]) -> str | None:
    """The label of two whose F1 is reported."""
    if len(labels) != 2:
        return None
    known = [name for name in labels if name.lower() in POSITIVE]
    return known[0] if len(known) == 1 else sorted(labels)[1]


def relevant(labels: Sequence[str]) -> str:
    """The label that means "relevant": the only one, or the positive one of two."""
    label = labels[0] if len(labels) == 1 else positive(labels)
    if label is None:
        why = "one that reranks has a single score or two labels"
        raise BertsmithError(f"the model has {len(labels)} labels; {why}")
    return label


@EncoderTask
def relevance(
    bert: LoadedModel, queries: Sequence[str], texts: Sequence[str]
) -> Steps[list[float]]:
    """How relevant each text is to its query: the output or probability of the label above."""
    place = bert.checkpoint.labels.index(relevant(bert.checkpoint.labels))
    rows = yield from vote.steps(bert, queries, texts, activation(bert.checkpoint))
    return [row[place] for row in rows]


class ClassifyRequest(RequestBody):
    """Texts, or pairs of texts."""

    inputs: Annotated[Texts, form("Text", "A film that I would watch again.")]
    pairs: Annotated[Texts | None, form("Second text, if the model compares two", rows=1)] = None


class ClassifyMethods(Askable):
    """`classify`."""

    @overload
    def classify(self, texts: str, pairs: str | None = None) -> Classification: ...
    @overload
    def classify(self, texts: Several, pairs: Several | None = None) -> list[Classification]: ...
    def classify(self, texts: Any, pairs: Any = None) -> Any:
        """Classify a text or a pair of texts, or each of several."""
        if pairs is not None:
            pairs = [pairs] if isinstance(texts, str) else listed_strings(pairs, "pairs")
        return self.ask_each(TASK, texts, pairs=pairs)


class Classify(Use):
    """The label of every text or pair, with the scores of all labels."""

    verb, order, ability = "classify", 9, "classify"
    title, question = "Classify", "The label of a text, or of a pair of texts."
    heads = ("classify",)
    labelled = True
    Request, Answer, Methods = ClassifyRequest, list[Classification], ClassifyMethods
    lists = ("inputs", "pairs")

    def call(self, bert: LoadedModel, request: ClassifyRequest) -> Call:
        """Texts or pairs at once."""
        texts = listed(request.inputs)
        pairs = None if request.pairs is None else listed(request.pairs)
        return Call(classify, (texts, pairs), texts, pairs or ())

    def pair_scores(self, bert: LoadedModel) -> PairScores:
        """The only output, or the probability of the label that means relevant."""
        labels, logits = bert.checkpoint.labels, activation(bert.checkpoint) is raw
        label, single = relevant(labels), len(labels) == 1
        scale = f"probability of {label!r} by the pair classifier"
        if single:
            scale = "output of the pair classifier; higher is better"
        return PairScores(relevance, scale, logits, single)


TASK = Classify()
