"""Students of sentence encoders, and static vectors that are tuned on text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.distilling.pieces import pieces_of
from bertsmith.distilling.vectors import Teachers
from bertsmith.finetuning import tuning
from bertsmith.finetuning.tuning import SilentCallback
from bertsmith.infer.opening import open_model
from finetuning.conftest import Write, texts
from tasks.models import LINES, Maker

TEXTS = [{"text": f"{line} {number}"} for number in range(6) for line in LINES.splitlines()]
FAST = {"learning_rate": 3e-3, "batch_size": 16, "warmup": 0.0}


@pytest.mark.parametrize("loss", ["cosine", "mse"])
def test_a_student_learns_vectors(loss: str, base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("texts.jsonl", TEXTS), tmp_path / "student"
    before = bs.distill(base().folder, file, loss=loss, epochs=1, learning_rate=1e-9, batch_size=64)
    after = bs.distill(base().folder, file, out, loss=loss, epochs=5, **FAST)
    content = json.loads((out / "distill.json").read_text())
    assert content == after.to_dict()
    start, end = (one.content["agreement"]["held_out"] for one in (before, after))
    assert end["mean_cosine"] > start["mean_cosine"]
    assert end["mean_cosine"] > 0.8
    assert content["student"]["layers"] == 1
    again = bs.load(out)
    assert np.allclose(again.embed(["a river"]), after.model.embed(["a river"]), atol=1e-6)


def test_pairs_with_scores_are_scored(base: Maker, write: Write) -> None:
    file = write("texts.jsonl", TEXTS[:40])
    pairs = [
        {"sentence1": text, "sentence2": f"{label} river", "score": float(number % 5)}
        for number, (text, label) in enumerate(texts(20))
    ]
    dev = write("dev.jsonl", pairs)
    result = bs.distill(base().folder, file, dev=dev, epochs=1)
    assert set(result.content["scores"]["dev"]) == {"teacher", "student"}
    assert result.content["comparison"]["dev"]["metric"] == "spearman"


def test_vectors_of_a_classifier(made: Maker, write: Write) -> None:
    """Whatever a teacher was trained for, it makes vectors; dev files need scores."""
    file = write("texts.jsonl", TEXTS[:20])
    teacher = made("bert", "ForSequenceClassification").folder
    pairs = [{"sentence1": "a", "sentence2": f"river {n}", "score": float(n)} for n in range(5)]
    result = bs.distill(teacher, file, learn="vectors", dev=write("dev.jsonl", pairs), epochs=1)
    assert "spearman" in result.content["scores"]["dev"]["student"]
    bare = write("bare.jsonl", [{"sentence1": "a", "sentence2": "b", "score": None}])
    with pytest.raises(BertsmithError, match="no labels"):
        bs.distill(teacher, file, learn="vectors", dev=bare, epochs=1)


def test_a_narrower_student(base: Maker, made: Maker, write: Write) -> None:
    file = write("texts.jsonl", TEXTS)
    narrow = made("roberta", "Model", hidden_size=16).folder
    result = bs.distill(base().folder, file, student=narrow, epochs=8, **FAST)
    agreement = result.content["agreement"]["held_out"]
    assert "mean_cosine" not in agreement
    assert agreement["spearman_of_cosines"] > 0.3
    with pytest.raises(BertsmithError, match=r"\(width 32\) is wider than its teacher \(16\)"):
        bs.distill(narrow, file, student=base().folder)


def test_static_vectors_are_tuned(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("texts.jsonl", TEXTS), tmp_path / "static"
    plain = bs.distill(base().folder, to="static", width=16)
    tuned = bs.distill(base().folder, file, out, to="static", width=16, epochs=8)
    assert tuned.content["kind"] == "static"
    assert bs.load(out).embed(["a river"]).shape == (1, 16)
    held = [row["text"].replace("1", "99") for row in TEXTS[:40]]
    teacher = bs.load(base().folder).embed(held, normalise=True)
    teacher -= teacher.mean(0)  # static vectors are learned from the centre
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    pairs = np.triu_indices(len(held), 1)

    def near(model: bs.Bert) -> float:
        vectors = model.embed(held)
        both = [(one @ one.T)[pairs] for one in (teacher, vectors)]
        return float(np.corrcoef(*both)[0, 1])

    assert near(tuned.model) > near(plain.model)


# ------------------------------------------------------------------ several teachers, any width


def test_vectors_of_two_teachers_are_joined(base: Maker, made: Maker, write: Write) -> None:
    """The student learns the cosines of both: the mean of each teacher's cosine."""
    file, other = write("texts.jsonl", TEXTS), made("roberta", "Model", hidden_size=16).folder
    result = bs.distill(base().folder, file, also=[other], epochs=8, **FAST)
    assert result.content["settings"]["further_teachers"] == [str(other)]
    texts_of = [row["text"] for row in TEXTS[:30]]
    both = [bs.load(one).embed(texts_of, normalise=True) for one in (base().folder, other)]
    teachers = Teachers(tuple(open_model(one, progress=False) for one in (base().folder, other)))
    joined = teachers.vectors(texts_of, True)
    assert joined.shape == (30, 48)
    assert np.allclose(joined @ joined.T, sum(one @ one.T for one in both) / 2, atol=1e-5)
    with pytest.raises(BertsmithError, match="widths 16 and 32 cannot be averaged"):
        bs.distill(base().folder, file, also=[other], combine="average")
    same = Teachers((*[open_model(base().folder, progress=False)] * 2,), "average")
    assert np.allclose(same.vectors(texts_of, True), both[0], atol=1e-6)


