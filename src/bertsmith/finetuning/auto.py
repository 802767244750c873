"""`finetune --auto`: ways to learn a file, compared by cross-validation within a few minutes.

A linear layer on the vectors of a frozen encoder takes seconds. Contrastive training before it and
training of all weights take minutes, so they are tried where there is time, for as many epochs and
on as many folds as fit. All candidates are scored on the same held-out examples; the best is fitted
to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import locate, read_sentence
from bertsmith.errors import BertsmithError
from bertsmith.files import finite
from bertsmith.finetuning.frozen import FastLearner, FrozenEncoder, StoredVectors, last_inputs
from bertsmith.finetuning.plan import TrainingPlan
from bertsmith.finetuning.result import TrainingRun
from bertsmith.finetuning.settings import RunSettings, rate_for
from bertsmith.finetuning.tuning import History, SilentCallback, Tuning
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.intervals import drawn_weights
from bertsmith.metrics.labels import Weights
from bertsmith.model import Model
from bertsmith.reports.baseline import NAME as WORDS
from bertsmith.reports.baseline import VECTORS, fitted_words
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate, labelled, scored
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import fold_numbers, folds_of
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.training import Sample, Targets, Training, TrainingItem

FOLDS = 4
PROBE = 3  # steps by which the time of a training is estimated
# What is expected before any data is seen, and how far that varies: what training adds to the score
# of a linear layer on an encoder's vectors, and a named sentence encoder to that of the package.
# Chosen on IMDb, SubjQA, CoLA and questions of SQuAD: no result of --auto is reported on them
# (benchmarks/contrastive.py, benchmarks/named_encoder.py).
TRAINED, NAMED, UNKNOWN = (0.03, 0.04), (-0.01, 0.02), (0.0, math.inf)
FEW = 100  # rows up to which contrastive training is no worse than that of all weights, on those
DRAWS = 200  # bootstrap samples of a difference
# Of contrastive training: at most so many epochs, or those of so many steps. Chosen on 8 texts a
# label of the same sets: 1.5 points better than a linear layer after 8 steps, 2.4 after 20.
WARM_BATCH, WARM_EPOCHS, WARM_STEPS = 64, 8, 20
TUNED_EPOCHS = 10  # of all weights, after the last layer was fitted, at most
# Of all weights, at most, where contrastive training does not apply. Chosen on 40 sentences of
# WikiAnn (English): F1 27.8 after 30 steps, 32.9 after 180; the linear layer alone has 13.2.
TUNED_STEPS = 200
SPARE = 0.9  # of the time that is left, which may be planned for


class OutOfTime(Exception):  # noqa: N818 - nobody sees it
    """A training would not end in time."""


class Limit(SilentCallback):
    """Stops a training after so many seconds, or after its first steps."""

    def __init__(self, seconds: float, steps: float = math.inf) -> None:
        self.began, self.seconds, self.steps = monotonic(), seconds, steps
        self.pace = math.inf  # seconds of a step

    def step(self, done: int, total: int, loss: float) -> None:
        """Measure the time of a step."""
        passed = monotonic() - self.began
        self.pace = passed / done
        if passed > self.seconds or done >= self.steps:
            raise OutOfTime


class ContrastiveWarmUp(Training):
    """Texts of one label get similar vectors (as in SetFit), before a layer is fitted."""

    together = True

    def __init__(self, inner: Training) -> None:
        self.inner, self.head = inner, inner.head  # type: ignore[misc]
        self.dataset, self.options, self.labels = inner.dataset, inner.options, inner.labels

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """What the output layer reads, normalised (N, D)."""
        rows = last_inputs(model.heads[str(self.head)], model.encoder(batch), batch)
        return F.normalize(rows.float(), dim=-1)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """The samples of the task."""
        return self.inner.samples(bert, examples)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The labels (N,)."""
        return self.inner.targets(items)

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Squared errors of cosines, which are 1 in a label and 0 between two, of equal weight."""
        classes = targets["labels"]
        same = (classes[:, None] == classes).float()
        errors = (outputs @ outputs.T - same).square()
        pairs = same.sum() - len(same)  # a text with itself has no error
        alike = (errors * same).sum() / pairs.clamp(min=1)
        apart = (errors * (1 - same)).sum() / (1 - same).sum().clamp(min=1)
        return len(same) * (alike + apart)


@dataclass(eq=False)
class Candidate:
    """A way to learn, and the predictions for held-out examples so far."""

    name: str
    fit: Callable[[Candidate, Dataset[Any], float], Any]  # to a data set, in so many seconds
    model: str  # whose encoder is used, if any
    base: Candidate | None = None  # a quicker way, with which it is compared
    gain: tuple[float, float] = UNKNOWN  # expected over the base: mean, deviation
    slow: bool = False
    writable: bool = True  # as a model directory
    predictions: dict[int, Prediction] = field(default_factory=dict)  # by the example's number
    seconds: float = 0.0
    settings: RunSettings | None = None  # of a slow way, with as many epochs as the time allows
    note: str = "no time left"  # where there are no predictions
    score: float = -math.inf
    estimate: float = -math.inf  # the score that is expected, by which candidates are compared


Chosen = tuple[TrainingRun, dict[str, Any]]  # the model as a run, and what was compared


class ModelSelection:
    """The comparison of all candidates on the same folds."""

    def __init__(self, plan: TrainingPlan, minutes: float) -> None:
        self.plan, self.began = plan, monotonic()
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
        return self.end - monotonic()

    def run(self, first: Callable[[Chosen], Any]) -> Chosen:
        """Return the best candidate, fitted to all examples; `first` gets the first usable one."""
        if max(self.folds) == 0:
            raise BertsmithError(f"{self.data.path}: too few rows to compare by cross-validation")
        model = str(self.plan.model)
        others = [] if locate(model) == locate(VECTORS) else [VECTORS]
        for name in (*others, model):
            base = self.done[0] if self.done else None
            known = base and self.task.one_output and read_sentence(locate(name))
            gain = NAMED if known else UNKNOWN
            title = f"linear layer on vectors of {name}"
            self._try(Candidate(title, self._vectors, name, base, gain))
            if not base and self.done[0].predictions:
                first(self._fitted(self.done[0]))
        # The encoder whose vectors are better is trained; of equals the one that was named.
        base = max(reversed(self.done), key=lambda candidate: candidate.estimate)
        if self.task.baseline == "words":
            self._try(Candidate(WORDS, self._words, "", self.done[0], writable=False))
        ways = {"all weights": self._all_weights}
        if self._contrasts:
            few = len(self.data) < FEW
            ways = {"contrastive training": self._contrastive} | ({} if few else ways)
        for name, train in ways.items():
            self._try(Candidate(f"{name} of {base.model}", train, base.model, base, TRAINED, True))
        writable = [way for way in self.done if way.writable and way.predictions]
        return self._fitted(max(writable, key=lambda way: way.estimate))  # of equals the quickest

    @property
    def _contrasts(self) -> bool:
        """Whether every text has one label, so that vectors of a label can be drawn together."""
        return self.task.names_labels and self.task.exclusive and self.task.one_output

    def _fitted(self, best: Candidate) -> Chosen:
        self.plan.say(f"auto: fitting {best.name} to all {len(self.data):,} examples")
        return self._result(best, best.fit(best, self.data, math.inf))

    def _encoder(self, model: str) -> FrozenEncoder:
        device, longest = self.plan.ranks.device, self.plan.settings.max_length
        return FrozenEncoder(model, self.task.name, device=device, max_length=longest)

    def _vectors(self, own: Candidate, dataset: Dataset[Any], seconds: float) -> FastLearner:
        if own.model not in self.encoders:
            self.encoders[own.model] = self._encoder(own.model)
        encoder = self.encoders[own.model]
        if not encoder.fits_into(dataset, self.plan.settings, seconds):
            raise OutOfTime
        return encoder.fit(dataset, self.plan.settings)

    def _words(self, own: Candidate, dataset: Dataset[Any], seconds: float) -> Any:
        return SimpleNamespace(predictions=fitted_words(dataset, self.plan.settings.class_weights))

    def _contrastive(self, own: Candidate, dataset: Dataset[Any], seconds: float) -> FastLearner:
        encoder = self._encoder(own.model)
        training = ContrastiveWarmUp(self.task.training(dataset, self.plan.settings))
        epochs = max(WARM_EPOCHS, -(-WARM_STEPS // -(-len(dataset.examples) // WARM_BATCH)))
        self._train(own, encoder.base, training, epochs, WARM_BATCH, seconds)
        return encoder.fit(dataset, self.plan.settings)

    def _all_weights(self, own: Candidate, dataset: Dataset[Any], seconds: float) -> FastLearner:
        learner = self._encoder(own.model).fit(dataset, self.plan.settings)
        bert = learner.bert
        output: Any = bert.model.heads[bert.head].output
        output.requires_grad_(True)
        learner.training.start_from_used(bert.model)
        size, epochs = self.plan.settings.batch_size, TUNED_EPOCHS
        if not self._contrasts:  # nothing else trains the encoder
            epochs = max(epochs, -(-TUNED_STEPS * size // len(self.data)))
        self._train(own, bert, learner.training, epochs, size, seconds)
        return learner

    def _train(
        self,
        own: Candidate,
        bert: StoredVectors,
        training: Training,
        epochs: int,
        size: int,
        seconds: float,
    ) -> None:
        """Train all weights for so many epochs, or for as many as so many seconds allow."""
        settings = own.settings or self.plan.settings.changed(
            epochs=epochs,
            batch_size=size,
            optimizer="adamw",
            matrix_learning_rate=0.0,
            learning_rate=rate_for(bert.checkpoint.config.width),
            patience=0,
            head_epochs=0,
            freeze="none",
            trained="all",
            keep="last",
        )
        for number, block in enumerate(bert.model.encoder.blocks):
            block.requires_grad_(number != bert.added)
        bert.model.encoder.embedding.requires_grad_(True)
        bert.model.encoder.norm.requires_grad_(True)
        samples = training.samples(bert, training.dataset.examples)
        if own.settings is None:
            before = {name: value.clone() for name, value in bert.model.state_dict().items()}
            limit = Limit(seconds, PROBE)
            with suppress(OutOfTime):
                Tuning(bert, training, samples, settings, None, limit).run()
            bert.model.load_state_dict(before)
            steps = (seconds * SPARE - (monotonic() - limit.began)) / limit.pace
            if steps < (each := -(-len(samples) // size)):
                raise OutOfTime
            own.settings = settings = settings.changed(epochs=min(epochs, int(steps // each)))
        Tuning(bert, training, samples, settings, None, Limit(seconds)).run()
        bert.model.requires_grad_(False).eval()
        bert.store.clear()

    def _try(self, candidate: Candidate) -> None:
        """Predict held-out examples, fold by fold; slow candidates stop when the time is up."""
        began = monotonic()
        count = max(self.folds) + 1
        for fold, (rest, held) in enumerate(folds_of(self.data, self.folds)):
            # After a slow fold all examples are learned, which takes longer than a fold.
            allowed = self.left / 2 if self.done else math.inf
            if candidate.slow:
                allowed = self.left * SPARE / (1 + count / (count - 1))
                if allowed <= ((monotonic() - began) / fold if fold else 0.0):
                    break
            try:
                learner = candidate.fit(candidate, rest, allowed)
            except OutOfTime:
                candidate.note = "would take longer than the minutes allow"
                break
            except BertsmithError as error:
                if candidate.writable:
                    raise
                candidate.note = str(error)  # scikit-learn is missing, say
                break
            examples = [self.data.examples[place] for place in held]
            candidate.predictions |= zip(held, learner.predictions(examples), strict=True)
        candidate.seconds = monotonic() - began
        result = candidate.note
        if candidate.predictions:
            candidate.note = f"{self.metric} has no value for its predictions"
            candidate.score = self._scorer(candidate, candidate.predictions)(None)
            candidate.estimate = self._estimate(candidate)
            rows = f"{len(candidate.predictions):,} held-out examples"
            result = f"{self.metric} {candidate.score:.4f} on {rows}, {candidate.seconds:.0f} s"
        self.plan.say(f"auto: {candidate.name}: {result}")
        self.done.append(candidate)

    def _scorer(
        self, candidate: Candidate, numbers: Iterable[int]
    ) -> Callable[[Weights | None], float]:
        """The main score of predictions for some examples, by how often each counts."""
        dataset, predictions = self._held_out(candidate, numbers)
        scorer = self.task.scorer(dataset, predictions)

        def score(weights: Weights | None) -> float:
            value = scorer(weights).get(self.metric, math.nan)
            return -math.inf if math.isnan(value) else value

        return score

    def _held_out(
        self, candidate: Candidate, numbers: Iterable[int]
    ) -> tuple[Dataset[Any], list[Prediction]]:
        """The examples of these numbers, with a candidate's predictions for them."""
        chosen = sorted(numbers)
        examples = [self.data.examples[number] for number in chosen]
        return replace(self.data, examples=examples), [candidate.predictions[n] for n in chosen]

    def _estimate(self, candidate: Candidate) -> float:
        """The base's score plus a weighted mean of the expected gain and the measured one."""
        base, (expected, deviation) = candidate.base, candidate.gain
        if base is None or not base.predictions:
            return candidate.score
        shared = candidate.predictions.keys() & base.predictions.keys()
        new, old = (self._scorer(one, shared) for one in (candidate, base))
        measured = new(None) - old(None)
        if not math.isfinite(measured):
            return candidate.score
        drawn = drawn_weights(len(shared), DRAWS, 0)
        differences = np.array([new(one) - old(one) for one in drawn])
        # A difference that no resampling changes has an error, too: of one example in each side.
        finite = differences[np.isfinite(differences)]
        error = max(1 / len(shared), float(finite.std()) if len(finite) else 0.0)
        trust = deviation**2 / (deviation**2 + error**2) if math.isfinite(deviation) else 1.0
        return base.estimate + trust * measured + (1 - trust) * expected

    def _result(self, best: Candidate, learner: FastLearner) -> Chosen:
        bert, splits = learner.bert, self.plan.splits
        if splits.dev is None:
            dev = scored(bert, *self._held_out(best, best.predictions))
        else:
            dev = evaluate(bert, splits.dev)
        test = None if splits.test is None else evaluate(bert, splits.test)
        scores = {"dev": dev.scores, "test": None if test is None else test.scores}
        history = History(examples=len(self.data), seconds=monotonic() - self.began)
        settings = best.settings or self.plan.settings.changed(epochs=1, keep="last")
        run = TrainingRun(settings, history, scores, bert, dev, test)
        candidates = [
            {
                "name": candidate.name,
                "score": finite(candidate.score),
                "estimate": finite(candidate.estimate),
                "examples": len(candidate.predictions),
                "seconds": round(candidate.seconds, 1),
                "note": "" if math.isfinite(candidate.score) else candidate.note,
            }
            for candidate in sorted(self.done, key=lambda candidate: -candidate.estimate)
        ]
        content = {
            "chosen": best.name,
            "metric": self.metric,
            "folds": max(self.folds) + 1,
            "cross_validated": splits.dev is None,
            "seconds": round(history.seconds, 1),
            "candidates": candidates,
        }
        return run, content


