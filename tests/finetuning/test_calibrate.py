"""Temperature, thresholds and abstention: fitted on dev data, kept by the model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import bertsmith as bs
from bertsmith import BertsmithError, distill, load
from bertsmith.finetuning import finetune
from bertsmith.finetuning.calibrate import (
    CalibrationOptions,
    WindowLogits,
    _best,
    _candidates,
    calibrate,
    fit_temperature,
)
from bertsmith.tasks.evaluate import Evaluation, evaluate
from bertsmith.tasks.read import read_data
from finetuning.conftest import Write, labelled
from tasks.models import Maker

FEW = {"epochs": 3, "learning_rate": 3e-3, "batch_size": 8, "device": "cpu"}


def single(logits: np.ndarray, classes: list[int]) -> WindowLogits:
    """Examples of one window each."""
    return WindowLogits(logits, np.arange(len(logits)), np.ones(len(logits)), np.array(classes))


def test_the_temperature_is_that_of_the_data() -> None:
    """Labels drawn from softmax(logits / 2.5), as scipy would minimise the cross entropy."""
    optimize = pytest.importorskip("scipy.optimize")
    random = np.random.default_rng(0)
    logits = random.normal(0, 4, (800, 3))
    chances = np.exp(logits / 2.5)
    chances /= chances.sum(1, keepdims=True)
    classes = [int(random.choice(3, p=row)) for row in chances]

    def loss(temperature: float) -> float:
        scaled = logits / temperature
        top = scaled.max(1, keepdims=True)
        logs = scaled - top - np.log(np.exp(scaled - top).sum(1, keepdims=True))
        prior = (np.log(temperature) / 0.5) ** 2 / 2  # a normal one of the logarithm
        return float(-logs[np.arange(800), classes].sum() + prior)

    expected = optimize.minimize_scalar(loss, bounds=(0.05, 20), method="bounded").x
    assert fit_temperature(single(logits, classes)) == pytest.approx(expected, abs=1e-3)


def test_a_calibrated_model_keeps_it(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = labelled(200)
    for number in range(0, 200, 20):  # labels that cannot be learned
        rows[number]["label"] = "city" if rows[number]["label"] == "thing" else "thing"
    train, dev, out = write("t.jsonl", labelled(48)), write("d.jsonl", rows), tmp_path / "out"
    result = finetune(
        base().folder,
        train,
        out,
        dev=dev,
        test=dev,
        calibrate=True,
        abstain=0.8,
        coverage=0.9,
        metric="f1",
        **FEW,
    )
    content = json.loads((out / "report.json").read_text())["calibration"]
    assert content["fitted_on"] == "d.jsonl"
    assert content["temperature"] > 0
    assert content["test_error_after"] < content["test_error_before"] + 0.05
    assert content["decision_threshold"]["label"] == "thing"
    assert "temperature" in content["note"]
    assert "thresholds" in content["note"]
    bert = load(out, device="cpu")
    again = evaluate(bert, read_data(dev))
    assert again.scores["f1"] == pytest.approx(result.kept.scores["test"]["f1"])  # type: ignore[index]
    assert content["kept_apart"] == pytest.approx(100, abs=3)  # half of the dev data
    assert 0 < content["abstain"]["coverage"] <= 1
    assert all("abstained" in one.output for one in again.predictions)
    assert again.scores["set_coverage"] == pytest.approx(0.9, abs=0.12)
    assert all(set(one.output["set"]) <= {"city", "thing"} for one in again.predictions)
    more = bs.predict(out, dev, coverage=0.98, device="cpu")
    sizes = [len(row["set"]) for row in more]
    assert sum(sizes) >= sum(len(one.output["set"]) for one in again.predictions)
    with pytest.raises(BertsmithError, match="coverage must be"):
        bs.predict(out, dev, coverage=0.999, device="cpu")
    assert bert.classify("Paris").scores.keys() == {"city", "thing"}


def test_a_classifier_gets_a_temperature_without_being_asked(base: Maker, write: Write) -> None:
    train, dev, few = (write(f"{n}.jsonl", labelled(n)) for n in (48, 60, 49))
    model = base().folder
    plain = finetune(model, train, dev=dev, calibrate=False, **FEW)
    result = finetune(model, train, dev=dev, **FEW)
    content = result.extras["calibration"]
    assert content["examples"] == 60
    assert content["temperature"] != 1.0
    assert "decision_threshold" not in content
    [note] = [note for note in result.notes if "calibration error is" in note]
    assert f"temperature {content['temperature']:g}, fitted on the dev data" in note
    assert "calibration" not in plain.extras
    before, after = (run.kept.dev for run in (plain, result))
    assert before is not None
    assert after is not None
    assert after.values == before.values  # of the same labels, another confidence
    assert after.scores["accuracy"] == before.scores["accuracy"]
    first, second = (
        np.log([*run.predictions[0].output["scores"].values()]) for run in (before, after)
    )
    ratio = np.ptp(first) / np.ptp(second)
    assert ratio == pytest.approx(content["temperature"], rel=1e-3)
    assert "calibration" not in finetune(model, train, dev=few, **FEW).extras


def test_the_temperature_is_that_of_texts_of_several_windows(base: Maker, write: Write) -> None:
    """No other temperature has a lower loss, by the predictions of the model with it."""
    rows = labelled(60)
    for row, other in zip(rows[::2], rows[1::2], strict=True):  # windows of both classes
        most, least = [row["text"]] * 12, [other["text"]] * 8
        row["text"], other["text"] = " ".join(most + least), " ".join([*least, *most, *least[:6]])
    bert = finetune(base().folder, write("t.jsonl", labelled()), calibrate=False, **FEW).kept.bert
    output, data = bert.model.heads["classify"].output, read_data(write("d.jsonl", rows))
    assert len(bert.windows([one.text for one in data.examples])) > 2 * len(data)

    def scale(factor: float) -> Evaluation:
        for parameter in output.parameters():
            parameter.data *= factor
        return evaluate(bert, data)

    found = calibrate(bert, scale(20.0), "f1", CalibrationOptions(temperature=True))[1]

    def loss(factor: float) -> float:
        pairs = zip(scale(1 / factor).predictions, data.examples, strict=True)
        total = -sum(math.log(one.output["scores"][example.label]) for one, example in pairs)
        scale(factor)
        return total + (math.log(found["temperature"] * factor) / 0.5) ** 2 / 2

    assert loss(1.0) < min(loss(1.02), loss(1 / 1.02))


def test_thresholds_of_several_labels(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [
        {"text": f"a {'red' if n % 2 else 'blue'} car {n}", "labels": ["red"] if n % 2 else []}
        for n in range(24)
    ] + [{"text": "a boat", "labels": ["boat"]}]
    file, out = write("t.jsonl", rows), tmp_path / "out"
    settings = {**FEW, "task": "multilabel", "dev": file}
    plain = finetune(base().folder, file, **settings)
    result = finetune(base().folder, file, out, calibrate=True, **settings)
    before, after = (run.kept.scores["dev"] for run in (plain, result))
    assert before is not None
    assert after is not None
    assert after["macro_f1"] >= before["macro_f1"]
    stored = json.loads((out / "config.json").read_text())["label_thresholds"]
    assert stored.keys() == {"red", "boat"}
    loaded = evaluate(load(out, device="cpu"), read_data(file, "multilabel"))
    assert loaded.scores["macro_f1"] == pytest.approx(after["macro_f1"])


def test_a_few_easy_examples_do_not_make_a_model_certain() -> None:
    logs = np.log(np.tile([0.9, 0.1], (20, 1)))
    assert 0.5 < fit_temperature(single(logs, [0] * 20)) < 1.0
    truth = [0] * 18 + [1] * 2  # what it says: 90%
    assert fit_temperature(single(logs, truth)) == pytest.approx(1.0, abs=0.01)


def test_thresholds_are_not_rounded() -> None:
    chances = np.array([1e-5] * 99 + [4e-5])
    wanted = np.arange(100) == 99
    limit = _best(_candidates(chances), lambda one: float(((chances > one) == wanted).mean()))
    assert ((chances > limit) == wanted).all()


def test_thresholds_end_with_the_weights_they_were_fitted_for(
    base: Maker, write: Write, tmp_path: Path
) -> None:
    file, before = write("t.jsonl", labelled(24)), tmp_path / "before"
    finetune(base().folder, file, before, dev=file, **FEW)
    config = json.loads((before / "config.json").read_text())
    stale = {
        "decision_threshold": {"label": "city", "value": 0.97},
        "label_thresholds": {"city": 0.97},
        "no_answer_threshold": 0.1,
        "abstain_below": 0.99,
        "conformal": {"coverage": 0.9, "rows": 9, "limits": {"90": 0.5}},
    }
    (before / "config.json").write_text(json.dumps({**config, **stale}))
    assert load(before, device="cpu").checkpoint.settings.keys() >= stale.keys()
    result = finetune(before, file, dev=file, **FEW)
    assert not result.kept.bert.checkpoint.settings.keys() & stale.keys()
    assert "coverage" not in (result.kept.scores["dev"] or {})
    student = distill(before, file, layers=1, dev=file, **FEW)
    assert not student.model.checkpoint.settings.keys() & stale.keys()


def test_what_cannot_be_calibrated(base: Maker, write: Write) -> None:
    numbers = write("n.jsonl", [{"text": f"a {n}", "score": n / 7} for n in range(9)])
    with pytest.raises(BertsmithError, match="calibration is for classification, multilabel"):
        finetune(base().folder, numbers, task="regression", calibrate=True)
    labels = write("l.jsonl", labelled(8))
    with pytest.raises(BertsmithError, match="needs a dev file"):
        finetune(base().folder, labels, hold_out=0, calibrate=True)
    with pytest.raises(BertsmithError, match="coverage needs at least 9 rows"):
        finetune(base().folder, labels, dev=labels, coverage=0.9)
    with pytest.raises(BertsmithError, match=r"coverage must be 0.5, .* 0.99, not 0.999"):
        finetune(base().folder, labels, dev=labels, coverage=0.999)
    with pytest.raises(BertsmithError, match="abstain must be an accuracy"):
        finetune(base().folder, labels, abstain=1.5)


def test_a_finished_model_is_calibrated_on_fresh_rows(
    base: Maker, write: Write, tmp_path: Path
) -> None:
    """Numbers have intervals; what was fitted is in the directory."""
    rows = [{"text": f"a car of {n % 7}", "score": n % 7 + n % 3 / 10} for n in range(60)]
    train, fresh, out = write("t.jsonl", rows[:20]), write("f.jsonl", rows[20:]), tmp_path / "out"
    finetune(base().folder, train, out, dev=train, task="regression", **FEW)
    with pytest.raises(BertsmithError, match="no held-out rows for a coverage"):
        bs.evaluate(out, fresh, coverage=0.8, device="cpu")
    scores = bs.evaluate(out, fresh, coverage=0.8, calibrate_on=fresh, device="cpu").scores
    assert scores["set_coverage"] == pytest.approx(0.8, abs=0.05)  # of the same rows
    row = bs.predict(out, ["a car of 3"], device="cpu")[0]
    low, high = row["interval"]
    assert low < row["score"] < high
    assert high - low == pytest.approx(scores["set_size"], abs=1e-4)
    with pytest.raises(BertsmithError, match="abstention is for classification"):
        bs.evaluate(out, fresh, abstain=0.9, calibrate_on=fresh, device="cpu")
    with pytest.raises(BertsmithError, match="abstain needs calibrate_on"):
        bs.evaluate(out, fresh, abstain=0.9, device="cpu")
    with pytest.raises(BertsmithError, match="not a model directory that can be changed"):
        bs.evaluate("bertsmith-embed", [("a", "b", 1.0)], coverage=0.9, calibrate_on=fresh)
