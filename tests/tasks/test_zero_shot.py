"""Labels given with the text: by entailment, vectors and masks, as the peers compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

from bertsmith import Bert, BertsmithError, load
from bertsmith.cli.app import app
from bertsmith.tasks.zero_shot.task import way_of
from tasks.models import Maker

LABELS = ["storm", "violin", "old river"]
TEXTS = ["the bees fly to Paris", "a storm near Warsaw"]
NAMES = {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}}
NAMES |= {"label2id": {"contradiction": 0, "neutral": 1, "entailment": 2}}


def test_entailment_is_that_of_the_pipeline(made: Maker) -> None:
    model = made("bert", "ForSequenceClassification", num_labels=3, **NAMES)
    ask = transformers.pipeline(
        "zero-shot-classification", model=model.theirs, tokenizer=model.their_tokenizer
    )
    theirs = ask(TEXTS, candidate_labels=LABELS, hypothesis_template="This text is about {}.")
    ours = model.ours.choose_label(TEXTS, LABELS)
    for one, other in zip(ours, theirs, strict=True):
        assert one.scores == pytest.approx(
            dict(zip(other["labels"], other["scores"], strict=True)), abs=1e-4
        )


def test_several_labels_at_once_are_those_of_the_pipeline(made: Maker) -> None:
    model = made("bert", "ForSequenceClassification", num_labels=3, **NAMES)
    ask = transformers.pipeline(
        "zero-shot-classification", model=model.theirs, tokenizer=model.their_tokenizer
    )
    how = {"hypothesis_template": "This text is about {}.", "multi_label": True}
    theirs = ask(TEXTS, candidate_labels=LABELS, **how)
    ours = model.ours.choose_label(TEXTS, LABELS, several=True)
    for one, other in zip(ours, theirs, strict=True):
        expected = dict(zip(other["labels"], other["scores"], strict=True))
        assert one.scores == pytest.approx(expected, abs=1e-4)
    with pytest.raises(BertsmithError, match="labels compete by vectors"):
        model.ours.choose_label(TEXTS, LABELS, way="vectors", several=True)


def test_vectors_are_compared_by_their_cosines(made: Maker) -> None:
    bert = made("bert", "Model").ours
    sentences = [f"This text is about {label}." for label in LABELS]
    vectors = bert.embed([*TEXTS, *sentences], normalise=True)
    near = vectors[:2] @ vectors[2:].T
    ours = bert.choose_label(TEXTS, LABELS, way="vectors")
    for row, one in zip(near, ours, strict=True):
        assert one.label == LABELS[int(row.argmax())]
        powers = np.exp(20 * (row - row.max()))
        assert list(one.scores.values()) == pytest.approx(powers / powers.sum(), abs=1e-4)


def test_masks_are_those_of_transformers(made: Maker) -> None:
    model = made("bert", "ForMaskedLM")
    tokenizer = model.their_tokenizer

    def logs(text: str, label: str) -> float:
        ids = tokenizer(label, add_special_tokens=False)["input_ids"]
        masks = " ".join([tokenizer.mask_token] * len(ids))
        inputs = tokenizer(f"{text} This text is about {masks}.".strip(), return_tensors="pt")
        places = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
        with torch.no_grad():
            found = model.theirs(**inputs).logits[0].log_softmax(-1)
        return float(np.mean([float(found[p, i]) for p, i in zip(places, ids, strict=True)]))

    for text, one in zip(TEXTS, model.ours.choose_label(TEXTS, LABELS), strict=True):
        wanted = torch.tensor([logs(text, label) - logs("", label) for label in LABELS])
        assert list(one.scores.values()) == pytest.approx(wanted.softmax(0).tolist(), abs=1e-4)


def test_the_best_way_is_chosen(made: Maker) -> None:
    assert way_of(made("bert", "ForMaskedLM").ours) == "masks"
    assert way_of(made("bert", "Model").ours) == "vectors"
    three = made("bert", "ForSequenceClassification", num_labels=3, **NAMES)
    assert way_of(three.ours) == "entailment"


def test_labels_may_be_described(made: Maker) -> None:
    bert = made("bert", "Model").ours
    one = bert.choose_label("the storm", {"1": "storm", "0": "violin"}, template="It was {label}.")
    assert set(one.scores) == {"1", "0"}
    assert sum(one.scores.values()) == pytest.approx(1)


def test_long_texts_are_read_in_windows(made: Maker) -> None:
    bert: Bert = made("bert", "ForMaskedLM").ours
    (one,) = bert.choose_label(["the bees fly to Paris " * 100], LABELS)
    assert sum(one.scores.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        (["a"], {}, "at least two labels"),
        (["a", "a"], {}, "given twice"),
        (["a", "b"], {"template": "about it"}, "must contain {label} once"),
        (["a", "b"], {"way": "magic"}, "unknown way 'magic'"),
        (["a", "b"], {"way": "entailment"}, "it needs a label entailment"),
        ({"a": " ", "b": "c"}, {}, "has no words"),
    ],
)
def test_mistakes_are_one_line(made: Maker, labels: object, more: dict, message: str) -> None:
    with pytest.raises(BertsmithError, match=message):
        made("bert", "Model").ours.choose_label("a text", labels, **more)


def test_predict_takes_labels(made: Maker, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("text\nthe storm\nthe violin\n")
    folder = str(made("bert", "Model").folder)
    done = CliRunner().invoke(app, ["predict", folder, str(file), "--labels", "storm,violin"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count('"label"') == 2
    assert '"scores"' in done.stdout
    assert load(folder).choose_label("x", ["storm", "violin"]).label in ("storm", "violin")
