"""Labels, several labels and numbers: learned, stored by name, opened by `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith import BertsmithError, load
from bertsmith.finetuning import finetune, settings_for
from bertsmith.finetuning.batches import batch_of
from bertsmith.finetuning.setup import open_fresh
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.training import TrainingItem, binary_loss, class_loss, class_weights
from finetuning.conftest import FAST, Write, labelled, texts
from tasks.models import Maker


def theirs(folder: Path, *texts: str) -> torch.Tensor:
    """The logits of what `transformers` opens."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**words(*([text] for text in texts), return_tensors="pt")).logits[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta-v2", "modernbert"])
def test_a_family_learns_labels(family: str, base: Maker, write: Write, tmp_path: Path) -> None:
    train, dev = write("train.jsonl", labelled()), write("dev.jsonl", labelled(12))
    out = tmp_path / "out"
    result = finetune(base(family).folder, train, out, dev=dev, **FAST)
    assert result.kept.dev is not None
    assert result.kept.dev.scores["accuracy"] == 1.0
    again = load(out, device="cpu")
    assert again.checkpoint.labels == ["city", "thing"]
    found = again.classify("the old river flows Paris number 3")
    assert found.label == "city"
    logits = theirs(out, "the old river flows Paris number 3")
    assert logits.softmax(-1).tolist() == pytest.approx(list(found.scores.values()), abs=1e-4)
    assert {path.name for path in out.iterdir()} >= {"report.html", "report.json", "ledger.json"}


def test_files_are_read_as_said(base: Maker, tmp_path: Path) -> None:
    rows = "".join(f"die Brücke in {i},{'city' if i % 2 else 'thing'}\n" for i in range(20))
    (tmp_path / "a.txt").write_bytes(rows.encode("cp1252"))
    settings = {**FAST, "epochs": 1, "hold_out": 0.2, "columns": {"text": "1", "label": "2"}}
    reading = {"header": False, "encoding": "cp1252", "format": "csv"}
    result = finetune(base().folder, tmp_path / "a.txt", **reading, **settings)
    assert result.kept.dev is not None
    assert result.kept.bert.checkpoint.labels == ["city", "thing"]
    assert result.kept.dev.scores["count"] == 4
    with pytest.raises(BertsmithError, match="0xfc"):
        finetune(base().folder, tmp_path / "a.txt", **settings)


