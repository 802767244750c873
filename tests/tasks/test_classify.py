"""Labels, pairs and choices: probabilities are those computed by hand from `transformers`."""

from typing import Any

import pytest
import torch

from bertsmith import Bert
from bertsmith.errors import BertsmithError
from tasks.models import Maker

TEXTS = ["The river flows.", "", "Anna lives in Kraków 😀 שלום\0!", "bees " * 25, "🙂"]
PAIRS = ["Why do you keep bees?", "A storm.", "", "He kept playing.", "The mayor asked."]
LABELS = {"id2label": {0: "good", 1: "bad", 2: "neither"}}


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta-v2", "modernbert"])
def test_one_label_of_several(family: str, made: Maker) -> None:
    model = made(family, "ForSequenceClassification", **LABELS)
    found = model.ours.classify(TEXTS)
    for text, one in zip(TEXTS, found, strict=True):
        expected = model.logits(text).logits[0].softmax(-1)
        assert [*one.scores] == ["good", "bad", "neither"]
        assert [*one.scores.values()] == pytest.approx(expected.tolist(), abs=1e-4)
        assert one.label == ["good", "bad", "neither"][int(expected.argmax())]
        assert one.score == one.scores[one.label]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta"])
def test_pairs(family: str, made: Maker) -> None:
    model = made(family, "ForSequenceClassification", **LABELS, type_vocab_size=2)
    found = model.ours.classify(TEXTS, PAIRS)
    for text, pair, one in zip(TEXTS, PAIRS, found, strict=True):
        expected = model.logits(text, pair).logits[0].softmax(-1)
        assert [*one.scores.values()] == pytest.approx(expected.tolist(), abs=1e-4)
    alone = model.ours.classify(TEXTS[0], PAIRS[0])
    assert alone.label == found[0].label
    assert alone.score == pytest.approx(found[0].score, abs=1e-6)


def test_any_number_of_labels(made: Maker) -> None:
    several = {"problem_type": "multi_label_classification"}
    model = made("bert", "ForSequenceClassification", **LABELS, **several)
    for text, one in zip(TEXTS, model.ours.classify(TEXTS), strict=True):
        expected = model.logits(text).logits[0].sigmoid().tolist()
        assert [*one.scores.values()] == pytest.approx(expected, abs=1e-4)
        assert one.score == max(one.scores.values())
        assert one.labels == [name for name, score in one.scores.items() if score > 0.5]
        assert one.to_dict()["labels"] == one.labels
    model.ours.checkpoint.settings["label_thresholds"] = dict.fromkeys(one.scores, 1.0)
    one = model.ours.classify(TEXTS[0])
    assert one.labels == []
    assert "no label" in one._repr_html_()
    del model.ours.checkpoint.settings["label_thresholds"]


def test_a_number(made: Maker) -> None:
    model = made("roberta", "ForSequenceClassification", num_labels=1)
    for text, one in zip(TEXTS, model.ours.classify(TEXTS), strict=True):
        assert one.score == pytest.approx(model.logits(text).logits.item(), abs=1e-4)
        assert one.scores == {one.label: one.score}


def test_windows_of_a_long_text_vote_by_length(made: Maker) -> None:
    model = made("bert", "ForSequenceClassification", **LABELS)
    bert = model.ours
    text = "The river Vltava flows through Prague. " * 20
    ids = bert.tokenizer.encode(text, special=False).ids
    windows = bert.windower().single(0, ids)
    assert len(windows) > 1
    total = torch.zeros(3)
    for window in windows:
        with torch.no_grad():
            logits = model.theirs(torch.tensor([window.ids])).logits[0]
        total += logits.softmax(-1) * len(window.tokens)
    expected = (total / sum(len(window.tokens) for window in windows)).tolist()
    before = bert.ledger.counts["long texts read in windows"]
    found = bert.classify(["short", text, "short"])[1]
    assert [*found.scores.values()] == pytest.approx(expected, abs=1e-4)
    assert sum(found.scores.values()) == pytest.approx(1, abs=1e-5)
    assert bert.ledger.counts["long texts read in windows"] == before + 1


@pytest.fixture(scope="module")
def labelling(made: Maker) -> Bert:
    return made("bert", "ForSequenceClassification", **LABELS).ours


@pytest.mark.parametrize(
    ("texts", "pairs", "fault"),
    [
        (["a", "b"], ["c"], "2 texts but 1 second text"),
        (["a"], "b", "pairs must be a list of strings, not of type str"),
        (["a"], [b"b"], "pairs must be strings, but number 0 is of type bytes"),
        ("a", 3, "text 0 is a int, not a string"),
        ("a", ["b"], "text 0 is a list, not a string"),
        (None, None, "texts must be a list of strings, not of type NoneType"),
        (["a", None], None, "texts must be strings, but number 1 is of type NoneType"),
        ({"a": 1}, None, "texts must be a list of strings, not of type dict"),
        (b"a", None, "texts must be a list of strings, not of type bytes"),
        ("a\ud800", None, r"half of a surrogate pair \(U\+D800\) at character 1"),
        ("a " * 200, "b", "its first text has 200 tokens, too many beside the second"),
    ],
)
def test_bad_inputs(texts: Any, pairs: Any, fault: str, labelling: Bert) -> None:
    with pytest.raises(BertsmithError, match=fault) as caught:
        labelling.classify(texts, pairs)
    assert "\n" not in str(caught.value)


def test_nothing_to_classify(labelling: Bert) -> None:
    assert labelling.classify([]) == []
    assert labelling.classify(iter([])) == []  # type: ignore[call-overload]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_choices(family: str, made: Maker) -> None:
    model = made(family, "ForMultipleChoice", type_vocab_size=2)
    prompt, choices = "Why do you keep bees?", ["For honey.", "", "Prague", "The mayor asked her."]
    inputs = model.their_tokenizer(
        [prompt] * 4, choices, return_tensors="pt", padding=True, pad_to_multiple_of=8
    )
    with torch.no_grad():
        logits = model.theirs(**{name: rows[None] for name, rows in inputs.items()}).logits[0]
    found = model.ours.choose(prompt, choices)
    assert found.scores == pytest.approx(logits.softmax(0).tolist(), abs=1e-4)
    assert found.index == int(logits.argmax())
    assert found.text == choices[found.index]


def test_bad_choices(made: Maker) -> None:
    bert = made("bert", "ForMultipleChoice", type_vocab_size=2).ours
    with pytest.raises(BertsmithError, match="no choices given"):
        bert.choose("a", [])
    with pytest.raises(BertsmithError, match="choices must be a list of strings, not of type str"):
        bert.choose("a", "bc")
    with pytest.raises(BertsmithError, match="input 0: its second text has 150 tokens, too many"):
        bert.choose("a", ["b", "b " * 150])
    assert bert.choose("a", iter(["b", "c"])).index in (0, 1)  # type: ignore[arg-type]
