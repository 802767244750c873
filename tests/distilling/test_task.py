"""Task distillation: soft targets of every task, students of every kind, and what is reported."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.distilling.task import SoftTraining, answered, read_inputs
from bertsmith.finetuning.batches import batch_of
from bertsmith.objectives.distilled import soft_cross_entropy
from bertsmith.tasks.registry import task_named
from finetuning.conftest import FAST, Write, labelled, texts
from tasks.models import LINES, Made, Maker

SUFFIXES = {
    "classification": "ForSequenceClassification",
    "multilabel": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "answering": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
HEADS: dict[str, dict[str, Any]] = {
    "classification": {"num_labels": 3},
    "multilabel": {"num_labels": 3, "problem_type": "multi_label_classification"},
    "regression": {"num_labels": 1, "problem_type": "regression"},
    "tagging": {"num_labels": 4},
}
OPTIONS: Any = SimpleNamespace(max_length=0, class_weights="", focal=0.0, smoothing=0.0)


def teacher_of(task: str, made: Maker, family: str = "bert") -> Made:
    """A tiny model with a random head for a task."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return made(family, SUFFIXES[task], **HEADS.get(task, {}), **off)


@pytest.fixture(scope="module")
def city(base: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that tells cities from other things."""
    folder = tmp_path_factory.mktemp("city")
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in labelled()))
    bs.finetune(base().folder, file, folder / "teacher", hold_out=0, **FAST)
    return folder / "teacher"


def rows_of(task: str) -> list[dict[str, Any]]:
    """Rows without labels."""
    lines = [*LINES.splitlines(), " ".join(LINES.splitlines())]  # the last is longer than a model
    if task == "answering":
        return [{"question": f"Who wrote {n}?", "passage": text} for n, text in enumerate(lines)]
    if task == "choice":
        return [{"prompt": text, "options": ["a dog", "the town", text[:9]]} for text in lines[:9]]
    return [{"text": text} for text in lines]


@pytest.mark.parametrize("task", SUFFIXES)
def test_a_teacher_is_its_own_best_student(task: str, made: Maker, write: Write) -> None:
    """The loss of a student that equals its teacher is 0, and of any other it is more."""
    teacher = teacher_of(task, made).ours
    dataset = answered(teacher, read_inputs(write("a.jsonl", rows_of(task)), task, False))
    base = task_named(task).training(dataset, OPTIONS)
    training = SoftTraining(base, teacher, 2.0, 0.0)
    items = [item for sample in training.samples(teacher, dataset.gold()) for item in sample]
    batch, targets = batch_of(items).to(torch.device("cpu")), training.targets(items)
    outputs = training.outputs(teacher.model, batch).detach()
    if task == "regression":  # which learns deviations from the mean
        outputs = (outputs - base.mean) / base.deviation  # type: ignore[attr-defined]
    assert float(training.loss(outputs, batch, targets)) == pytest.approx(0, abs=1e-4)
    other = outputs + torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
    assert float(training.loss(other, batch, targets)) > 0.1
    if not training.exact:
        sequences, tokens = len(batch.layout.lengths) + 3, batch.layout.total + 11
        more = training.padded(targets, sequences, tokens)
        assert all(len(more[name]) >= len(rows) for name, rows in targets.items())


def test_the_loss_is_hintons() -> None:
    student, teacher = torch.randn(5, 3), torch.randn(5, 3)
    goal = (teacher / 2).softmax(-1)
    logs = (student / 2).log_softmax(-1)
    expected = (goal * (goal.log() - logs)).sum(-1) * 4
    assert torch.allclose(soft_cross_entropy(student, teacher, 2.0), expected, atol=1e-6)


@pytest.mark.parametrize("task", ["multilabel", "regression", "tagging", "answering", "choice"])
def test_every_task_is_distilled(task: str, made: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("a.jsonl", rows_of(task)), tmp_path / "out"
    teacher = teacher_of(task, made).folder
    bs.distill(teacher, file, out, layers=1, epochs=1, hold_out=0.2)
    content = json.loads((out / "distill.json").read_text())
    assert (content["task"], content["student"]["layers_kept"]) == (task, [0])
    assert bs.predict(out, file)
    assert (out / "report.html").exists()


def test_a_student_learns_its_teachers_task(city: Path, write: Write, tmp_path: Path) -> None:
    """From unlabelled texts, to the accuracy of the teacher; the report has both."""
    file = write("train.jsonl", labelled())
    plain = write("plain.jsonl", [{"text": text} for text, _ in texts()])
    out = tmp_path / "student"
    result = bs.distill(city, plain, out, dev=file, test=file, **FAST | {"epochs": 8})
    content = json.loads((out / "distill.json").read_text())
    assert content["scores"]["dev"]["teacher"]["accuracy"] == 1.0
    assert content["scores"]["test"]["student"]["accuracy"] > 0.95
    assert content["comparison"]["test"]["kept"] > 0.95
    assert content["agreement"]["test"] > 0.95
    assert content["student"]["layers"] == 1
    assert content["student"]["encoder_parameters"] * 2 == content["teacher"]["encoder_parameters"]
    assert content["speed"][0]["ratio"] > 0
    assert result.model.classify("the old river flows Prague number 1").label == "city"
    assert "| layers | 2 | 1 |" in (out / "README.md").read_text()
    assert "Beside its teacher" in (out / "report.html").read_text()


@pytest.mark.slow
def test_students_with_other_tokens(
    city: Path, base: Maker, made: Maker, write: Write, tmp_path: Path
) -> None:
    """A text has one label whatever its tokens are; tags are learned token by token."""
    file = write("train.jsonl", labelled())
    student = made("roberta", "Model").folder
    result = bs.distill(city, file, student=student, dev=file, **FAST)
    assert result.content["scores"]["dev"]["student"]["accuracy"] > 0.9
    bs.distill(base().folder, out=tmp_path / "static", to="static", width=16)
    settings = {**FAST, "learning_rate": 0.05}
    result = bs.distill(city, file, student=tmp_path / "static", dev=file, **settings)
    assert result.content["scores"]["dev"]["student"]["accuracy"] > 0.9
    tagger = teacher_of("tagging", made).folder
    with pytest.raises(BertsmithError, match="different tokens"):
        bs.distill(tagger, write("t.jsonl", rows_of("tagging")), student=student)


def test_labels_of_the_file_may_count(base: Maker, write: Write, tmp_path: Path) -> None:
    """With labels alone, a bad teacher does no harm; a label that it does not know is refused."""
    file = write("train.jsonl", labelled())
    teacher = tmp_path / "teacher"
    bs.finetune(base().folder, file, teacher, hold_out=0, epochs=1, learning_rate=1e-6)
    result = bs.distill(teacher, file, dev=file, labels=1.0, **FAST)
    assert result.content["scores"]["dev"]["student"]["accuracy"] > 0.9
    other = write("other.jsonl", [{"text": "a", "label": "city"}, {"text": "b", "label": "new"}])
    with pytest.raises(BertsmithError, match="does not know the label 'new'"):
        bs.distill(teacher, file, dev=other)


def test_numbers_keep_their_unit_in_a_student_of_layers(base: Maker, write: Write) -> None:
    rows = [{"text": text, "score": 1e5 * (2 + (label == "city"))} for text, label in texts()]
    file, teacher = write("train.jsonl", rows), write("train.jsonl", rows).with_name("teacher")
    bs.finetune(base().folder, file, teacher, task="regression", hold_out=0, **FAST)
    student = bs.distill(teacher, file, layers=2, dev=file, epochs=1, learning_rate=1e-9)
    both = student.content["scores"]["dev"]
    assert both["student"]["mean_squared_error"] == pytest.approx(
        both["teacher"]["mean_squared_error"], rel=0.01
    )


def test_it_resumes_to_the_same_weights(city: Path, write: Write, tmp_path: Path) -> None:
    file = write("train.jsonl", labelled())
    settings = {**FAST, "epochs": 2, "dev": file}
    whole = bs.distill(city, file, tmp_path / "whole", **settings)

    class Stop:
        def step(self, done: int, total: int, loss: float) -> None:
            if done == total - 1:
                raise KeyboardInterrupt

        def epoch(self, row: dict[str, Any]) -> None: ...

    out = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        bs.distill(city, file, out, watch=Stop(), **settings)
    with pytest.raises(BertsmithError, match="temperature"):
        bs.distill(city, file, out, resume=True, temperature=3.0, **settings)
    again = bs.distill(city, file, out, resume=True, **settings)
    for one, other in zip(
        whole.student.model.parameters(), again.student.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_what_cannot_be(base: Maker, made: Maker, write: Write, tmp_path: Path) -> None:
    file = write("a.jsonl", rows_of("classification"))
    teacher = teacher_of("classification", made).folder
    cases: list[tuple[dict[str, Any], str]] = [
        ({"to": "nothing"}, "to must be layers or static"),
        ({"learn": "nothing"}, "learn must be task or vectors"),
        ({"loss": "l1"}, "loss must be cosine or mse"),
        ({"temperature": 0.0}, "temperature"),
        ({"labels": 2.0}, "labels"),
        ({"layers": 9}, "cannot keep 9"),
        ({"layers": [5]}, "increasing numbers"),
        ({"layers": "1"}, "increasing numbers"),
        ({"layers": [0.5]}, "increasing numbers"),
        ({"layers": True}, "cannot keep True"),
        ({"hold_out": float("nan")}, "hold_out"),
        ({"layers": 9, "student": teacher}, "cannot keep 9"),
        ({"pieces": 5}, "for learning vectors"),
        ({"also": [teacher]}, "for learning vectors"),
        ({"combine": "sum"}, "combine must be join or average"),
        ({"to": "static", "layers": 1}, "cannot be combined with layers"),
        ({"epochs": 0}, "epochs"),
        ({"nonsense": 1}, "unknown setting"),
    ]
    for options, message in cases:
        with pytest.raises(BertsmithError, match=message):
            bs.distill(teacher, file, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()
    with pytest.raises(BertsmithError, match="give texts"):
        bs.distill(teacher)
    with pytest.raises(BertsmithError, match="no task head"):
        bs.distill(base().folder, file, learn="task")
    with pytest.raises(BertsmithError, match="need texts to train on"):
        bs.distill(teacher, to="static", epochs=2)
