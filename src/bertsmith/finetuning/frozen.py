"""A fast learner: a linear layer on vectors of a frozen encoder, which are computed once.

    encoder = FrozenEncoder("bertsmith-embed", dataset.task)
    learner = encoder.fit(dataset)           # seconds; again with more labels: less
    learner.bert.save("model")               # an ordinary model directory

The vectors are the inputs of the last layer of the task's head. The layers before it are set to
pass the encoder's states on: what is fitted is logistic (or ridge) regression on pooled states, and
`transformers` computes the same outputs from the saved directory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.checkpoint import (
    Checkpoint,
    Sentence,
    add_averaging_layer,
    can_average,
    read,
    tokenizer_folder,
)
from bertsmith.checkpoint.lora import base_of
from bertsmith.errors import BertsmithError
from bertsmith.families import family_of
from bertsmith.finetuning.batches import batch_of
from bertsmith.finetuning.settings import RunSettings, settings_for
from bertsmith.finetuning.setup import find_encoder, forget_former, limit_length, with_metric
from bertsmith.foreign import read_json
from bertsmith.infer.loaded import LoadedModel, pick_device
from bertsmith.infer.run import Compute, grouped
from bertsmith.infer.windows import Window
from bertsmith.ledger import Ledger
from bertsmith.model import Hidden, Model
from bertsmith.model.heads import Head
from bertsmith.model.pooling import POOLS
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, labelled, scored
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, fold_numbers, folds_of
from bertsmith.tasks.task import Prediction, Task
from bertsmith.tasks.training import Sample, Training, TrainingItem
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.optimizer import minimise

# How much a wrong example weighs against large weights, as C of scikit-learn's LogisticRegression
# on vectors whose mean squared norm is 1. From few to many: each fit starts where the last ended.
STRENGTHS = (1.0, 6.0, 36.0, 200.0)
FOLDS = 5
CHOICE_FOLDS = 4  # by which the strength is chosen
MOST = 2000  # examples by which the strength is chosen
STEPS, CHOICE_STEPS = 60, 15  # of L-BFGS: of a fit that is kept, of one that is only compared
PORTION = 256  # windows after which the time is looked at
TOKENS = 65536  # whose vectors are put together at once
FLAT = 0.05  # tanh is linear up to 0.1% for arguments of this size
FAR = 8.0  # GELU and ReLU are linear above this
Units = tuple[NDArray[np.float64], list[int]]  # probabilities (units, labels), and given labels


class StoredVectors(LoadedModel):
    """A model whose last layer reads stored vectors: every text passes the encoder once.

    `store` may be shared by models that differ in their last layer only. `added` is the number of
    the layer that only averages, if there is one.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        sentence: Sentence,
        head: str,
        added: int | None,
        store: dict[tuple[bytes, bytes], Tensor],
    ) -> None:
        super().__init__(checkpoint, tokenizer, sentence=sentence, progress=False)
        self.head, self.added, self.store = head, added, store

    def outputs(self, rows: Tensor) -> Tensor:
        """The outputs of the last layer for its inputs, in CPU memory as they are."""
        output: Any = self.model.heads[self.head].output
        return output(rows.to(output.weight.device)).cpu()

    def run(
        self, windows: Sequence[Window], compute: Compute[Any], progress: bool | None = None
    ) -> list[Any]:
        """The results of the head's outputs for each window."""
        last: Any = SimpleNamespace(
            heads={self.head: lambda hidden, batch, rows=None: self.outputs(hidden.last)}
        )
        results: list[Any] = []
        vectors = iter(self.vectors(windows))
        for group in grouped(windows, lambda window: len(window.ids), TOKENS):
            rows = torch.cat([next(vectors) for _ in group])
            batch = Batch.of([w.ids for w in group], [w.segments for w in group])
            with torch.inference_mode():
                hidden: Any = Hidden(rows, rows, None)  # type: ignore[arg-type]
                results += compute(last, hidden, batch, group)
        return results

    def vectors(self, windows: Sequence[Window]) -> list[Tensor]:
        """The inputs of the last layer for each window: (1, D), or a row for each token."""
        keys = [(_bytes(window.ids), _bytes(window.segments)) for window in windows]
        pairs = zip(keys, windows, strict=True)
        if new := {key: window for key, window in pairs if key not in self.store}:
            tokens = self.model.heads[self.head].pool is POOLS["every"]

            def compute(model: Model, hidden: Hidden, batch: Batch, _: Any) -> list[Tensor]:
                rows = last_inputs(model.heads[self.head], hidden, batch).float().cpu()
                each = batch.layout.split(rows) if tokens else rows.split(1)
                return [vector.clone() for vector in each]

            vectors = super().run(list(new.values()), compute)
            self.store.update(zip(new, vectors, strict=True))
        return [self.store[key] for key in keys]


