"""Calibration: temperature and thresholds on dev data; guarantees from rows kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.checkpoint import built_in, locate
from bertsmith.errors import BertsmithError
from bertsmith.files import write_json
from bertsmith.foreign import read_json
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics import calibration, conformal
from bertsmith.metrics.labels import score
from bertsmith.settings.finetuning import TrialSettings
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, evaluate, keep_settings, labelled, state_coverage
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import TASKS, task_named, task_of
from bertsmith.tasks.splits import Splits, split_off
from bertsmith.tasks.task import Task

RANGE = (math.log(0.05), math.log(20.0))  # of the logarithm of temperatures
PRIOR = 0.5  # standard deviation of that logarithm before any data is seen
CANDIDATES = 200  # thresholds that are tried
ENOUGH = 50  # dev examples from which a temperature is fitted without being asked for


@dataclass(frozen=True)
class CalibrationOptions:
    """What is fitted after training, and the rows that are kept apart for guarantees."""

    temperature: bool = False
    thresholds: bool = False
    abstain: float | None = None  # an accuracy
    coverage: float | None = None  # of conformal sets or intervals
    held: Dataset[Any] | None = None

    @property
    def guaranteed(self) -> bool:
        """Is anything guaranteed for new data?"""
        return self.abstain is not None or self.coverage is not None


def calibration_options(splits: Splits, trials: TrialSettings) -> CalibrationOptions:
    """What was asked for; where nothing was, a temperature if there is enough dev data."""
    asked, task = trials.calibrate, task_named(splits.train.task)
    dev = 0 if splits.dev is None else len(splits.dev)
    temperature = (task.exclusive and dev >= ENOUGH) if asked is None else asked
    return CalibrationOptions(temperature, bool(asked), trials.abstain, trials.coverage)


def reserved_rows(
    splits: Splits, options: CalibrationOptions
) -> tuple[Splits, CalibrationOptions | None]:
    """Check the options; half of the dev data is kept for guarantees and chooses nothing else."""
    if options == CalibrationOptions():
        return splits, None
    task = task_named(splits.train.task)
    check_guarantee(task, options)
    if options.thresholds and not (task.exclusive or task.several):
        names = ", ".join(t.name for t in TASKS.values() if t.exclusive or t.several)
        raise BertsmithError(f"calibration is for {names}, not for {task.name}")
    if splits.dev is None:
        raise BertsmithError("calibration needs a dev file or held-out examples")
    if not options.guaranteed:
        return splits, options
    dev, held, _ = split_off(splits.dev, 0.5)
    check_rows(held, options)
    note = f"{len(held):,} of {len(splits.dev):,} dev examples are kept apart for guarantees"
    return replace(splits, dev=dev, notes=[*splits.notes, note]), replace(options, held=held)


def check_guarantee(task: Task, options: CalibrationOptions) -> None:
    """Refuse guarantees that cannot be given for the predictions of a task."""
    abstain, coverage = options.abstain, options.coverage
    asked = {"exclusive": ("abstention", abstain), "conformal": ("coverage", coverage)}
    for trait, (what, value) in asked.items():
        if value is not None and not getattr(task, trait):
            names = ", ".join(t.name for t in TASKS.values() if getattr(t, trait))
            raise BertsmithError(f"{what} is for {names}, not for {task.name}")
    if abstain is not None and not 0 < abstain < 1:
        raise BertsmithError(f"abstain must be an accuracy between 0 and 1, not {abstain}")
    if coverage is not None:
        conformal.check_coverage(coverage)


def check_rows(held: Dataset[Any], options: CalibrationOptions) -> None:
    """Refuse guarantees that so few rows cannot show, however good the model is."""
    least = {
        "coverage": options.coverage and conformal.rows_needed(options.coverage),
        "abstain": options.abstain and conformal.rows_to_certify(options.abstain),
    }
    for name, rows in least.items():
        if rows and len(held) < rows:
            raise BertsmithError(
                f"{name} needs at least {rows:,} rows that nothing else is fitted on, and "
                f"{len(held):,} are kept apart (of dev data one half): hold out more rows, "
                "or ask for less"
            )


def guarantee(bert: LoadedModel, held: Evaluation, options: CalibrationOptions) -> dict[str, Any]:
    """Fit the model's conformal limits and abstention threshold on rows that fit nothing else."""
    abstain, coverage, rows = options.abstain, options.coverage, len(held.predictions)
    content: dict[str, Any] = {"kept_apart": rows}
    if coverage is not None:
        pairs = zip(held.dataset.examples, held.predictions, strict=True)
        allowed = conformal.limits([held.task.nonconformity(*pair) for pair in pairs])
        conformal.limit_for(allowed, coverage)
        content["conformal"] = {"coverage": coverage, "rows": rows, "limits": allowed}
        keep_settings(bert, {"conformal": content["conformal"]})
    if abstain is not None:
        correct = held.task.correct(held.dataset, held.values) or []
        confidences = [prediction.confidence for prediction in held.predictions]
        below, count = conformal.abstention(confidences, correct, abstain)
        hits = sum(hit for hit, sure in zip(correct, confidences, strict=True) if sure >= below)
        content["abstain"] = {
            "accuracy_wanted": abstain,
            "risk": conformal.RISK,
            "below": below,
            "coverage": count / rows,
            "accuracy": hits / count if count else None,
        }
        keep_settings(bert, {"abstain_below": below})
    return content