def test_vectors_of_another_width(base: Maker, made: Maker, write: Write, tmp_path: Path) -> None:
    """A trained Dense module gives vectors of any width, which other tools read."""
    file, out = write("texts.jsonl", TEXTS), tmp_path / "student"
    narrow = made("roberta", "Model", hidden_size=16).folder
    result = bs.distill(base().folder, file, out, student=narrow, width=32, epochs=8, **FAST)
    start = bs.distill(base().folder, file, student=narrow, width=32, epochs=1, learning_rate=1e-9)
    ends = [one.content["agreement"]["held_out"]["mean_cosine"] for one in (start, result)]
    assert ends[1] > max(0.8, ends[0])
    assert not any("projection" in name for name, _ in result.model.model.named_parameters())
    again, texts_of = bs.load(out), ["a river", "the stone is old"]
    assert again.embed(texts_of).shape == (2, 32)
    theirs = SentenceTransformer(str(out), device="cpu").encode(texts_of)
    assert np.allclose(again.embed(texts_of), theirs, atol=1e-5)
    few = bs.distill(base().folder, file, width=8, matryoshka="4", epochs=1)
    assert few.model.embed("a river").shape == (8,)
    for width in (33, 0, 1.5):
        with pytest.raises(BertsmithError, match=r"width is .*, not a whole number from 1 to 32"):
            bs.distill(base().folder, file, width=width)
    with pytest.raises(BertsmithError, match="pieces is 0, not a whole number from 1"):
        bs.distill(base().folder, file, pieces=0)


