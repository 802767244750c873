"""Calibration on dev data: temperature scaling, decision thresholds and abstention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics import calibration
from bertsmith.metrics.labels import score
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, evaluate, keep_settings
from bertsmith.tasks.registry import TASKS

RANGE = (math.log(0.05), math.log(20.0))  # of the logarithm of temperatures
PRIOR = 0.5  # standard deviation of that logarithm before any data is seen
CANDIDATES = 200  # thresholds that are tried
Logs = list[NDArray[np.float64]]  # log-probabilities of the choices of each example


def check_calibration(task: str, dev: Dataset[Any] | None, abstain: float | None) -> None:
    """Refuse to calibrate what has no probabilities, or without dev data."""
    known = [one.name for one in TASKS.values() if one.exclusive]
    known += [one.name for one in TASKS.values() if one.several and abstain is None]
    if task not in known:
        names = ", ".join(known)
        raise BertsmithError(f"calibration and abstention are for {names}, not for {task}")
    if dev is None:
        raise BertsmithError("calibration needs a dev file or held-out examples")
    if abstain is not None and not 0 < abstain <= 1:
        raise BertsmithError(f"abstain must be an accuracy above 0 and up to 1, not {abstain}")


def calibrate(
    bert: LoadedModel, dev: Evaluation, metric: str, *, scale: bool, abstain: float | None
) -> tuple[Evaluation, dict[str, Any]]:
    """Fit on dev data what the model then keeps; the new evaluation, and what was fitted.

    The temperature goes into the weights of the output layer, so that every library that opens
    the model has calibrated probabilities; thresholds are entries of config.json.
    """
    content: dict[str, Any] = {
        "fitted_on": dev.dataset.path.name,
        "examples": len(dev.predictions),
        "note": "fitted on dev data: dev scores are optimistic; a test file says more",
    }
    if scale and dev.task.exclusive:  # one temperature scales all probabilities
        logs, classes = _logs(dev)
        temperature = fit_temperature(logs, classes)
        content["temperature"] = temperature
        content["error_before"] = _error(logs, classes, 1.0)
        content["error_after"] = _cross_fitted(logs, classes)  # each half by the other's
        _divide_outputs(bert.model.heads[str(dev.task.head)], temperature)
        dev = evaluate(bert, dev.dataset)
    if scale and dev.task.several:
        content["thresholds"] = _label_thresholds(dev)
        keep_settings(bert, {"label_thresholds": content["thresholds"]})
        dev = evaluate(bert, dev.dataset)
    if scale and (label := dev.task.positive(bert.checkpoint.labels)) is not None:
        content["decision_threshold"] = {"label": label, "value": _threshold(dev, label, metric)}
        keep_settings(bert, {"decision_threshold": content["decision_threshold"]})
        dev = evaluate(bert, dev.dataset)
    if abstain is not None:
        content["abstain"] = _abstention(dev, abstain)
        keep_settings(bert, {"abstain_below": content["abstain"]["below"]})
        dev = evaluate(bert, dev.dataset)
    return dev, content


def fit_temperature(logs: Logs, classes: Sequence[int]) -> float:
    """The temperature with the lowest cross entropy (Guo et al. 2017), by golden-section search.

    A few dev examples that are all predicted correctly would have it fall without end. A normal
    prior on its logarithm, around 1, weighs against them as a few dozen examples would.
    """

    def loss(log: float) -> float:
        return _loss(logs, classes, math.exp(log)) + (log / PRIOR) ** 2 / 2

    ratio, (low, high) = (math.sqrt(5) - 1) / 2, RANGE
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return round(math.exp((low + high) / 2), 4)


def _logs(dev: Evaluation) -> tuple[Logs, list[int]]:
    """Log-probabilities and the index of each label; unknown labels are left out."""
    logs, classes = [], []
    for example, one in zip(dev.dataset.examples, dev.predictions, strict=True):
        scores = one.output["scores"]
        names = list(scores) if isinstance(scores, dict) else list(range(len(scores)))
        values = list(scores.values()) if isinstance(scores, dict) else list(scores)
        label = dev.task.label_of(example)
        if label in names:
            logs.append(np.log(np.clip(np.asarray(values, dtype=np.float64), 1e-30, 1.0)))
            classes.append(names.index(label))
    if not logs:
        raise BertsmithError(f"{dev.dataset.path}: no example has a label that the model knows")
    return logs, classes


def _scaled(log: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    values = log / temperature
    powers: NDArray[np.float64] = np.exp(values - values.max())
    return powers / powers.sum()


def _loss(logs: Logs, classes: Sequence[int], temperature: float) -> float:
    pairs = zip(logs, classes, strict=True)
    return -sum(math.log(max(1e-30, _scaled(log, temperature)[place])) for log, place in pairs)


def _error(logs: Logs, classes: Sequence[int], temperature: float) -> float:
    rows = [_scaled(log, temperature) for log in logs]
    right = [int(row.argmax()) == place for row, place in zip(rows, classes, strict=True)]
    return calibration([min(1.0, float(row.max())) for row in rows], right).expected


def _cross_fitted(logs: Logs, classes: Sequence[int]) -> float | None:
    """The calibration error of each half of the data with the temperature of the other half."""
    if len(logs) < 4:
        return None
    sizes, errors = [], []
    for side in (0, 1):
        fitted = fit_temperature(logs[side::2], classes[side::2])
        errors.append(_error(logs[1 - side :: 2], classes[1 - side :: 2], fitted))
        sizes.append(len(logs[1 - side :: 2]))
    return float(np.average(errors, weights=sizes))


@torch.no_grad()
def _divide_outputs(head: nn.Module, temperature: float) -> None:
    for parameter in head.get_submodule("output").parameters():
        parameter.div_(temperature)


def _best(candidates: Sequence[float], value: Callable[[float], float]) -> float:
    """The candidate with the highest value; of equals the one nearest to 0.5."""
    return max(candidates, key=lambda one: (round(value(one), 12), -abs(one - 0.5)))


def _candidates(chances: NDArray[np.float64]) -> list[float]:
    """Thresholds between neighbouring probabilities."""
    values = np.unique(chances)
    middles = (values[1:] + values[:-1]) / 2
    if len(middles) > CANDIDATES:
        middles = middles[np.linspace(0, len(middles) - 1, CANDIDATES).astype(int)]
    return [0.5, *middles.tolist()]


def _label_thresholds(dev: Evaluation) -> dict[str, float]:
    """For every label the threshold with the best F1."""
    found = {}
    for name in dev.predictions[0].output["scores"]:
        chances = np.array([one.output["scores"][name] for one in dev.predictions])
        wanted = np.array([name in dev.task.label_of(one) for one in dev.dataset.examples])

        def value(limit: float, chances: Any = chances, wanted: Any = wanted) -> float:
            chosen = chances > limit
            return score(int((chosen & wanted).sum()), int(chosen.sum()), int(wanted.sum())).f1

        found[name] = _best(_candidates(chances), value)
    return found


def _threshold(dev: Evaluation, label: str, metric: str) -> float:
    """The probability from which the label is predicted, by the score that decides."""
    chances = np.array([one.output["scores"][label] for one in dev.predictions])
    other = next(name for name in dev.predictions[0].output["scores"] if name != label)

    def value(limit: float) -> float:
        predictions = [
            replace(one, value=label if chance > limit else other)
            for one, chance in zip(dev.predictions, chances, strict=True)
        ]
        found = dev.task.scorer(dev.dataset, predictions)(None).get(metric)
        return -math.inf if found is None or math.isnan(found) else found

    return _best(_candidates(chances), value)


def _abstention(dev: Evaluation, wanted: float) -> dict[str, Any]:
    """The lowest confidence at which predictions from there up have the accuracy wanted."""
    correct = dev.task.correct(dev.dataset, dev.values) or []
    rows = sorted(
        zip((one.confidence for one in dev.predictions), correct, strict=True), reverse=True
    )
    right, below, kept = 0, math.nextafter(1.0, 2.0), 0
    for number, (sure, one) in enumerate(rows, 1):
        right += one
        last_of_equals = number == len(rows) or rows[number][0] < sure
        if last_of_equals and right / number >= wanted:
            below, kept = sure, number
    accuracy = sum(one for _, one in rows[:kept]) / kept if kept else None
    return {
        "accuracy_wanted": wanted,
        "below": below,
        "coverage": kept / len(rows),
        "accuracy": accuracy,
    }