def promise(
    bert: LoadedModel,
    name: str | Path,
    *,
    coverage: float | None = None,
    abstain: float | None = None,
    calibrate_on: Any = None,
    **reading: Any,
) -> dict[str, Any] | None:
    """Let a model guarantee a coverage: from the rows of its training, or from fresh ones.

    With `calibrate_on`, a labelled source that the model was not trained on, what `coverage` and
    `abstain` need is fitted on it and stored in the model's directory.
    """
    if calibrate_on is None:
        if abstain is not None:
            raise BertsmithError("abstain needs calibrate_on: rows the model was not trained on")
        if coverage is not None:
            state_coverage(bert, coverage)
        return None
    task, directory = task_of(bert), locate(name)
    if coverage is None and abstain is None:
        raise BertsmithError("calibrate_on needs coverage, abstain or both")
    if directory in built_in().values() or not (directory / "config.json").is_file():
        raise BertsmithError(f"{name}: not a model directory that can be changed")
    options = CalibrationOptions(abstain=abstain, coverage=coverage)
    check_guarantee(task, options)
    held = labelled(read_data(calibrate_on, task.name, **reading))
    check_rows(held, options)
    content = guarantee(bert, evaluate(bert, held), options)
    settings, config = bert.checkpoint.settings, directory / "config.json"
    fitted = {name: settings[name] for name in ("conformal", "abstain_below") if name in settings}
    write_json(config, read_json(config) | fitted)
    return {**content, "stored_in": str(directory)}


def calibrate(
    bert: LoadedModel, dev: Evaluation, metric: str, options: CalibrationOptions
) -> tuple[Evaluation, dict[str, Any]]:
    """Fit on dev data what the model then keeps; the new evaluation, and what was fitted.

    The temperature goes into the weights of the output layer, so that every library that opens
    the model has calibrated probabilities; thresholds are entries of config.json.
    """
    content: dict[str, Any] = {"examples": len(dev.predictions)}
    content["fitted_on"] = dev.dataset.path.name
    notes = list[str]()
    if options.temperature and dev.task.exclusive:  # one temperature scales all probabilities
        windows = _windows(bert, dev)
        temperature = fit_temperature(windows)
        content["temperature"] = temperature
        content["error_before"] = _error(windows, 1.0)
        content["error_after"] = _cross_fitted(windows)  # each half by the other's
        notes.append(
            f"probabilities are those at temperature {temperature:g}, fitted on the dev data, "
            "whose calibration error is therefore optimistic"
        )
        output = bert.model.heads[str(dev.task.head)].get_submodule("output")
        with torch.no_grad():
            for parameter in output.parameters():
                parameter.div_(temperature)
        dev = evaluate(bert, dev.dataset)
    if options.thresholds and dev.task.several:
        content["thresholds"] = _label_thresholds(dev)
        keep_settings(bert, {"label_thresholds": content["thresholds"]})
        dev = evaluate(bert, dev.dataset)
    positive = dev.task.positive(bert.checkpoint.labels) if options.thresholds else None
    if positive is not None:
        value = _threshold(dev, positive, metric)
        content["decision_threshold"] = {"label": positive, "value": value}
        keep_settings(bert, {"decision_threshold": content["decision_threshold"]})
        dev = evaluate(bert, dev.dataset)
    if options.thresholds:
        notes.append("thresholds, fitted on the dev data, make all of its scores optimistic")
    if options.held is not None:
        content |= guarantee(bert, evaluate(bert, options.held), options)
        if "abstain" in content and not content["abstain"]["coverage"]:
            notes.append(
                f"no confidence promises an accuracy of {options.abstain:g}: the model abstains on "
                "every input; ask for less, or hold out more rows"
            )
        dev = evaluate(bert, dev.dataset)
    if notes:
        content["note"] = "; ".join(notes)
    return dev, content


@dataclass(frozen=True)
class WindowLogits:
    """What predictions are made of: each is the weighted mean of the softmax of its windows."""

    logits: NDArray[np.float64]  # (windows, labels); -inf where an example has fewer choices
    owners: NDArray[np.int64]  # (windows,) number of the example, in order
    weights: NDArray[np.float64]  # (windows,) those of an example add up to 1
    classes: NDArray[np.int64]  # (examples,) index of the label

    def logs(self, temperature: float) -> NDArray[np.float64]:
        """The log-probabilities of predictions at a temperature: (examples, labels)."""
        logs = self.logits / temperature
        logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
        starts = np.searchsorted(self.owners, np.arange(len(self.classes)))
        votes = logs + np.log(self.weights)[:, None]
        mean: NDArray[np.float64] = np.logaddexp.reduceat(votes, starts, axis=0)
        return mean

    def every_second(self, first: int) -> WindowLogits:
        """Half of the examples."""
        own = self.owners % 2 == first
        return WindowLogits(
            self.logits[own], self.owners[own] // 2, self.weights[own], self.classes[first::2]
        )


