"""Scores of labels, against scikit-learn on random inputs."""

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.preprocessing import MultiLabelBinarizer

from bertsmith.errors import BertsmithError
from bertsmith.metrics import (
    accuracy,
    confusion,
    exact_match,
    f1,
    mcc,
    multilabel_f1,
    per_label,
)
from bertsmith.metrics.labels import label_scores

NAMES = ["neg", "pos", "neutral", "10", "9"]
pairs = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1)
sets = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES))), min_size=1
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore")  # the reference warns of what it sets to 0, as we do


@given(pairs)
@settings(max_examples=80, deadline=None)
def test_labels_equal_the_reference(rows: list[tuple[str, str]]) -> None:
    gold, predicted = [g for g, _ in rows], [p for _, p in rows]
    assert accuracy(gold, predicted) == pytest.approx(reference.accuracy_score(gold, predicted))
    assert mcc(gold, predicted) == pytest.approx(reference.matthews_corrcoef(gold, predicted))
    assert (confusion(gold, predicted) == reference.confusion_matrix(gold, predicted)).all()
    for average in ("micro", "macro", "weighted"):
        expected = reference.f1_score(gold, predicted, average=average, zero_division=0)
        assert f1(gold, predicted, average) == pytest.approx(expected)
    names = sorted({*gold, *predicted})
    expected = reference.precision_recall_fscore_support(
        gold, predicted, labels=names, zero_division=0
    )
    found = per_label(gold, predicted)
    for name, precision, recall, both, support in zip(names, *expected, strict=True):
        assert f1(gold, predicted, "binary", positive=name) == pytest.approx(both)
        assert found[name].precision == pytest.approx(precision)
        assert found[name].recall == pytest.approx(recall)
        assert found[name].support == support


@given(sets)
@settings(max_examples=60, deadline=None)
def test_sets_of_labels_equal_the_reference(rows: list[tuple[set[str], set[str]]]) -> None:
    gold, predicted = [g for g, _ in rows], [p for _, p in rows]
    known = sorted(set().union(*gold, *predicted))
    assume(len(known) > 1)  # the reference takes a single column for something else
    table = MultiLabelBinarizer(classes=known)
    one, other = table.fit_transform(gold), table.transform(predicted)
    for average in ("micro", "macro", "weighted", "samples"):
        expected = reference.f1_score(one, other, average=average, zero_division=0)
        assert multilabel_f1(gold, predicted, average) == pytest.approx(expected)
    assert exact_match(gold, predicted) == pytest.approx((one == other).all(1).mean())


def test_numbers_are_labels_too() -> None:
    assert mcc([0, 1, 2, 2], np.array([0, 1, 2, 1]).tolist()) == pytest.approx(
        reference.matthews_corrcoef([0, 1, 2, 2], [0, 1, 2, 1])
    )


def test_constant_predictions() -> None:
    assert multilabel_f1([set(), set()], [set(), set()]) == 0.0
    assert multilabel_f1([{"a"}], [{"a"}]) == 1.0
    assert mcc(["a", "b"], ["a", "a"]) == 0.0
    assert f1(["a", "a"], ["b", "b"]) == 0.0


def test_the_order_of_labels_can_be_told() -> None:
    assert confusion(["a", "b"], ["b", "b"], labels=["b", "a", "c"]).tolist() == [
        [1, 0, 0],
        [1, 0, 0],
        [0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: accuracy(["a"], []), "0 predictions for 1 gold"),
        (lambda: accuracy([], []), "no examples to score"),
        (lambda: f1(["a"], ["a"], "median"), "unknown average 'median'"),
        (lambda: f1(["a"], ["a"], "binary"), "needs the positive label"),
        (lambda: confusion(["a"], ["b"], labels=["a"]), "'b' is not among the labels"),
        (lambda: multilabel_f1([{"a"}], [], "micro"), "0 predictions for 1 gold"),
    ],
)
def test_mistakes(call, fault: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BertsmithError, match=fault):
        call()


def test_ten_thousand_labels_are_counted_one_by_one() -> None:
    """A table of all pairs of labels would have a hundred million cells for each resampling."""
    gold = [f"label {n}" for n in range(10_000)]
    predicted = [gold[0], *gold[:-1]]
    tracemalloc.start()
    scores = label_scores(gold, predicted)(np.ones(len(gold)))
    classes = per_label(gold, predicted)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scores["accuracy"] == 1e-4
    assert classes["label 0"].recall == 1.0
    assert mcc(gold, predicted) == pytest.approx(0.0, abs=1e-3)
    assert most < 64 << 20
