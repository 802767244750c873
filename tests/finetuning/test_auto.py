"""`--auto`: several ways to learn, compared on the same held-out rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import BertsmithError, load
from bertsmith.finetuning import Splits, finetune, settings_for
from bertsmith.finetuning.auto import (
    WORDS,
    Candidate,
    ContrastiveWarmUp,
    Limit,
    ModelSelection,
    OutOfTime,
    auto_notes,
)
from bertsmith.finetuning.plan import TrainingPlan
from bertsmith.finetuning.tuning import SilentCallback
from bertsmith.infer.loaded import pick_device
from bertsmith.tasks.read import read_data
from bertsmith.tasks.task import Prediction
from bertsmith.train.distributed import Ranks
from finetuning.conftest import Write, labelled, texts
from finetuning.test_labels import theirs
from finetuning.test_words import sentences
from tasks.models import Maker

LONG = 10_000  # minutes: enough on any machine
TEXT = "the old river flows Paris number 3"


class Told(SilentCallback):
    """Keeps what was said, and which files were there."""

    def __init__(self, out: Path) -> None:
        self.out, self.lines, self.there = out, [], []  # type: ignore[var-annotated]

    def say(self, line: str) -> None:
        self.lines.append(line)
        self.there.append((self.out / "model.safetensors").exists())


def test_the_best_is_an_ordinary_model(
    base: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"FEW": 40, "FOLDS": 2, "WARM_EPOCHS": 2, "TUNED_EPOCHS": 2}  # all ways are tried
    for name, value in few.items():
        monkeypatch.setattr(f"bertsmith.finetuning.auto.{name}", value)
    out, train = tmp_path / "out", write("train.jsonl", labelled(40))
    told = Told(out)
    test = write("test.jsonl", labelled(12))
    result = finetune(
        base("modernbert").folder, train, out, test=test, auto=True, minutes=LONG, watch=told
    )
    assert result.kept.scores["test"]["accuracy"] == 1.0  # type: ignore[index]
    assert result.kept.scores["dev"]["count"] == 40  # type: ignore[index]
    found = load(out, device="cpu").classify(TEXT)
    assert found.label == "city"
    logits = theirs(out, TEXT)
    assert logits.softmax(-1).tolist() == pytest.approx(list(found.scores.values()), abs=1e-3)
    report = json.loads((out / "report.json").read_text())["auto"]
    rows = {one["name"].split(" of ")[0]: one for one in report["candidates"]}
    assert {"linear layer on vectors", "contrastive training", "all weights"} <= {*rows}
    assert any(one["name"].startswith("TF-IDF") for one in report["candidates"])
    models = [one for one in report["candidates"] if not one["name"].startswith("TF-IDF")]
    assert report["chosen"] == max(models, key=lambda one: one["estimate"])["name"]
    assert told.there[-1]  # the first model was there before the last was fitted
    assert any("auto: chose" in note for note in result.notes)
    assert not any("few examples" in one or "the epoch" in one for one in result.notes)
    assert "auto: chose" in (out / "report.html").read_text("utf-8")


def test_no_time_leaves_the_quick_ones(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_in_time(*_: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(Limit, "step", never_in_time)  # as on a very slow machine
    train = write("train.jsonl", labelled(24))
    result = finetune(base().folder, train, auto=True, minutes=LONG)
    rows = result.extras["auto"]["candidates"]
    late = [one for one in rows if one["score"] is None]
    assert [one["name"].split(" of ")[0] for one in late]
    assert all("linear layer" not in one["name"] for one in late)
    assert any("longer than the minutes allow" in note for note in result.notes)


@pytest.mark.slow
def test_tags_and_numbers(base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without contrastive training all weights are trained for many steps."""
    monkeypatch.setattr("bertsmith.finetuning.auto.FOLDS", 2)
    monkeypatch.setattr("bertsmith.finetuning.auto.TUNED_STEPS", 40)
    made = base().folder
    tags = finetune(made, write("t.jsonl", sentences()), auto=True, minutes=LONG)
    assert tags.kept.scores["dev"]["accuracy"] > 0.5  # type: ignore[index]
    assert any("all weights" in one["name"] for one in tags.extras["auto"]["candidates"])
    numbers = [
        {"text": text, "score": 50.0 if label == "city" else -20.0} for text, label in texts()
    ]
    data = write("n.jsonl", numbers)
    result = finetune(made, data, auto=True, minutes=LONG, task="regression")
    assert result.kept.scores["dev"]["pearson"] > 0.8  # type: ignore[index]
    assert result.bert.checkpoint.settings["problem_type"] == "regression"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sweep": True, "hold_out": 0.5}, "cannot be combined with sweep"),
        ({"seeds": 2}, "cannot be combined with seeds"),
        ({"minutes": 0}, "minutes"),
    ],
)
def test_options_that_do_not_fit(
    given: dict[str, Any], message: str, base: Maker, write: Write, tmp_path: Path
) -> None:
    train = write("train.jsonl", labelled(24))
    dev = write("dev.jsonl", labelled(12))
    with pytest.raises(BertsmithError, match=message):
        finetune(base().folder, train, tmp_path / "out", dev=dev, auto=True, **given)
    assert not (tmp_path / "out").exists()