def fit_temperature(windows: WindowLogits) -> float:
    """The temperature with the lowest cross entropy (Guo et al. 2017), by golden-section search.

    A few dev examples that are all predicted correctly would have it fall without end. A normal
    prior on its logarithm, around 1, weighs against them as a few dozen examples would.
    """

    def loss(log: float) -> float:
        logs = windows.logs(math.exp(log))
        own = logs[np.arange(len(logs)), windows.classes]
        return -float(own.sum()) + (log / PRIOR) ** 2 / 2

    ratio, (low, high) = (math.sqrt(5) - 1) / 2, RANGE
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return round(math.exp((low + high) / 2), 4)


def _windows(bert: LoadedModel, dev: Evaluation) -> WindowLogits:
    """The logits of all windows, and the index of each label; unknown labels are left out."""
    examples, classes = dev.dataset.examples, dict[int, int]()
    for number, (example, one) in enumerate(zip(examples, dev.predictions, strict=True)):
        scores, label = one.output["scores"], dev.task.label_of(example)
        names = [*scores] if isinstance(scores, dict) else [*range(len(scores))]
        if label in names:
            classes[number] = names.index(label)
    if not classes:
        raise BertsmithError(f"{dev.dataset.path}: no example has a label that the model knows")
    votes = [vote for vote in dev.task.votes(bert, examples, dev.predictions) if vote[0] in classes]
    places = {number: place for place, number in enumerate(classes)}
    owners = np.array([places[number] for number, _, _ in votes])
    weights = np.array([weight for _, weight, _ in votes], np.float64)
    logits = np.full((len(votes), max(len(row) for _, _, row in votes)), -np.inf)
    for line, (_, _, row) in zip(logits, votes, strict=True):
        line[: len(row)] = row
    shares = weights / np.bincount(owners, weights)[owners]
    return WindowLogits(logits, owners, shares, np.array([*classes.values()]))


def _error(windows: WindowLogits, temperature: float) -> float:
    chances = np.exp(windows.logs(temperature))
    confidences = np.minimum(1.0, chances.max(1)).tolist()
    return calibration(confidences, chances.argmax(1) == windows.classes).expected


def _cross_fitted(windows: WindowLogits) -> float | None:
    """The calibration error of each half of the data with the temperature of the other half."""
    if len(windows.classes) < 4:
        return None
    total = 0.0
    for first, second in ((0, 1), (1, 0)):
        half = windows.every_second(second)
        temperature = fit_temperature(windows.every_second(first))
        total += len(half.classes) * _error(half, temperature)
    return total / len(windows.classes)


def _best(candidates: Sequence[float], value: Callable[[float], float]) -> float:
    """The candidate with the highest value; of equals the one nearest to 0.5."""
    return max(candidates, key=lambda limit: (round(value(limit), 12), -abs(limit - 0.5)))


def _candidates(chances: NDArray[np.float64]) -> list[float]:
    values = np.unique(chances)
    middles = (values[1:] + values[:-1]) / 2
    if len(middles) > CANDIDATES:
        middles = middles[np.linspace(0, len(middles) - 1, CANDIDATES).astype(int)]
    return [0.5, *middles.tolist()]


def _label_thresholds(dev: Evaluation) -> dict[str, float]:
    thresholds = {}
    for name in dev.predictions[0].output["scores"]:
        chances = np.array([prediction.output["scores"][name] for prediction in dev.predictions])
        labels = np.array([name in dev.task.label_of(row) for row in dev.dataset.examples])

        def value(limit: float, chances: Any = chances, labels: Any = labels) -> float:
            chosen = chances > limit
            return score(int((chosen & labels).sum()), int(chosen.sum()), int(labels.sum())).f1

        thresholds[name] = _best(_candidates(chances), value)
    return thresholds


def _threshold(dev: Evaluation, label: str, metric: str) -> float:
    chances = np.array([prediction.output["scores"][label] for prediction in dev.predictions])
    other = next(name for name in dev.predictions[0].output["scores"] if name != label)

    def value(limit: float) -> float:
        values = [label if chance > limit else other for chance in chances]
        pairs = zip(dev.predictions, values, strict=True)
        predictions = [replace(prediction, value=value) for prediction, value in pairs]
        result = dev.task.scorer(dev.dataset, predictions)(None).get(metric)
        return -math.inf if result is None or math.isnan(result) else result

    return _best(_candidates(chances), value)