@dataclass(frozen=True)
class FastLearner:
    """A fitted linear layer with its frozen encoder: an ordinary model, `bert`."""

    bert: StoredVectors
    task: Task
    training: Training
    settings: RunSettings
    strength: float  # C, which cross-validation chose

    def predictions(self, examples: Sequence[Any]) -> list[Prediction]:
        """A prediction for every example."""
        return self.task.predict(self.bert, examples) if examples else []

    def probabilities(self, examples: Sequence[Any]) -> NDArray[np.float64]:
        """The probabilities of all labels for every example (N, labels), as `labels` has them."""
        return probabilities(self.predictions(examples), self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the outputs."""
        return self.training.labels

    def evaluate(self, dataset: Dataset[Any]) -> Evaluation:
        """Score it on the labelled examples of a data set."""
        dataset = labelled(dataset)
        return scored(self.bert, dataset, self.predictions(dataset.examples))

    @torch.inference_mode()
    def unit_probabilities(self, examples: Sequence[Any]) -> list[Units]:
        """Probabilities and given labels of each example's units: texts, words, or windows."""
        if not self.task.names_labels or self.task.several:
            raise BertsmithError(f"{self.task.name} has no probabilities of one label each")
        units: list[Units] = []
        for example in examples:
            chances, classes = [np.zeros((0, len(self.labels)))], list[int]()
            for item in chain.from_iterable(self.training.samples(self.bert, [example])):
                rows = torch.cat(self.bert.vectors(item.windows))
                targets = self.training.targets([item])
                rows = rows[targets["rows"]] if "rows" in targets else rows
                chances.append(self.bert.outputs(rows).double().softmax(-1).numpy())
                classes += targets["labels"].tolist()
            units.append((np.concatenate(chances), classes))
        return units


@dataclass(frozen=True)
class CrossFit:
    """Predictions for every labelled example, each by a learner that did not see it."""

    dataset: Dataset[Any]  # labelled examples only
    predictions: list[Prediction]
    folds: list[int]  # the fold of every example
    learners: list[FastLearner]  # of each fold
    labels: tuple[str, ...]

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Out-of-fold probabilities (N, labels)."""
        return probabilities(self.predictions, self.labels)

    def evaluation(self) -> Evaluation:
        """The scores of these predictions."""
        return scored(self.learners[0].bert, self.dataset, self.predictions)

    def unit_probabilities(self) -> list[Units]:
        """As those of a learner, each example by the learner that did not see it."""
        pairs = zip(self.dataset.examples, self.folds, strict=True)
        return [self.learners[fold].unit_probabilities([row])[0] for row, fold in pairs]


class FrozenEncoder:
    """An encoder whose vectors are kept, for one task. Fits share them, whatever the labels are."""

    def __init__(
        self,
        model: str | Path,
        task: str,
        *,
        device: str | torch.device | None = None,
        max_length: int = 0,
    ) -> None:
        self.task, self.model = task_named(task), str(model)
        head = self.task.head
        if head is None:
            raise BertsmithError(f"the fast learner is for tasks with a head, not for {task}")
        self.head: str = head
        directory, sentence = find_encoder(model)
        # Entries of config.json that make a family's heads linear, where it can be set.
        linear = family_of(read_json(base_of(directory) / "config.json")).linear_head
        averages = sentence.pool == "mean"
        settings = {key: value for key, value in linear.items() if averages or value != "mean"}
        checkpoint = read(
            directory, heads=(), new=[head], settings=settings, device=pick_device(device)
        )
        pooled = checkpoint.model.heads[head].pool is POOLS["first"]
        averaged = pooled and sentence.pool == "mean" and can_average(checkpoint.config)
        if averaged:
            checkpoint = add_averaging_layer(checkpoint)
        pass_on(checkpoint, head)
        tokenizer = Tokenizer.load(tokenizer_folder(directory), family=checkpoint.family.name)
        added = checkpoint.config.layers - 1 if averaged else None
        self.base = StoredVectors(checkpoint, tokenizer, sentence, head, added, {})
        limit_length(self.base, max_length)

    def fit(
        self,
        dataset: Dataset[Any],
        settings: RunSettings | None = None,
        *,
        strengths: Sequence[float] = STRENGTHS,
        seed: int = 0,
        **options: Any,
    ) -> FastLearner:
        """Fit the labelled examples; cross-validation chooses one of several strengths."""
        dataset = replace(labelled(dataset), known_labels=dataset.labels)
        chosen = settings or with_metric(Splits(dataset), settings_for(self.task.name, **options))
        training = self.task.training(dataset, chosen)
        bert = self._bert(training)
        samples = training.samples(bert, dataset.examples)
        if not samples:
            raise BertsmithError(f"{dataset.path}: contains no training examples")
        problem = _Problem(training, samples, bert)
        losses = _losses(dataset, problem, strengths, seed) if len(strengths) > 1 else {}
        strength = min(losses, key=losses.__getitem__) if losses else strengths[-1]
        output: Any = bert.model.heads[bert.head].output
        parameters = list(output.parameters())
        solution = problem.path([strength], STEPS)[0]
        with torch.no_grad():
            for parameter, value in zip(parameters, solution, strict=False):
                parameter.copy_(value)
            with training.as_used(bert.model):
                values = [parameter.clone() for parameter in parameters]
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)
        return FastLearner(bert, self.task, training, chosen, strength)

    def fits_into(self, dataset: Dataset[Any], settings: RunSettings, seconds: float) -> bool:
        """Compute the vectors of a data set, unless that would take longer than so many seconds."""
        if seconds == math.inf:
            return True
        training = self.task.training(dataset, settings)
        samples = training.samples(self._bert(training), dataset.gold())
        windows = [window for sample in samples for item in sample for window in item.windows]
        began = time.monotonic()
        for start in range(0, len(windows), PORTION):
            self.base.vectors(windows[start : start + PORTION])
            done = min(1.0, (start + PORTION) / len(windows))
            if time.monotonic() - began > seconds * done:
                return False
        return True

    def cross_fit(
        self,
        dataset: Dataset[Any],
        settings: RunSettings | None = None,
        *,
        folds: int = FOLDS,
        seed: int = 0,
        strengths: Sequence[float] = STRENGTHS,
        **options: Any,
    ) -> CrossFit:
        """Predict each labelled example by a fit to the other folds, of one strength for all."""
        on_all = self.fit(dataset, settings, strengths=strengths, seed=seed, **options)
        dataset = on_all.training.dataset
        numbers = fold_numbers(dataset, folds, seed)
        predictions: dict[int, Prediction] = {}
        learners = []
        for rest, held in folds_of(dataset, numbers):
            learners.append(self.fit(rest, on_all.settings, strengths=[on_all.strength]))
            examples = [dataset.examples[number] for number in held]
            predictions |= zip(held, learners[-1].predictions(examples), strict=True)
        ordered = [predictions[place] for place in range(len(numbers))]
        return CrossFit(dataset, ordered, numbers, learners, on_all.labels)

    def _bert(self, training: Training) -> StoredVectors:
        base = self.base
        changes = {**base.checkpoint.settings, **training.config_changes()}
        checkpoint = replace(base.checkpoint, settings=changes)
        head: Any = base.model.heads[self.head]
        outputs = checkpoint.config.heads[self.head].outputs
        output = nn.Linear(head.output.in_features, outputs, bias=head.output.bias is not None)
        own = Head(head.pool, dict(head.transform), output.to(base.device).requires_grad_(False))
        bert = copy(base)
        bert.ledger = Ledger()
        model = Model(base.model.encoder, {self.head: own}).eval()
        bert.checkpoint = replace(checkpoint, model=model)
        forget_former(bert, training)
        return bert


def _losses(
    dataset: Dataset[Any], problem: _Problem, strengths: Sequence[float], seed: int
) -> dict[float, float]:
    numbers = fold_numbers(dataset, CHOICE_FOLDS, seed)
    if max(numbers) == 0 or len(problem.samples) != len(numbers):
        return {}  # all share a text; or some cannot be learned from
    drawn = np.random.default_rng(seed).permutation(len(numbers))[:MOST].tolist()
    totals = dict.fromkeys(strengths, 0.0)
    for fold in range(max(numbers) + 1):
        rest = [n for n in drawn if numbers[n] != fold]
        held = [n for n in drawn if numbers[n] == fold]
        if rest and held:
            unseen, solutions = problem.part(held), problem.part(rest).path(strengths, CHOICE_STEPS)
            for strength, solution in zip(strengths, solutions, strict=True):
                totals[strength] += float(unseen.loss(*solution))
    return totals


class _Problem:
    """Samples with the inputs of the last layer: a loss as a function of that layer's weights."""

    def __init__(self, training: Training, samples: Sequence[Sample], bert: StoredVectors) -> None:
        self.training, self.samples, self.bert = training, samples, bert
        self.items: list[TrainingItem] = [item for sample in samples for item in sample]
        windows = [window for item in self.items for window in item.windows]
        self.inputs = torch.cat(bert.vectors(windows))  # (windows or tokens, D)
        self.targets = training.targets(self.items)
        self.weight = sum(item.weight for item in self.items)
        output: Any = bert.model.heads[bert.head].output
        self.outputs, self.has_bias = output.out_features, output.bias is not None

    @cached_property
    def batch(self) -> Batch:
        """All sequences, for losses that read where they lie."""
        return batch_of(self.items)

    def part(self, numbers: Sequence[int]) -> _Problem:
        """The problem of some samples."""
        return _Problem(self.training, [self.samples[number] for number in numbers], self.bert)

    def loss(self, weight: Tensor, bias: Tensor | None, inputs: Tensor | None = None) -> Tensor:
        """The sum of losses."""
        outputs = nn.functional.linear(self.inputs if inputs is None else inputs, weight, bias)
        return self.training.loss(outputs, self.batch, self.targets)

    def path(self, strengths: Sequence[float], steps: int) -> list[tuple[Tensor, Tensor | None]]:
        """Solutions for rising strengths; each starts from the one before."""
        mean = self.inputs.mean(0) if self.has_bias else torch.zeros(self.inputs.shape[1])
        inputs = self.inputs - mean
        scale = float(inputs.square().sum(1).mean().sqrt()) or 1.0
        inputs /= scale
        total = max(self.weight, 1e-12)
        weight = torch.zeros(self.outputs, inputs.shape[1], requires_grad=True)
        bias = torch.zeros(self.outputs, requires_grad=True) if self.has_bias else None
        solutions = []
        for strength in strengths:

            def objective(penalty: float = 1 / (2 * strength * total)) -> Tensor:
                return self.loss(weight, bias, inputs) / total + penalty * weight.square().sum()

            minimise(objective, [x for x in (weight, bias) if x is not None], steps)
            own = weight.detach() / scale
            solutions.append((own, None if bias is None else bias.detach() - own @ mean))
        return solutions


def last_inputs(head: Any, hidden: Hidden, batch: Batch) -> Tensor:
    """What the output layer of a head reads: (N, D), or (T, D)."""
    rows: Tensor = head.pool(head.read(hidden, batch), batch.layout, None)
    for step in head.transform.values():
        rows = step(rows)
    return rows


@torch.no_grad()
def pass_on(checkpoint: Checkpoint, head: str) -> None:
    """Set the layers before a head's output to pass states on, as linearly as they can."""
    transform: Any = checkpoint.model.heads[head].transform
    if "dense" in transform:
        dense, activation = transform["dense"], transform["activation"]
        curved = not isinstance(activation, nn.Tanh | nn.Identity) and dense.bias is not None
        if dense.weight.shape[0] == dense.weight.shape[1]:
            nn.init.eye_(dense.weight).mul_(FLAT if isinstance(activation, nn.Tanh) else 1.0)
            if dense.bias is not None:
                dense.bias.fill_(FAR if curved else 0.0)
    if "norm" in transform:
        transform["norm"].weight.fill_(1.0)
        if transform["norm"].bias is not None:
            transform["norm"].bias.zero_()


def probabilities(predictions: Sequence[Prediction], labels: Sequence[str]) -> NDArray[np.float64]:
    """The probability of every label in each prediction (N, labels)."""
    if any("scores" not in prediction.output for prediction in predictions):
        raise BertsmithError("these predictions have no probability for each label")
    rows = [[p.output["scores"].get(name, 0.0) for name in labels] for p in predictions]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(labels))


def _bytes(ids: Iterable[int]) -> bytes:
    return np.fromiter(ids, np.int32).tobytes()
