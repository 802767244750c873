"""SQuAD's rules: by hand, against another implementation, and thresholds by trying them all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.metrics import answer_scores, best_threshold
from bertsmith.metrics.answers import exact, normalised, overlap, raw_scores

WORDS = ["The", "a", "an", "cat", "Cat!", "theatre", "in-the-box", "dog", "  ", "«dog»", "3.5"]
text = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
probability = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)


@pytest.mark.parametrize(
    ("given_text", "plain"),
    [
        ("The  Cat, sat!", "cat sat"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("the-end", "theend"),
        ("U.S.", "us"),
        ("«Über»", "«über»"),  # only ASCII punctuation goes
        ("a", ""),
    ],
)
def test_what_is_the_same(given_text: str, plain: str) -> None:
    assert normalised(given_text) == plain
    assert exact(given_text, plain) == 1.0


def test_words_in_common() -> None:
    assert overlap("the black cat", "black dog") == pytest.approx(0.5)
    assert overlap("cat cat", "cat") == pytest.approx(2 / 3)
    assert overlap("cat", "dog") == 0.0
    # Where nothing is left of an answer, the two scripts differ.
    assert (overlap("the", ""), overlap("the", "", version=1)) == (1.0, 0.0)
    assert overlap("the", "cat") == 0.0


# Where nothing is left of an answer the other one follows v2.0 in v1.1 too.
spoken = text.filter(normalised)


@given(
    st.dictionaries(
        st.text("abc", min_size=1), st.tuples(st.lists(spoken, min_size=1), spoken), min_size=1
    )
)
@settings(max_examples=80, deadline=None)
def test_version_1_is_the_other_implementations(rows: dict[str, tuple[list[str], str]]) -> None:
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    targets = [
        {"id": name, "answers": {"text": gold, "answer_start": [0] * len(gold)}}
        for name, (gold, _) in rows.items()
    ]
    predictions = [{"id": n, "prediction_text": given} for n, (_, given) in rows.items()]
    expected = squad(predictions, targets)
    scores = answer_scores(
        {name: gold for name, (gold, _) in rows.items()},
        {name: given for name, (_, given) in rows.items()},
        version=1,
    )
    assert scores.exact == pytest.approx(float(expected["exact_match"]), rel=1e-5)
    assert scores.f1 == pytest.approx(float(expected["f1"]), rel=1e-5)


def test_every_gold_question_counts() -> None:
    gold = {"a": ["cat", "the black cat"], "b": [], "c": ["dog"], "d": []}
    scores = answer_scores(gold, {"a": "black cat", "b": "", "d": "cat"})
    assert (scores.exact, scores.f1, scores.count, scores.missing) == (50.0, 50.0, 4, 1)
    assert scores.answerable == (50.0, 50.0, 2)
    assert scores.impossible == (50.0, 50.0, 2)
    with pytest.raises(BertsmithError, match="'x', which is not a gold question"):
        answer_scores(gold, {"x": "cat"})
    with pytest.raises(BertsmithError, match="no examples to score"):
        answer_scores({}, {})


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1),
        st.tuples(st.lists(text.filter(normalised)), text.filter(normalised), probability),
        min_size=1,
    ),
    st.sampled_from(["exact", "f1"]),
)
@settings(max_examples=80, deadline=None)
def test_the_best_threshold_is_the_best_of_all(
    rows: dict[str, tuple[list[str], str, float]], by: str
) -> None:
    gold = {name: answers for name, (answers, _, _) in rows.items()}
    predicted = {name: given for name, (_, given, _) in rows.items()}
    chances = {name: chance for name, (_, _, chance) in rows.items()}

    def score(threshold: float) -> float:
        scores = answer_scores(gold, predicted, no_answer=chances, threshold=threshold)
        return float(getattr(scores, by))

    # Among the probabilities that there are; and below all of them, where nothing is answered.
    best = max(score(value) for value in [-1.0, *chances.values()])
    found = best_threshold(gold, predicted, chances, by)
    assert found.score == pytest.approx(best)
    if 0.0 not in chances.values():
        assert score(found.value) == pytest.approx(best)


def test_thresholds_need_every_question() -> None:
    with pytest.raises(BertsmithError, match="no probability of no answer for 'b'"):
        best_threshold({"a": [], "b": []}, {}, {"a": 0.5})
    with pytest.raises(BertsmithError, match="by must be"):
        best_threshold({"a": []}, {}, {"a": 0.5}, by="luck")


def test_the_best_of_several_gold_answers() -> None:
    exacts, overlaps = raw_scores({"q": ["one two three", "two"]}, {"q": "two"})
    assert (exacts, overlaps) == ({"q": 1.0}, {"q": 1.0})
