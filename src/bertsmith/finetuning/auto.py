"""`finetune --auto`: ways to learn a file, compared by cross-validation within a few minutes.

A linear layer on the vectors of a frozen encoder takes seconds. Contrastive training before it and
training of all weights take minutes, so they are tried where there is time, on as many folds as
fit. All candidates are scored on the same held-out examples; the best is fitted to all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import locate
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.frozen import FastLearner, FrozenEncoder, last_inputs
from bertsmith.finetuning.history import History, Nobody
from bertsmith.finetuning.plan import Plan
from bertsmith.finetuning.result import Run
from bertsmith.finetuning.settings import Settings, rate_for
from bertsmith.finetuning.tuning import Tuning
from bertsmith.model import Model
from bertsmith.reports.baseline import NAME as WORDS
from bertsmith.reports.baseline import VECTORS, fitted_words
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, evaluate, labelled, scored
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import fold_numbers
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.training import Sample, Targets, Training, TrainingItem

FOLDS = 4
PROBE = 3  # steps by which the time of a training is estimated
FEWEST_EPOCHS = 2  # fewer are not tried
WARM_BATCH, WARM_EPOCHS = 64, 8  # of contrastive training
TUNED_EPOCHS = 10  # of all weights, after the last layer was fitted
TEMPERATURE = 0.1  # of contrastive training
SPARE = 0.9  # of the time that is left, which may be planned for


class OutOfTime(Exception):  # noqa: N818 - nobody sees it
    """A training would not end in time."""


class Limit(Nobody):
    """Ends a training that would take longer than it may, or asks whether it will."""

    def __init__(self, seconds: float) -> None:
        self.began, self.seconds = time.monotonic(), seconds

    def step(self, done: int, total: int, loss: float) -> None:
        """Estimate the whole time after the first steps, and from then on."""
        passed = time.monotonic() - self.began
        if passed > self.seconds or (done >= PROBE and passed / done * total > self.seconds * 1.5):
            raise OutOfTime


class ContrastiveWarmUp(Training):
    """Texts of one label get similar vectors (Khosla et al. 2020), before a layer is fitted."""

    together = True

    def __init__(self, inner: Training) -> None:
        self.inner, self.head = inner, inner.head  # type: ignore[misc]
        self.dataset, self.options, self.labels = inner.dataset, inner.options, inner.labels

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """What the output layer reads, normalised (N, D)."""
        rows = last_inputs(model.heads[str(self.head)], model.encoder(batch), batch)
        return F.normalize(rows.float(), dim=-1)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The labels (N,)."""
        return self.inner.targets(items)

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The cross entropy of each text with the others of its label, among all of the batch."""
        classes = targets["classes"]
        same = (classes[:, None] == classes).float().fill_diagonal_(0.0)
        logits = (outputs @ outputs.T / TEMPERATURE).fill_diagonal_(-math.inf)
        logs = logits.log_softmax(-1).masked_fill(same == 0, 0.0)
        return -(logs.sum(-1) / same.sum(-1).clamp(min=1)).sum()


@dataclass
class Candidate:
    """A way to learn, and the predictions for held-out examples so far."""

    name: str
    rank: int  # of equals the simplest is kept
    writable: bool = True  # as a model directory
    fit: Callable[[Dataset[Any], float], Any] | None = None  # to a data set, in so many seconds
    predictions: dict[int, Prediction] = field(default_factory=dict)  # by the example's number
    seconds: float = 0.0
    note: str = "no time left"  # where there are no predictions
    score: float = -math.inf


Chosen = tuple[Run, dict[str, Any]]  # the model as a run, and what was compared


def choose(
    plan: Plan, minutes: float, tell: Callable[[str], None], first: Callable[[Chosen], Any]
) -> Chosen:
    """The best way to learn the training file, fitted to all of it.

    `first` gets the first model that can be used, long before the comparison ends.
    """
    return Choice(plan, minutes, tell).run(first)


class Choice:
    """The comparison of all candidates on the same folds."""

    def __init__(self, plan: Plan, minutes: float, tell: Callable[[str], None]) -> None:
        self.plan, self.tell, self.began = plan, tell, time.monotonic()
        self.end = self.began + 60 * minutes
        self.data = labelled(plan.splits.train)
        self.data = replace(self.data, known_labels=self.data.labels)
        self.task = task_named(self.data.task)
        self.metric = plan.settings.metric
        self.folds = fold_numbers(self.data, FOLDS, plan.settings.seed)
        self.encoders: dict[str, FrozenEncoder] = {}
        self.done: list[Candidate] = []

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.end - time.monotonic()

    def run(self, first: Callable[[Chosen], Any]) -> Chosen:
        """Try all candidates; fit the best."""
        models = [str(self.plan.model)]
        if locate(self.plan.model) != locate(VECTORS):
            models.insert(0, VECTORS)
        if max(self.folds) == 0:
            raise BertsmithError(f"{self.data.path}: too few rows to compare by cross-validation")
        for rank, model in enumerate(models):
            self._try(Candidate(f"linear layer on vectors of {model}", rank), self._vectors(model))
            if not rank and self.done[0].predictions:
                first(self._fitted(self.done[0]))
        if self.task.baseline == "words":
            self._try(Candidate(WORDS, -1, writable=False), self._words)
        model = str(self.plan.model)
        slow = [(f"all weights of {model}", self._all_weights(model))]
        if self.task.names_labels and self.task.exclusive and self.task.one_output:
            slow.insert(0, (f"contrastive training of {model}", self._contrastive(model)))
        for rank, (name, fit) in enumerate(slow, len(models)):
            self._try(Candidate(name, rank), fit, slow=True)
        return self._fitted(self._best())

    def _fitted(self, best: Candidate) -> Chosen:
        """A candidate fitted to all examples."""
        self.tell(f"auto: fitting {best.name} to all {len(self.data):,} examples")
        assert best.fit is not None
        return self._result(best, best.fit(self.data, math.inf))

    # ------------------------------------------------------------------ candidates

    def _encoder(self, model: str) -> FrozenEncoder:
        """A fresh encoder of a model; what it learns is not shared."""
        settings, ranks = self.plan.settings, self.plan.ranks
        return FrozenEncoder(
            model, self.task.name, device=ranks.device, max_length=settings.max_length
        )

    def _vectors(self, model: str) -> Callable[[Dataset[Any], float], FastLearner]:
        def fit(dataset: Dataset[Any], seconds: float) -> FastLearner:
            if model not in self.encoders:
                self.encoders[model] = self._encoder(model)
            encoder = self.encoders[model]
            if not encoder.fits_into(dataset, self.plan.settings, seconds):
                raise OutOfTime
            return encoder.fit(dataset, self.plan.settings)

        return fit

    def _words(self, dataset: Dataset[Any], seconds: float) -> Any:
        predict = fitted_words(dataset, dataset.examples, self.plan.settings.class_weights)
        if predict is None:
            raise OutOfTime
        return SimpleNamespace(predictions=predict)

    def _contrastive(self, model: str) -> Callable[[Dataset[Any], float], FastLearner]:
        def fit(dataset: Dataset[Any], seconds: float) -> FastLearner:
            encoder = self._encoder(model)
            training = self.task.training(dataset, self.plan.settings)
            samples = training.samples(encoder.base, dataset.examples)
            settings = self._trained(encoder, WARM_EPOCHS, WARM_BATCH)
            self._train(encoder.base, ContrastiveWarmUp(training), samples, settings, seconds)
            return encoder.fit(dataset, self.plan.settings)

        return fit

    def _all_weights(self, model: str) -> Callable[[Dataset[Any], float], FastLearner]:
        def fit(dataset: Dataset[Any], seconds: float) -> FastLearner:
            encoder = self._encoder(model)
            learner = encoder.fit(dataset, self.plan.settings)
            bert, training = learner.bert, learner.training
            settings = self._trained(encoder, TUNED_EPOCHS, self.plan.settings.batch_size)
            output: Any = bert.model.heads[bert.head].output
            output.requires_grad_(True)
            training.start_from_used(bert.model)
            samples = training.samples(bert, dataset.examples)
            self._train(bert, training, samples, settings, seconds)
            return learner

        return fit

    def _trained(self, encoder: FrozenEncoder, epochs: int, size: int) -> Settings:
        """Settings of a short training."""
        width = encoder.base.checkpoint.config.width
        return self.plan.settings.changed(
            epochs=epochs,
            batch_size=size,
            optimizer="adamw",
            matrix_learning_rate=0.0,
            learning_rate=rate_for(width),
            patience=0,
            head_epochs=0,
            freeze="none",
            trained="all",
        )

    def _train(
        self,
        bert: Any,
        training: Training,
        samples: Sequence[Sample],
        settings: Settings,
        seconds: float,
    ) -> None:
        """Train the weights of the encoder, within so many seconds."""
        added = getattr(bert, "added", None)
        for number, block in enumerate(bert.model.encoder.blocks):
            block.requires_grad_(number != added)
        bert.model.encoder.embedding.requires_grad_(True)
        bert.model.encoder.norm.requires_grad_(True)
        Tuning(bert, training, samples, settings, None, Limit(seconds)).run()
        bert.model.requires_grad_(False).eval()
        bert.store.clear()

    # ------------------------------------------------------------------ comparison

    def _try(
        self, candidate: Candidate, fit: Callable[[Dataset[Any], float], Any], slow: bool = False
    ) -> None:
        """Predict held-out examples, fold by fold; a slow one as long as there is time."""
        began = time.monotonic()
        candidate.fit = fit
        count = max(self.folds) + 1
        for fold in range(count):
            numbers = [place for place, one in enumerate(self.folds) if one == fold]
            rest = [self.data.examples[place] for place, n in enumerate(self.folds) if n != fold]
            # After a slow fold all examples are learned, which takes longer than a fold.
            allowed = self.left / 2 if candidate.rank else math.inf
            if slow:
                allowed = self.left * SPARE / (1 + count / (count - 1))
            before = (time.monotonic() - began) / fold if fold else 0.0
            if slow and (allowed <= 0 or before > allowed):
                break
            try:
                learner = fit(replace(self.data, examples=rest), allowed)
            except OutOfTime:
                candidate.note = "would take longer than --minutes"
                break
            held = [self.data.examples[place] for place in numbers]
            found = learner.predictions(held)
            candidate.predictions |= dict(zip(numbers, found, strict=True))
        candidate.seconds = time.monotonic() - began
        if candidate.predictions:
            candidate.score = self._score(candidate.predictions)
        self._tell(candidate)
        self.done.append(candidate)

    def _score(self, predictions: dict[int, Prediction]) -> float:
        """The main score of some predictions."""
        numbers = sorted(predictions)
        dataset = replace(self.data, examples=[self.data.examples[n] for n in numbers])
        scores = self.task.scorer(dataset, [predictions[n] for n in numbers])(None)
        found = scores.get(self.metric, math.nan)
        return -math.inf if found != found else found

    def _best(self) -> Candidate:
        """The candidate with the best score; those with fewer folds on the examples they share."""
        best, *others = sorted(
            (one for one in self.done if one.writable and one.predictions),
            key=lambda one: (-len(one.predictions), -one.score, one.rank),
        )
        for other in others:
            shared = {n: best.predictions[n] for n in other.predictions if n in best.predictions}
            if len(shared) == len(other.predictions) and other.score > self._score(shared):
                best = other
        return best

    def _tell(self, one: Candidate) -> None:
        if not one.predictions:
            self.tell(f"auto: {one.name}: {one.note}")
            return
        rows = f"{len(one.predictions):,} held-out examples"
        self.tell(f"auto: {one.name}: {self.metric} {one.score:.4f} on {rows}, {one.seconds:.0f} s")

    # ------------------------------------------------------------------ result

    def _result(self, best: Candidate, learner: FastLearner) -> Chosen:
        """The chosen model as a run, and what it was compared with."""
        bert, splits = learner.bert, self.plan.splits
        numbers = sorted(best.predictions)
        held = replace(self.data, examples=[self.data.examples[n] for n in numbers])
        crossed = scored(bert, held, [best.predictions[n] for n in numbers])
        dev: Evaluation = crossed if splits.dev is None else evaluate(bert, splits.dev)
        test = None if splits.test is None else evaluate(bert, splits.test)
        scores = {"dev": dev.scores, "test": None if test is None else test.scores}
        history = History(examples=len(self.data), seconds=time.monotonic() - self.began)
        run = Run(self.plan.settings, history, scores, bert, dev, test)
        ordered = sorted(self.done, key=lambda one: -one.score)
        content = {
            "chosen": best.name,
            "metric": self.metric,
            "folds": max(self.folds) + 1,
            "cross_validated": splits.dev is None,
            "seconds": round(time.monotonic() - self.began, 1),
            "candidates": [
                {
                    "name": one.name,
                    "score": one.score if math.isfinite(one.score) else None,
                    "examples": len(one.predictions),
                    "seconds": round(one.seconds, 1),
                    "note": "" if one.predictions else one.note,
                }
                for one in ordered
            ],
        }
        return run, content


def auto_notes(content: dict[str, Any]) -> list[str]:
    """Why a way to learn was chosen, in words."""
    shown = [one for one in content["candidates"] if one["score"] is not None]
    rows = ", ".join(f"{one['name']} {one['score']:.4f}" for one in shown)
    notes = [
        f"auto: chose {content['chosen']} by {content['metric']} in {content['folds']}-fold"
        f" cross-validation: {rows}"
    ]
    few = [one for one in shown if one["examples"] < max(two["examples"] for two in shown)]
    if few:
        names = ", ".join(one["name"] for one in few)
        notes.append(f"auto: for lack of time not on all folds, and compared on theirs: {names}")
    if late := [one["name"] for one in content["candidates"] if one["score"] is None]:
        notes.append(f"auto: no time for {', '.join(late)} (--minutes)")
    if content["cross_validated"]:
        notes.append(
            "the dev scores are those of cross-validation; the model was then fitted to all rows."
            " They are slightly optimistic, because they also chose it; use --test FILE"
        )
    return notes
