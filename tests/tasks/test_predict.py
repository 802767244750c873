"""Predictions of every task, explanations, and comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import BertsmithError
from bertsmith.batch import Batch
from bertsmith.data.tables import Where
from bertsmith.infer.explain import attribute
from bertsmith.tasks.answering.reading import QuestionExample
from bertsmith.tasks.answering.task import find_answers
from bertsmith.tasks.choice.reading import ChoiceExample
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import compare, evaluate, interval
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.registry import task_of
from bertsmith.tasks.similarity.reading import Related
from bertsmith.tasks.stream import predict
from bertsmith.tasks.tagging.examples import Tagged
from bertsmith.tasks.task import Prediction
from tasks.models import LINES, Maker

HERE = Where("x", 1)
TEXTS = LINES.splitlines()
NAMES = {"id2label": {0: "O", 1: "B-LOC", 2: "I-LOC"}}


def lines(*texts: str) -> list[Labelled]:
    return [Labelled(text, None, None, HERE) for text in texts]


@pytest.mark.parametrize(
    ("suffix", "settings", "task"),
    [
        ("ForSequenceClassification", {"num_labels": 3}, "classification"),
        ("ForSequenceClassification", {"num_labels": 1}, "regression"),
        (
            "ForSequenceClassification",
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            "multilabel",
        ),
        ("ForTokenClassification", NAMES, "tagging"),
        ("ForQuestionAnswering", {}, "answering"),
        ("ForMultipleChoice", {"type_vocab_size": 2}, "choice"),
        ("Model", {}, "similarity"),
    ],
)
def test_a_model_says_what_it_is_for(
    suffix: str, settings: dict[str, Any], task: str, made: Maker
) -> None:
    assert task_of(made("bert", suffix, **settings).ours).name == task


def test_labels(made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=3).ours
    found = predict(bert, lines(*TEXTS))
    assert [one.value for one in found] == [one.label for one in bert.classify(TEXTS)]
    assert all(one.confidence == max(one.output["scores"].values()) for one in found)
    assert predict(bert, []) == []


def test_several_labels(made: Maker) -> None:
    settings = {"num_labels": 3, "problem_type": "multi_label_classification"}
    bert = made("bert", "ForSequenceClassification", **settings).ours
    for one in predict(bert, lines(*TEXTS)):
        assert set(one.value) == {name for name, s in one.output["scores"].items() if s > 0.5}


def test_tags_of_plain_texts_and_of_given_words(made: Maker, tmp_path: Path) -> None:
    bert = made("bert", "ForTokenClassification", **NAMES).ours
    text = TEXTS[1]
    (plain,) = predict(bert, lines(text))
    assert plain.output["entities"] == [one.__dict__ for one in bert.tag(text)]
    words = text.replace(",", " ,").split()
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"tokens": words}) + "\n")
    (given,) = predict(bert, next(open_data(path, "tagging").portions()).examples)
    assert given.output["words"] == words
    assert len(given.value) == len(words)
    path.write_text(json.dumps({"text": text}) + "\n")
    (again,) = predict(bert, next(open_data(path, "tagging").portions()).examples)
    assert again == plain


def test_answers_of_many_questions_are_those_of_each(made: Maker) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    passages = [TEXTS[1], " ".join(TEXTS * 3), TEXTS[3]]
    found = find_answers(bert, ["Who lives in Uppsala?"] * 3, passages, 5)
    for passage, one in zip(passages, found, strict=True):
        alone = bert.answer("Who lives in Uppsala?", passage, top=5)
        together = one.answers(5, empty=False)
        assert [a.text for a in together] == [a.text for a in alone]
        assert len(together) == 5
        scores = [a.score for a in together]
        assert scores == pytest.approx([a.score for a in alone], abs=1e-5)
        assert 0 < one.no_answer < 1
    questions = [
        QuestionExample(str(n), "Who?", text, None, "", HERE) for n, text in enumerate(passages)
    ]
    assert len(predict(bert, questions, top=3)[1].output["answers"]) == 3


def test_similarity(made: Maker) -> None:
    bert = made("bert", "Model").ours
    pairs = [Related(TEXTS[n], (TEXTS[n + 1],), (), HERE) for n in range(3)]
    vectors = bert.embed(TEXTS, normalise=True)
    cosines = [float(np.dot(vectors[n], vectors[n + 1])) for n in range(3)]
    assert [one.value for one in predict(bert, pairs)] == pytest.approx(cosines, abs=1e-5)
    with pytest.raises(BertsmithError, match="no task head"):
        predict(bert, lines(TEXTS[0]))
    same = [Related(text, (text,), (), HERE) for text in TEXTS]
    assert evaluate(bert, Dataset(Path("same"), "similarity", same)).scores["accuracy_at_1"] == 1.0


def test_examples_that_a_model_cannot_read(made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=3).ours
    with pytest.raises(BertsmithError, match="this model is for classification"):
        predict(bert, [ChoiceExample("a", ("b", "c"), None, HERE)])


# ------------------------------------------------------------------ explanations


@pytest.mark.parametrize(
    ("suffix", "head", "aims"),
    [
        ("ForSequenceClassification", "classify", [(0, 1)]),
        ("ForTokenClassification", "tag", [(2, 1), (3, 0)]),
        ("ForQuestionAnswering", "answer", [(2, 0), (5, 1)]),
    ],
)
def test_shares_add_up_to_the_gain(
    suffix: str, head: str, aims: list[tuple[int, int]], made: Maker
) -> None:
    """What every token adds is, in sum, how far the outputs moved from those of nothing."""
    bert = made("bert", suffix, **({} if head == "answer" else {"num_labels": 3})).ours
    (window,) = bert.windows([TEXTS[0]])
    gains = attribute(bert, window, head, aims, steps=128)
    special = bert.tokenizer.special_ids
    blank = [i if i in special else bert.tokenizer.pad_id or 0 for i in window.ids]
    with torch.no_grad():
        full, void = (
            sum(float(found[aim]) for aim in aims)
            for ids in (window.ids, blank)
            for found in [bert.model(Batch.of([ids], [window.segments]), head)]
        )
    assert sum(gains) == pytest.approx(full - void, abs=0.02)
    assert gains[0] == gains[-1] == 0.0  # what is the same in both adds nothing


def test_words_of_both_texts_are_explained(made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=3).ours
    pair = Labelled("the river", "flows through Prague", None, HERE)
    (found,) = predict(bert, [pair])
    rows = task_of(bert).explain(bert, pair, found)
    assert [(row["text"], row["word"]) for row in rows] == [
        (0, "the"),
        (0, "river"),
        (1, "flows"),
        (1, "through"),
        (1, "Prague"),
    ]
    assert any(row["score"] for row in rows)
    before = dict(bert.ledger.counts)
    long = Labelled(" ".join(TEXTS), None, None, HERE)
    assert len(task_of(bert).explain(bert, long, found)) > 120
    assert bert.ledger.counts == before  # the prediction has counted its windows
    bare = made("bert", "Model").ours
    with pytest.raises(BertsmithError, match="not for similarity"):
        task_of(bare).explain(bare, pair, Prediction(0.5, 1.0))


def test_tags_are_explained_entity_by_entity(made: Maker) -> None:
    bert = made("bert", "ForTokenClassification", **NAMES).ours
    text = " ".join(TEXTS)  # longer than the model
    (found,) = predict(bert, lines(text))
    assert found.output["entities"]
    some = replace(found, output=found.output | {"entities": found.output["entities"][-2:]})
    rows = task_of(bert).explain(bert, lines(text)[0], some)
    assert [{k: one[k] for k in ("label", "text", "start", "end")} for one in rows] == [
        {k: one[k] for k in ("label", "text", "start", "end")} for one in some.output["entities"]
    ]
    for one in rows:
        places = [(word["start"], word["end"]) for word in one["words"]]
        assert places == sorted(places)
        assert any(start == one["start"] for start, _ in places)  # it is in the window shown
        assert all(text[slice(*place)] for place in places)
        assert any(word["score"] for word in one["words"])
    # Where tags spell no entities, every word is explained.
    speech = made("bert", "ForTokenClassification", id2label={0: "DET", 1: "NOUN"}).ours
    words = Tagged("the river", ("the", "river"), ((0, 3), (4, 9)), None, HERE)
    (tags,) = predict(speech, [words])
    rows = task_of(speech).explain(speech, words, tags)
    assert [(one["text"], one["label"]) for one in rows] == list(
        zip(("the", "river"), tags.value, strict=True)
    )


def test_answers_are_explained(made: Maker) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    passage = " ".join(TEXTS)
    asked = QuestionExample("1", "Who lives in Uppsala?", passage, None, "", HERE)
    (found,) = predict(bert, [asked])
    rows = task_of(bert).explain(bert, asked, found)
    asked_words = [row["word"] for row in rows if row["text"] == 0]
    assert asked_words == ["Who", "lives", "in", "Uppsala", "?"]
    read = [row for row in rows if row["text"] == 1]
    assert len(read) < len(passage.split())  # the window that decided, not all of the passage
    best = found.output["answers"][0]
    assert read[0]["start"] <= best["start"] < best["end"] <= read[-1]["end"]
    assert any(row["score"] for row in rows if row["text"] == 0)
    none = replace(found, value="")
    assert task_of(bert).explain(bert, asked, none) != rows


# ------------------------------------------------------------------ evaluation


def test_gold_that_the_model_does_not_know_counts(made: Maker, tmp_path: Path) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=2).ours
    path = tmp_path / "t.csv"
    rows = [f"{n} river,{'strange' if n < 5 else 'LABEL_0'}" for n in range(10)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    found = evaluate(bert, read_data(path))
    assert found.scores["count"] == 10
    assert found.scores["accuracy"] <= 0.5
    assert "examples with labels the model does not know (strange): 5" in found.notes
    tagger = made("bert", "ForTokenClassification", num_labels=2).ours
    path = tmp_path / "t.conll"
    path.write_text("Anna LABEL_0\nsleeps ODD\n\nBob LABEL_1\n")
    assert evaluate(tagger, read_data(path)).notes == [
        "examples with labels the model does not know (ODD): 1"
    ]
    path.write_text("Anna ODD\n")
    with pytest.raises(BertsmithError, match="knows none of the labels"):
        evaluate(tagger, read_data(path))
    summary = interval(found, "accuracy", 50)
    assert summary.low <= found.scores["accuracy"] <= summary.high
    equal = compare(found, found, "macro_f1", 20)
    assert (equal.difference, equal.p_value) == (0.0, 1.0)


def test_a_file_of_another_task(made: Maker, tmp_path: Path) -> None:
    bert = made("bert", "ForTokenClassification", **NAMES).ours
    (tmp_path / "t.csv").write_text("text,label\na,b\nc,d\n")
    with pytest.raises(BertsmithError, match="of classification, but the model is for tagging"):
        evaluate(bert, read_data(tmp_path / "t.csv"))
