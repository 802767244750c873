"""Special tokens that a text spells are text, but for the mask where words are predicted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from bertsmith.analysis.attention import attention
from bertsmith.analysis.layers import lens
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import FAMILIES
from tasks.models import Maker, tokenizer

NOTE = "special tokens spelled in a text, read as text"


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_of_every_family(family: str) -> None:
    given = pickle.loads(pickle.dumps(tokenizer(family)))
    tokens = list(given.parts.tokens.values())
    text = "the " + " river ".join(tokens) + "".join(tokens)
    hidden = given.special_ids - {given.unk_id}
    assert not hidden & set(given.encode_ids([text])[0])
    assert not hidden & set(given.encode(text, special=False).ids)
    assert set(given.encode(text, special=False, spelled="mask").ids) & hidden == {given.mask_id}
    assert set(given.encode(text, special=False, spelled="tokens").ids) >= given.special_ids
    assert given.spelled([text, "the river"]) == 10
    around = given.encode(text).ids
    assert given.build(given.encode_ids([text])[0])[0] == around


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_the_same_as_transformers_with_split_special_tokens(family: str, made: Maker) -> None:
    model = made(family, "ForMaskedLM", num_hidden_layers=1)
    text = "the [SEP] river </s> and [MASK] <mask> flows"
    theirs = model.their_tokenizer(text, split_special_tokens=True)["input_ids"]
    assert model.ours.tokenizer.encode(text).ids == theirs


def test_texts_of_tasks(made: Maker) -> None:
    bert = made("bert", "ForMaskedLM").ours
    apart = bert.embed(["the [SEP] river", "the [MASK]"])
    assert bert.ledger.counts[NOTE] == 2
    ids = bert.tokenizer.encode("the [SEP] river", special=False).ids
    (window,) = bert.windows(["the [SEP] river"])
    assert window.ids == bert.tokenizer.build(ids)[0]
    assert window.ids.count(bert.tokenizer.sep_id or 0) == 1
    assert np.isfinite(apart).all()


def test_the_mask_is_read_where_words_are_predicted(made: Maker) -> None:
    bert = made("bert", "ForMaskedLM").ours
    guesses = bert.fill_mask("the [MASK] [SEP] river", top=1)
    assert len(guesses) == 1
    assert guesses[0].text.endswith("[SEP] river")
    assert {one.mask for one in lens(bert, "the [MASK] [SEP] river")} == {0}
    ids = bert.tokenizer.encode("the [MASK] [SEP]", spelled="mask").ids
    assert len(attention(bert, "the [MASK] [SEP]").tokens) == len(ids)
    with pytest.raises(BertsmithError, match="no mask token"):
        bert.fill_mask("the [SEP] river")
