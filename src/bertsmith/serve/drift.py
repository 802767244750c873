"""Drift on a server: each day's inputs and predictions beside those of the evaluation data."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.drift import Figures, drift, predictions
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import ServedModel
from bertsmith.settings.serving import ServingSettings

SECONDS = 1.0  # between updates of the metrics


class ModelDrift:
    """What one model has read and predicted today, and before."""

    def __init__(self, bert: LoadedModel, examples: int) -> None:
        self.stored = Figures.read(bert.checkpoint.notes.get("figures"))
        self.unknown = bert.tokenizer.unk_id
        self.day, self.today, self.before = "", Figures(), Figures()
        self.examples: deque[dict[str, Any]] = deque(maxlen=examples)
        self.measured = 0.0

    def add(self, windows: Sequence[Any], texts: Sequence[str], answer: Any) -> None:
        """Count a request; store its least confident text if the settings ask for examples."""
        if (day := datetime.now(UTC).date().isoformat()) != self.day:
            self.day, self.today, self.before = day, Figures(), self.today
        self.today.add(windows, self.unknown, answer)
        if self.examples.maxlen and isinstance(answer, list) and len(answer) == len(texts):
            rows = [
                {"text": text[:300], "label": label, "score": score}
                for result, text in zip(answer, texts, strict=True)
                for label, score in predictions(result)
            ]
            if rows:
                self.examples.append(min(rows, key=lambda row: row["score"]))

    def describe(self, limit: float) -> dict[str, Any]:
        """Counts, the drift of each figure, and those beyond the limit."""
        changes = {} if self.stored is None else drift(self.stored, self.today)
        return {
            "day": self.day,
            "stored": None if self.stored is None else self.stored.to_dict(),
            "today": self.today.to_dict(),
            "before": self.before.to_dict(),
            "drift": changes,
            "limit": limit,
            "beyond": [name for name, value in changes.items() if value and value > limit],
            "examples": sorted(self.examples, key=lambda row: row["score"]),
        }


class Drift:
    """The drift of all models of a server."""

    def __init__(self, settings: ServingSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.models: dict[str, ModelDrift] = {}

    def _of(self, served: ServedModel) -> ModelDrift:
        if served.name not in self.models:
            self.models[served.name] = ModelDrift(served.bert, self.settings.drift_examples)
        return self.models[served.name]

    def describe(self, served: Iterable[ServedModel]) -> dict[str, Any]:
        """The drift of each of these models, by name."""
        limit = self.settings.drift_limit
        return {model.name: self._of(model).describe(limit) for model in served}

    def add(
        self, served: ServedModel, windows: Sequence[Any], texts: Sequence[str], answer: Any
    ) -> None:
        """Count a request, and update the metrics now and then."""
        model = self._of(served)
        model.add(windows, texts, answer)
        if model.stored is not None and time.monotonic() - model.measured > SECONDS:
            model.measured = time.monotonic()
            changes = drift(model.stored, model.today)
            self.metrics.report_drift(served.name, changes, self.settings.drift_limit)