def test_the_order_of_labels_is_of_no_matter(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = labelled()
    files = [write("a.jsonl", rows), write("b.jsonl", rows[::-1])]
    for number, path in enumerate(files):
        finetune(base().folder, path, tmp_path / str(number), hold_out=0, **FAST | {"epochs": 1})
    first, second = (load(tmp_path / name, device="cpu").checkpoint for name in ("0", "1"))
    assert first.labels == second.labels == ["city", "thing"]
    # A model is scored by names: a file with the labels in any order gives the same score.
    bert = load(tmp_path / "0", device="cpu")
    scores = [evaluate(bert, read_data(path)).scores for path in files]
    assert scores[0] == scores[1]


def test_pairs(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [
        {"premise": text, "hypothesis": f"a {word}", "label": "yes" if label == word else "no"}
        for text, label in texts(64)
        for word in ("city", "thing")
    ]
    out = tmp_path / "out"
    finetune(base().folder, write("train.jsonl", rows), out, **FAST | {"epochs": 1})
    pair = (rows[0]["premise"], rows[0]["hypothesis"])
    found = load(out, device="cpu").classify(*pair)
    near = theirs(out, *pair).softmax(-1).tolist()
    assert near == pytest.approx(list(found.scores.values()), abs=1e-4)


def test_several_labels(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [
        {"text": text, "labels": [label] if number % 3 else [label, "third"]}
        for number, (text, label) in enumerate(texts(48))
    ]
    for number, row in enumerate(rows):
        row["text"] += " daughter" if number % 3 == 0 else ""
    out = tmp_path / "out"
    result = finetune(
        base().folder,
        write("t.jsonl", rows),
        out,
        dev=write("d.jsonl", rows),
        **FAST | {"epochs": 24},
    )
    assert result.task == "multilabel"
    assert result.kept.dev is not None
    assert result.kept.dev.scores["micro_f1"] > 0.95
    found = load(out, device="cpu").classify(rows[0]["text"])
    near = theirs(out, rows[0]["text"]).sigmoid().tolist()
    assert near == pytest.approx(list(found.scores.values()), abs=1e-4)
    known = [*rows[0]["labels"]][:1]
    some = write("some.jsonl", [{"text": "b", "labels": ["new"]}, {"text": "a", "labels": known}])
    bert = load(out, device="cpu")
    notes = evaluate(bert, read_data(some)).notes
    assert "examples with labels the model does not know (new): 1" in notes
    with pytest.raises(BertsmithError, match="knows none of the labels"):
        evaluate(bert, read_data(write("none.jsonl", [{"text": "a", "labels": ["new"]}])))


def test_numbers_of_any_unit(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [
        {"text": text, "score": 90_000.5 if label == "city" else 20_000.0}
        for text, label in texts(48)
    ]
    out = tmp_path / "out"
    file = write("t.jsonl", rows)
    result = finetune(base().folder, file, out, dev=file, **FAST)
    assert (result.task, result.metric) == ("regression", "pearson")
    assert result.kept.dev is not None
    assert result.kept.dev.scores["pearson"] > 0.95
    found = load(out, device="cpu").classify(rows[0]["text"]).score
    assert found == pytest.approx(90_000, abs=20_000)
    assert float(theirs(out, rows[0]["text"])[0]) == pytest.approx(found, rel=1e-4)


def test_losses_are_torchs_own() -> None:
    logits, targets = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    plain = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)
    assert class_loss(logits, targets, smoothing=0.1).mean() == pytest.approx(float(plain))
    focal = class_loss(logits, targets, focal=2.0)
    chance = logits.softmax(-1)[torch.arange(6), targets]
    assert torch.allclose(focal, -((1 - chance) ** 2) * chance.log(), atol=1e-6)
    marks = torch.nn.functional.one_hot(targets, 3).float()
    both = torch.nn.functional.binary_cross_entropy_with_logits(logits, marks)
    assert binary_loss(logits, marks).mean() == pytest.approx(float(both))
    assert binary_loss(logits, marks, focal=2.0).mean() < both


def test_class_weights() -> None:
    seen = ["a"] * 6 + ["b"] * 2
    assert class_weights("", ["a", "b"], seen) == [1.0, 1.0]
    assert class_weights("balanced", ["a", "b"], seen) == pytest.approx([8 / 12, 2.0])
    assert class_weights("b=3", ["a", "b"], seen) == [1.0, 3.0]
    for bad in ("c=1", "a=x", "a=-1", "a"):
        with pytest.raises(BertsmithError, match="class weights"):
            class_weights(bad, ["a", "b"], seen)


def test_rare_labels_of_a_multi_label_file_are_balanced(write: Write) -> None:
    """Where a label applies it counts as much, in sum, as where it does not: as in scikit-learn."""
    sklearn = pytest.importorskip("sklearn.utils")
    rows = [{"text": f"text {n}", "labels": [f"l{n}"] if n < 3 else []} for n in range(30)]
    dataset = read_data(write("m.jsonl", rows), "multilabel")
    settings = settings_for("multilabel", class_weights="balanced")
    training = task_named("multilabel").training(dataset, settings)
    items = [TrainingItem((), training.target(one)) for one in dataset.examples]  # type: ignore[attr-defined]
    each = training.targets(items)["each"]
    for column in each.T:
        applies = [0] * 29 + [1]
        without, with_label = sklearn.compute_class_weight(
            "balanced", classes=np.array([0, 1]), y=applies
        )
        assert sorted(column.tolist()) == pytest.approx([without] * 29 + [with_label])


def test_a_long_text_counts_as_one(base: Maker, write: Write) -> None:
    long = " ".join(["the river flows"] * 150)
    rows = [{"text": long, "label": "a"}, {"text": "the river", "label": "b"}]
    dataset = read_data(write("t.jsonl", rows))
    settings = settings_for("classification", class_weights="a=2")
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    first, second = training.samples(bert, dataset.gold())
    assert len(first) > 3
    assert len(second) == 1
    assert sum(item.weight for item in first) == pytest.approx(2.0)
    assert second[0].weight == pytest.approx(1.0)
    assert bert.ledger.counts["long texts read in windows"] == 1


def test_the_loss_is_transformers_own(base: Maker, write: Write, tmp_path: Path) -> None:
    """The same batch costs the same, so the same steps follow."""
    dataset = read_data(write("t.jsonl", labelled(8)))
    settings = settings_for("classification")
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    samples = training.samples(bert, dataset.gold())
    items = [item for sample in samples for item in sample]
    batch = batch_of(items).to(bert.device)
    loss = training.loss(training.outputs(bert.model, batch), batch, training.targets(items)) / len(
        items
    )
    bert.save(tmp_path / "fresh")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "fresh")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "fresh")
    inputs = words([one.text for one in dataset.examples], return_tensors="pt", padding=True)
    labels = torch.tensor([bert.checkpoint.labels.index(one.label) for one in dataset.examples])
    theirs = model.eval()(**inputs, labels=labels).loss
    assert float(loss.detach()) == pytest.approx(float(theirs.detach()), abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ([{"text": "a", "label": "x"}, {"text": "b", "label": "x"}], {}, "at least two labels"),
        ([{"text": "a", "score": 1.5}, {"text": "b", "score": 1.5}], {}, "all scores are 1.5"),
        ([{"text": "a"}, {"text": "b"}], {}, "no labels to train on; name their column"),
        (None, {"learning_rate": 9.0}, "learning_rate should be less than or equal to 1, not 9.0"),
        (None, {"freeze": "all"}, "freeze should be none, embedding, encoder"),
        (None, {"freeze": "9"}, "9 layers cannot be frozen: the model has 2"),
        (None, {"reinitialise": 3}, "3 layers cannot be reinitialised"),
        (None, {"metric": "calibration_error"}, "cannot select by 'calibration_error'"),
        (None, {"metric": "f2"}, "cannot select by 'f2'"),
        (None, {"class_weights": "x=1"}, "'x' is not a label"),
        (None, {"seeds": 0}, "seeds must be from 1 to 1000, not 0"),
        (None, {"hold_out": 2.0}, "hold_out must be a fraction"),
        (None, {"sweep": True, "hold_out": 0.0}, "a sweep needs a dev file"),
        (None, {"rate": 1}, "unknown setting 'rate'"),
        (None, {"optimizer": "sgd"}, "optimizer should be 'adamw' or 'muon', not 'sgd'"),
        (
            None,
            {"matrix_learning_rate": -1},
            "matrix_learning_rate should be greater than or equal to 0, not -1",
        ),
        (None, {"matrix_learning_rate": 0.01}, "matrix_learning_rate is for the optimizer muon"),
    ],
)
def test_mistakes(
    rows: list[dict[str, object]] | None,
    more: dict[str, object],
    message: str,
    base: Maker,
    write: Write,
    tmp_path: Path,
) -> None:
    file, out = write("t.jsonl", rows or labelled(12)), tmp_path / "out"
    with pytest.raises(BertsmithError, match=message) as error:
        finetune(base().folder, file, out, **{"epochs": 1, "hold_out": 0.5, **more})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]
