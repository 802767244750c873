"""Layer by layer: the lens ends where the model does; CKA is what it is known to be."""

from typing import Any

import numpy as np
import pytest

from analysis.conftest import KINDS, Small
from bertsmith import load
from bertsmith.analysis.layers import alike, cka, few_texts, lens
from bertsmith.errors import BertsmithError
from bertsmith.infer.states import hidden_states
from tasks.words import LINES

TEXTS = LINES.split("\n")


@pytest.mark.parametrize("name", KINDS)
def test_the_last_depth_is_the_models_own_answer(name: str, small: Small) -> None:
    bert = small(name)
    mask = bert.tokenizer.mask_token
    text = f"the {mask} flows {mask}."
    found = lens(bert, text, top=3)
    depth = len(bert.model.encoder.plan)
    assert [(one.depth, one.mask) for one in found] == [
        (d, m) for d in range(depth + 1) for m in (0, 1)
    ]
    expected = bert.fill_mask(text, top=3)
    last = [score for one in found[-2:] for score in one.scores]
    assert last == pytest.approx([guess.score for guess in expected], abs=1e-6)
    assert found[0].scores != pytest.approx(found[-2].scores, abs=1e-4)
    assert found[-1].final == found[-1].scores
    assert all(len(one.final) == 3 and 0 <= min(one.final) <= max(one.final) <= 1 for one in found)


def test_lens_mistakes(small: Small) -> None:
    bert = small()
    with pytest.raises(BertsmithError, match="the text has no mask"):
        lens(bert, "river")
    with pytest.raises(BertsmithError, match="top must be"):
        lens(bert, "[MASK]", top=0)
    with pytest.raises(BertsmithError, match="tokens, but the model reads 128"):
        lens(bert, "[MASK] " * 200)


def test_special_tokens_are_left_out() -> None:
    """The norm of [SEP] grows to nearly twenty times that of words, and decides the means.

    With them, the means before and after the block in which it grows have less in common.
    """
    bert = load("bertsmith-small", device="cpu")
    texts = [text for text in TEXTS if text.strip()]
    found = hidden_states(bert, texts, [3, 4], pool="mean", special=True)
    with_them = np.concatenate([one.vectors for one in found], axis=1)
    assert cka(*with_them) < 0.6
    assert alike(bert, texts)[3, 4] > 0.95


def test_few_texts_are_noted(small: Small) -> None:
    assert few_texts(32, small()) == []
    (line,) = few_texts(10, small())
    assert "give 32 texts or more" in line


def test_cka() -> None:
    random = np.random.default_rng(0)
    for rows in (20, 200):  # one for each way to compute it
        x = random.normal(size=(rows, 40)).astype(np.float32)
        turn = np.linalg.qr(random.normal(size=(40, 40)))[0]
        assert cka(x, (3 * x @ turn + 7).astype(np.float32)) == pytest.approx(1, abs=1e-5)
        y = random.normal(size=(rows, 30)).astype(np.float32)
        # By the definition: HSIC of the two Gram matrices, centred.
        centre = np.eye(rows) - 1 / rows
        a, b = (centre @ (one @ one.T) @ centre for one in (x.astype(float), y.astype(float)))
        expected = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
        assert cka(x, y) == pytest.approx(expected, abs=1e-6)
        assert cka(x, y) == pytest.approx(cka(y, x), abs=1e-9)
    with pytest.raises(BertsmithError, match="vectors of the same inputs"):
        cka(x, y[:-1])


@pytest.mark.parametrize("texts", ["one text", [], ["one text"]])
def test_layers_are_compared_over_several_texts(texts: Any, small: Small) -> None:
    with pytest.raises(BertsmithError, match=r"list of strings|at least two texts"):
        alike(small(), texts)


def test_layers_and_models(small: Small) -> None:
    bert, other = small(), small("modernbert")
    own, both = alike(bert, TEXTS), alike(bert, TEXTS, other)
    assert own.shape == (4, 4)
    assert both.shape == (4, 5)
    assert np.allclose(np.diag(own), 1, atol=1e-5)
    assert np.allclose(own, own.T, atol=1e-5)
    assert own[0, 3] < own[2, 3]
