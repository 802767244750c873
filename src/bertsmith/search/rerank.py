"""Reranking and extractive answers from the best passages, with a second model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.infer.states import hidden_states
from bertsmith.search.hits import Hit, place_of
from bertsmith.search.passages import joined_text
from bertsmith.tasks.answering.task import find_answers
from bertsmith.tasks.registry import task_of

LONGEST_QUERY = 400  # characters of a query that a reranker reads


class Reranker:
    """Rerank passages with a classifier of (query, passage) pairs or by late interaction.

    A model with a classification head reads query and passage together; its score is that of the
    only output, or of the label that means "relevant". Any other encoder compares token states:
    each token of the query with its nearest token of the passage (ColBERT's MaxSim).
    """

    def __init__(self, model: str | Path | LoadedModel, device: str | None = None) -> None:
        self.model = _opened(model, device)
        self.pairs = task_of(self.model).pair_scores(self.model)

    @property
    def scale(self) -> str:
        """The meaning of a reranked hit's score."""
        if self.pairs is None:
            return "late interaction: mean cosine of each query token with its nearest token"
        return self.pairs.scale

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits in the order of the model's scores."""
        if not hits:
            return []
        scores = self.scores(query, [joined_text(hit.title, hit.heading, hit.text) for hit in hits])
        order = sorted(range(len(hits)), key=lambda place: (-scores[place], place))
        return [replace(hits[place], score=scores[place]) for place in order]

    def scores(self, query: str, texts: list[str]) -> list[float]:
        """The score of each text for a query."""
        query = query[:LONGEST_QUERY]
        if self.pairs is None:
            return self._late(query, texts)
        return self.pairs.steps(self.model, [query] * len(texts), texts)

    def _late(self, query: str, texts: list[str]) -> list[float]:
        depth = [len(self.model.checkpoint.config.plan)]
        states = (text.vectors[0] for text in hidden_states(self.model, [query, *texts], depth))
        tokens, *passages = map(_units, states)
        if not len(tokens):
            return [0.0] * len(texts)
        means = (float((tokens @ own.T).max(1).mean()) if len(own) else -1.0 for own in passages)
        return [min(1.0, mean) for mean in means]  # some are rounded up


def _opened(model: str | Path | LoadedModel, device: str | None) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    return open_model(model, device=device, progress=False)


def _units(states: Any) -> Any:
    return states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class FoundAnswer:
    """An extractive answer and its location."""

    text: str
    score: float  # probability within its passage
    file: str
    line: int
    unit: str
    start: int  # characters of the file's text
    end: int
    passage: int

    @property
    def place(self) -> str:
        """The location as `file:line`, or with the name of another unit."""
        return place_of(self.file, self.line, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return asdict(self)


def answers(
    model: str | Path | LoadedModel,
    question: str,
    hits: Sequence[Hit],
    top: int = 3,
    device: str | None = None,
) -> list[FoundAnswer]:
    """Return the best extractive answers from the passages of a search, with locations."""
    loaded = _opened(model, device)
    if "answer" not in loaded.model.heads:
        command = "bertsmith finetune MODEL TRAIN.json --task answering --out FOLDER"
        finetune = setting_name("finetune(MODEL, 'TRAIN.json')", option=command)
        raise BertsmithError(f"answers need a model that was fine-tuned for answering: {finetune}")
    chosen = [hit for hit in hits if hit.text.strip()]
    if not chosen or not question.strip():
        return []
    ranked = find_answers(loaded, [question] * len(chosen), [hit.text for hit in chosen])
    candidates = []
    for hit, spans in zip(chosen, ranked, strict=True):
        for start, end, logit in spans.ranked[:1]:
            line = hit.line + (hit.text.count("\n", 0, start) if hit.unit == "line" else 0)
            place = (hit.file, line, hit.unit, hit.start + start, hit.start + end, hit.passage)
            answer = FoundAnswer(hit.text[start:end], 1 - spans.no_answer, *place)
            # Logits are comparable between passages relative to that of "no answer".
            candidates.append((logit - spans.nothing, answer))
    best: dict[str, FoundAnswer] = {}
    for _, answer in sorted(candidates, key=lambda pair: -pair[0]):
        best.setdefault(answer.text.lower(), answer)
    return list(best.values())[:top]
