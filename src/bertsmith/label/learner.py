"""The model behind the labelling page: its suggestions, its score, and vectors of all texts."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.files import finite
from bertsmith.finetuning.frozen import FrozenEncoder
from bertsmith.infer.opening import open_model
from bertsmith.label.choosing import Vectors
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.evaluate import evaluate, interval
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import Prediction

ENCODER = "bertsmith-embed"  # whose vectors are used where no model is named


class LabellingModel:
    """A model that learns from labels in seconds, or a finished one that only suggests."""

    def __init__(self, model: str | Path, task: str) -> None:
        self.task, self.model = task_named(task), str(model)
        self.embedder = open_model(model)
        self.finished = self.task.head is not None and self.task.fits(self.embedder.checkpoint)
        self.bert = self.embedder if self.finished else None  # what suggests
        self.encoder: FrozenEncoder | None = None
        self._vectors: dict[tuple[str, ...], NDArray[np.float32]] = {}

    def vectors(self, examples: Sequence[Any]) -> Vectors:
        """A vector for every example, of all its texts together."""
        keys = [example.texts for example in examples]
        new = [key for key in dict.fromkeys(keys) if key not in self._vectors]
        if new:
            vectors = embed(self.embedder, ["\n".join(key) for key in new])
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[key] for key in keys])

    def learn(self, dataset: Dataset[Any]) -> None:
        """Train on labelled examples, if they are enough."""
        if self.finished:
            return
        # A single label so far, or a task that is not learned so fast.
        with suppress(BertsmithError):
            if self.encoder is None:
                self.encoder = FrozenEncoder(self.model, self.task.name)
            self.bert = self.encoder.fit(dataset).bert

    def score(self, dataset: Dataset[Any]) -> dict[str, Any] | None:
        """The main score on labelled examples with its 95% interval; None without a model."""
        if self.bert is None:
            return None
        try:
            result = evaluate(self.bert, dataset)
            metric = self.task.metrics(dataset)[0]
            drawn = interval(result, metric)
        except BertsmithError:  # the model does not know any of these labels yet
            return None
        about = {"metric": metric, "value": result.scores[metric], "count": len(dataset)}
        return finite({**about, "low": drawn.low, "high": drawn.high})

    def predictions(self, examples: Sequence[Any]) -> list[Prediction] | None:
        """A prediction for every example; None as long as there is no model."""
        if self.bert is None or not examples:
            return None
        return self.task.predict(self.bert, examples)