def auto_notes(content: dict[str, Any]) -> list[str]:
    """Why a way to learn was chosen, in words."""
    shown = [way for way in content["candidates"] if way["score"] is not None]
    score = next((way["score"] for way in shown if way["name"] == content["chosen"]), math.inf)

    def listed(key: str) -> str:
        return ", ".join(f"{way['name']} {way[key]:.4f}" for way in shown)

    notes = [
        f"auto: chose {content['chosen']} by {content['metric']} in {content['folds']}-fold"
        f" cross-validation: {listed('score')}"
    ]
    if any(way["score"] > score for way in shown if way["name"] != WORDS):
        notes.append(
            "auto: on so few rows measured differences are mostly chance, and are weighed with what"
            f" each way usually adds; expected {content['metric']}: {listed('estimate')}"
        )
    if shown and shown[0]["name"] == WORDS:
        notes.append(
            f"auto: {WORDS} is better than all of them, and cannot be written as a model directory:"
            " use this simpler model, with scikit-learn, or label more rows"
        )
    most = max((way["examples"] for way in shown), default=0)
    if few := ", ".join(way["name"] for way in shown if way["examples"] < most):
        notes.append(f"auto: for lack of time not on all folds, and compared on theirs: {few}")
    late = [way for way in content["candidates"] if way["score"] is None]
    notes += [f"auto: not compared: {way['name']} ({way['note']})" for way in late]
    if content["cross_validated"]:
        notes.append(
            "the dev scores are those of cross-validation; the model was then fitted to all rows."
            " They are slightly optimistic, because they also chose it; give a test file"
        )
    return notes