def test_steps_that_a_gpu_replays_are_the_same(
    base: Maker, made: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences that fill a batch change nothing, with Dense modules and several widths."""
    file, narrow = write("texts.jsonl", TEXTS), made("roberta", "Model", hidden_size=16).folder
    more = {"width": 24, "matryoshka": "4,8", "epochs": 2, "dropout": 0.0}
    options: dict[str, Any] = {"student": narrow, **more, **FAST}
    plain = bs.distill(base().folder, file, **options)
    monkeypatch.setattr(tuning, "can_replay", lambda *_: True)
    replayed = bs.distill(base().folder, file, **options)
    vectors = [one.model.embed(["a river", "stone"], normalise=True) for one in (plain, replayed)]
    assert np.allclose(*vectors, atol=2e-3)  # Adam turns rounding into small steps


def test_layers_of_another_model(base: Maker, made: Maker, write: Write) -> None:
    file, other = (
        write("texts.jsonl", TEXTS[:40]),
        made("bert", "Model", num_hidden_layers=3).folder,
    )
    result = bs.distill(base().folder, file, student=other, layers=2, epochs=1)
    assert result.content["student"]["layers"] == 2
    assert "layers 0, 2 of the model" in result.content["about"]


def test_a_resumed_run_keeps_the_vectors_of_its_teacher(
    base: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write("texts.jsonl", TEXTS), tmp_path / "student"
    whole = bs.distill(base().folder, file, epochs=3, **FAST)
    calls: list[int] = []
    plain = Teachers.vectors

    def counted(self: Teachers, texts: Sequence[str], direction: bool) -> NDArray[Any]:
        calls.append(len(texts))
        return plain(self, texts, direction)

    monkeypatch.setattr(Teachers, "vectors", counted)

    class Stopping(SilentCallback):
        def step(self, done: int, total: int, loss: float) -> None:
            if done == total - 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bs.distill(base().folder, file, out, epochs=3, watch=Stopping(), **FAST)
    assert max(calls) > 50  # all texts
    calls.clear()
    resumed = bs.distill(base().folder, file, out, epochs=3, resume=True, **FAST)
    assert max(calls, default=0) <= 50  # those that were held out
    same = [one.model.embed(["a river"]) for one in (whole, resumed)]
    assert np.allclose(*same, atol=1e-6)


def test_runs_share_the_vectors_of_their_teachers(base: Maker, made: Maker, write: Write) -> None:
    """Other texts, teachers or widths have files of their own; the same ones are read again."""
    file, other = write("texts.jsonl", TEXTS[:40]), made("roberta", "Model", hidden_size=16).folder
    cache = file.parent / "new" / "cache"
    first = bs.distill(base().folder, file, cache=cache, epochs=1, **FAST)
    again = bs.distill(base().folder, file, cache=cache, epochs=1, **FAST)
    [stored] = cache.iterdir()
    assert np.array_equal(first.model.embed("a river"), again.model.embed("a river"))
    np.save(stored, -np.load(stored))  # what is read decides what is learned
    turned = bs.distill(base().folder, file, cache=cache, epochs=1, **FAST)
    assert not np.allclose(first.model.embed("a river"), turned.model.embed("a river"), atol=1e-3)
    for number, more in enumerate(({"also": [other]}, {"width": 8}, {"pieces": 3}), 2):
        bs.distill(base().folder, file, cache=cache, epochs=1, **FAST, **more)
        assert len(list(cache.iterdir())) == number


def test_pieces_of_documents() -> None:
    text = "The river\nIt flows. " + "A stone lies in the water and does not move. " * 200
    pieces = list(pieces_of(text, 50))
    assert pieces[0] == "The river"
    assert " ".join(pieces).split() == text.split()  # nothing is lost or doubled
    lengths = [len(one.split()) for one in pieces[1:]]
    assert max(lengths) <= 50
    assert min(lengths[:-1]) < 15 < 35 < max(lengths)
    assert pieces == list(pieces_of(text, 50))
    assert [len(one.split()) for one in pieces_of("word " * 25, 10)] == [10, 10, 5]
    assert list(pieces_of("  \n ", 10)) == []


def test_a_student_learns_pieces(base: Maker, write: Write) -> None:
    lines = LINES.splitlines()
    rows = [{"text": "\n".join([f"The river {n}", *lines])} for n in range(3)]
    result = bs.distill(base().folder, write("texts.jsonl", rows), pieces=12, epochs=1)
    assert result.content["texts"] > len(rows) * 2
