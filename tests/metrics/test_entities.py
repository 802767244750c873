"""Entity F1, against seqeval on random tags: with goodwill and strictly."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval import metrics as reference
from seqeval.scheme import BILOU, IOB2, IOBES

from bertsmith.errors import BertsmithError
from bertsmith.metrics import entity_scores

SCHEMES = {"bio": ("BI", IOB2), "iobes": ("BIES", IOBES), "bilou": ("BILU", BILOU)}
TYPES = ["PER", "LOC", "with-hyphen", "B-ORG"]


def sentences(marks: str) -> st.SearchStrategy[list[tuple[list[str], list[str]]]]:
    tag = st.just("O") | st.builds("{}-{}".format, st.sampled_from(marks), st.sampled_from(TYPES))
    pair = st.lists(st.tuples(tag, tag), min_size=1, max_size=8)
    return st.lists(pair.map(lambda r: ([g for g, _ in r], [p for _, p in r])), min_size=1)


def compare(rows: list[tuple[list[str], list[str]]], scheme: str | None = None) -> None:
    gold, predicted = [g for g, _ in rows], [p for _, p in rows]
    options = {"zero_division": 0}
    if scheme:
        options |= {"mode": "strict", "scheme": SCHEMES[scheme][1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.classification_report(gold, predicted, output_dict=True, **options)
    scores = entity_scores(gold, predicted, strict=scheme)
    assert set(scores.types) == set(expected) - {"micro avg", "macro avg", "weighted avg"}
    for name, score in [*scores.types.items(), ("micro avg", scores.overall)]:
        for key in ("precision", "recall", "support"):
            assert getattr(score, key) == pytest.approx(expected[name][key])
        assert score.f1 == pytest.approx(expected[name]["f1-score"])
    if scores.types:  # else the reference is not a number, and ours 0
        assert scores.macro_f1 == pytest.approx(expected["macro avg"]["f1-score"])
    assert scores.accuracy == pytest.approx(reference.accuracy_score(gold, predicted))


@given(sentences("BIES"))
@settings(max_examples=80, deadline=None)
def test_goodwill_is_conllevals(rows: list[tuple[list[str], list[str]]]) -> None:
    compare(rows)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_is_seqevals(scheme: str) -> None:
    @given(sentences(SCHEMES[scheme][0]))
    @settings(max_examples=60, deadline=None)
    def run(rows: list[tuple[list[str], list[str]]]) -> None:
        compare(rows, scheme)

    run()


def test_what_lies_beyond_the_prediction_is_not_forgotten() -> None:
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-LOC"]]
    cut = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "O"]]
    assert entity_scores(gold, cut).overall.recall == pytest.approx(2 / 3)
    with pytest.raises(BertsmithError, match="sentence 1: 2 predicted tags for 3 words"):
        entity_scores(gold, [gold[0], ["B-LOC", "O"]])
    with pytest.raises(BertsmithError, match="1 predictions for 2 gold"):
        entity_scores(gold, gold[:1])


def test_no_entities_at_all() -> None:
    scores = entity_scores([["O", "O"]], [["O", "O"]])
    assert (scores.overall.f1, scores.macro_f1, scores.types, scores.accuracy) == (0, 0, {}, 1)
