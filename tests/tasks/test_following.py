"""Does one text follow another: as transformers' own models say."""

from pathlib import Path

import pytest
import torch

from analysis.conftest import Small, small
from bertsmith import Bert, create, load
from bertsmith.errors import BertsmithError
from conftest import made
from tasks.models import Maker
from tasks.words import tokenizer

__all__ = ["made", "small"]
FIRST = ["Anna lives in Uppsala.", "The river flows."]
SECOND = ["She likes the river.", "Nobody could answer her question."]


def test_next_sentence_prediction(made: Maker) -> None:
    source = made("bert", "ForNextSentencePrediction")
    expected = []
    for first, second in zip(FIRST, SECOND, strict=True):
        encoding = source.ours.tokenizer.encode(first, second)
        batch = {"input_ids": [encoding.ids], "token_type_ids": [encoding.segments]}
        with torch.inference_mode():
            logits = source.theirs(**{k: torch.tensor(v) for k, v in batch.items()}).logits
        expected.append(float(logits.softmax(-1)[0, 0]))
    assert source.ours.follows(FIRST, SECOND) == pytest.approx(expected, abs=1e-5)
    assert source.ours.follows(FIRST[0], SECOND[0]) == pytest.approx(expected[0], abs=1e-5)
    assert expected[0] != pytest.approx(0.5, abs=1e-3)


def test_sentence_order(small: Small) -> None:
    words = tokenizer("albert")
    settings = small("albert").checkpoint.settings
    bert = Bert(create(settings, heads=("masked_lm", "sentence_order")), words)
    chance = bert.follows(FIRST[0], SECOND[0])
    assert 0 < chance < 1
    assert chance != bert.follows(SECOND[0], FIRST[0])


def test_long_pairs(small: Small) -> None:
    bert = small("bert", ("masked_lm", "next_sentence"))
    assert 0 < bert.follows("the river", "flows " * 500) < 1


def test_mistakes(small: Small) -> None:
    with pytest.raises(BertsmithError, match="no next-sentence or sentence-order head"):
        small().follows("a", "b")
    bert = small("bert", ("masked_lm", "next_sentence"))
    with pytest.raises(BertsmithError, match="second texts"):
        bert.follows(["a"], ["b", "c"])
    with pytest.raises(BertsmithError, match="must be a list of strings"):
        bert.follows("a", ["b"])


def test_a_saved_model_keeps_the_head(small: Small, tmp_path: Path) -> None:
    bert = small("bert", ("masked_lm", "next_sentence"))
    bert.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.follows("a", "b") == pytest.approx(bert.follows("a", "b"), abs=1e-6)