class Clock:
    """A clock on which every look takes a second."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


def test_a_training_ends_after_its_time_or_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.finetuning.auto.monotonic", Clock())
    limit = Limit(2.5, steps=5)
    limit.step(1, 100, 0.0)
    limit.step(2, 100, 0.0)
    assert limit.pace == 1.0
    with pytest.raises(OutOfTime):
        limit.step(3, 100, 0.0)
    with pytest.raises(OutOfTime):
        Limit(100, steps=5).step(5, 100, 0.0)


@pytest.mark.parametrize(("seconds", "epochs"), [(400.0, 10), (16.0, 5), (4.0, 0)])
def test_as_many_epochs_as_the_time_allows(
    seconds: float, epochs: int, base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch has two steps of a second each: 20 are ten epochs. Three are for measuring."""
    monkeypatch.setattr("bertsmith.finetuning.auto.monotonic", Clock())
    monkeypatch.setattr("bertsmith.finetuning.auto.WARM_BATCH", 12)
    compared = choice(base, write, 24)
    way = Candidate("any", ModelSelection._contrastive, str(base().folder))
    if epochs:
        ModelSelection._contrastive(compared, way, compared.data, seconds)
    else:
        with pytest.raises(OutOfTime):
            ModelSelection._contrastive(compared, way, compared.data, seconds)
    assert (way.settings.epochs if way.settings else 0) == epochs


@pytest.mark.parametrize(
    ("vectors", "loss"),
    [
        ([[1, 0], [1, 0], [0, 1]], 0.0),
        ([[1, 0], [1, 0], [1, 0]], 3.0),  # two labels of one vector
        ([[1, 0], [0, 1], [0, 1]], 4.5),  # one label apart (1), another near half of it (1/2)
    ],
)
def test_contrastive_loss(vectors: list[list[float]], loss: float) -> None:
    """Pairs of one label and pairs of two count the same, however many there are."""
    way: Any = object.__new__(ContrastiveWarmUp)
    targets = {"labels": torch.tensor([0, 0, 1])}
    found = way.loss(torch.tensor(vectors, dtype=torch.float32), None, targets)
    assert found.item() == pytest.approx(loss)
    alone = way.loss(torch.tensor([[1.0, 0.0]]), None, {"labels": torch.tensor([0])})
    assert alone.item() == 0.0


def choice(base: Maker, write: Write, count: int) -> ModelSelection:
    data = read_data(write("train.jsonl", labelled(count)))
    settings, ranks = settings_for("classification", metric="accuracy"), Ranks(pick_device("cpu"))
    plan = TrainingPlan(base().folder, Splits(data), settings, None, None, ranks)  # type: ignore[arg-type]
    return ModelSelection(plan, 1)


@pytest.mark.parametrize(("count", "fewer", "better"), [(16, 1, True), (400, 40, False)])
def test_few_rows_are_weighed_with_what_is_expected(
    count: int, fewer: int, better: bool, base: Maker, write: Write
) -> None:
    """One error more of 16 says little against a slower way; ten percent of 400 rows say much."""
    compared = choice(base, write, count)
    labels = [one.label for one in compared.data.examples]

    def with_errors(wrong: int) -> dict[int, Prediction]:
        flipped = [{"city": "thing", "thing": "city"}[one] for one in labels[:wrong]]
        return {n: Prediction(one, 1.0) for n, one in enumerate(flipped + labels[wrong:])}

    def candidate(wrong: int, *more: Any) -> Candidate:
        made = Candidate("any", None, "", *more, predictions=with_errors(wrong))  # type: ignore[arg-type]
        made.score = made.estimate = 1 - wrong / count
        return made

    quick = candidate(2)
    slow = candidate(2 + fewer, quick, (0.03, 0.04))
    assert (compared._estimate(slow) > quick.estimate) == better
    same_prior = candidate(2 + fewer, quick)
    assert compared._estimate(same_prior) == pytest.approx(1 - (2 + fewer) / count)


def test_notes_where_nothing_could_be_scored() -> None:
    row = {"name": "a", "score": None, "estimate": None, "examples": 8, "note": "no value"}
    about = {"chosen": "a", "metric": "pearson", "folds": 4, "cross_validated": False}
    notes = auto_notes({**about, "candidates": [row]})
    assert any("not compared: a (no value)" in note for note in notes)
    words = {**row, "name": WORDS, "score": 0.9, "estimate": 0.9}
    better = {**row, "score": 0.8, "estimate": 0.8}
    notes = auto_notes({**about, "candidates": [words, better]})
    assert any("use this simpler model" in note for note in notes)
