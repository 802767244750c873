"""Word importance is what hiding a word costs."""

import math

import pytest

from analysis.conftest import Small
from bertsmith import Bert
from bertsmith.analysis.importance import explained, for_answer, for_label
from bertsmith.errors import BertsmithError
from tasks.models import Maker

TEXT = "Anna Karlsson lives in Uppsala, Sweden."


def read_masks(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make masks in a text tokens, which `classify` reads as text."""
    tokenizer = bert.tokenizer
    monkeypatch.setitem(tokenizer._backends, "text", tokenizer.reader("mask"))


def test_against_the_model_itself(made: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text with [MASK] for a word, classified as any other text."""
    bert = made("bert", "ForSequenceClassification", num_labels=3).ours
    read_masks(bert, monkeypatch)
    found = for_label(bert, TEXT)
    assert "".join(word.text for word in found) == TEXT.replace(" ", "")
    best = bert.classify(TEXT)
    for word in found:
        assert TEXT[word.start : word.end] == word.text
        tokens = len(bert.tokenizer.encode(word.text, special=False))
        masked = TEXT[: word.start] + "[MASK]" * tokens + TEXT[word.end :]
        expected = math.log(best.score) - math.log(bert.classify(masked).scores[best.label])
        assert word.importance == pytest.approx(expected, abs=1e-4)
    assert max(abs(word.importance) for word in found) > 1e-3


def test_pairs_and_other_labels(made: Maker) -> None:
    bert = made("roberta", "ForSequenceClassification", num_labels=2).ours
    first, second = bert.checkpoint.labels
    for_one = for_label(bert, TEXT, "The river flows.", first)
    against = for_label(bert, TEXT, "The river flows.", second)
    assert {word.source for word in for_one} == {0, 1}
    signs = [a.importance * b.importance for a, b in zip(for_one, against, strict=True)]
    assert all(sign <= 1e-9 for sign in signs)  # of two labels, what helps one harms the other
    with pytest.raises(BertsmithError, match="the model has no label 'good'"):
        for_label(bert, TEXT, label="good")


def test_numbers_and_labels_that_do_not_exclude_each_other(
    made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = made("bert", "ForSequenceClassification", num_labels=1).ours
    several = made(
        "bert",
        "ForSequenceClassification",
        num_labels=2,
        problem_type="multi_label_classification",
    ).ours
    for bert in (number, several):
        read_masks(bert, monkeypatch)
        label = bert.checkpoint.labels[-1]
        word = for_label(bert, TEXT, label=label)[0]
        masked = "[MASK]" * len(word.tokens) + TEXT[word.end :]
        scores = [bert.classify(text).scores[label] for text in (TEXT, masked)]
        if bert is several:
            scores = [math.log(score) for score in scores]
        assert word.importance == pytest.approx(scores[0] - scores[1], abs=1e-4)
        assert abs(word.importance) > 1e-4
    assert explained(number, TEXT).kind == "number"


def test_answers(made: Maker) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    found = for_answer(bert, "Who lives in Uppsala?", TEXT)
    assert {word.source for word in found} == {0, 1}
    assert all(math.isfinite(word.importance) for word in found)
    assert max(abs(word.importance) for word in found) > 1e-3


def test_a_model_without_the_head(small: Small) -> None:
    with pytest.raises(BertsmithError, match="cannot classify"):
        for_label(small(), TEXT)
    with pytest.raises(BertsmithError, match="cannot answer"):
        for_answer(small(), "Who?", TEXT)
