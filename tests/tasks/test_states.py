"""Hidden states: equal to those of the encoder, whatever is pooled, however long the text."""

import numpy as np
import pytest
import torch

from analysis.conftest import KINDS, Small, small
from bertsmith import Bert
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer import states as module
from bertsmith.infer.states import hidden_states
from bertsmith.model import Trace
from tasks.words import LINES

__all__ = ["small"]
TEXTS = LINES.split("\n")


def by_hand(bert: Bert, text: str) -> np.ndarray:
    """All states of a text with its special tokens: (depths, n, D)."""
    encoding = bert.tokenizer.encode(text)
    trace = Trace(states=True)
    with torch.inference_mode():
        last = bert.model.encoder(Batch.of([encoding.ids], [encoding.segments]), trace).last
    return torch.stack([*trace.hidden[:-1], last]).numpy()


@pytest.mark.parametrize("name", KINDS)
def test_every_family_and_depth(name: str, small: Small) -> None:
    bert = small(name)
    for text, found in zip(TEXTS, hidden_states(bert, TEXTS, special=True), strict=True):
        expected = by_hand(bert, text)
        assert found.vectors.shape == expected.shape
        assert np.abs(found.vectors - expected).max() <= 2e-5


def test_progress_is_shown(
    small: Small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws bars on terminals only
    bert = small()
    for shown in (None, True):
        bert.progress = shown
        list(hidden_states(bert, TEXTS))
        assert ("tokens" in capsys.readouterr().err) == bool(shown)


def test_rows_are_tokens_words_or_the_text(small: Small) -> None:
    bert = small()
    text = "The unbelievable river, it flows."
    states = by_hand(bert, text)[-1]
    encoding = bert.tokenizer.encode(text)
    plain = [n for n, source in enumerate(encoding.sources) if source is not None]
    tokens = bert.states(text)
    assert tokens.pieces == [text[a:b] for a, b in (encoding.offsets[n] for n in plain)]
    assert np.abs(tokens.vectors - states[plain]).max() <= 1e-5
    mean = bert.states(text, pool="mean")
    assert np.abs(mean.vectors[0] - states[plain].mean(0)).max() <= 1e-5
    everything = bert.states(text, pool="mean", special=True)
    assert np.abs(everything.vectors[0] - states.mean(0)).max() <= 1e-5
    words = bert.states(text, pool="words")
    assert words.pieces == ["The", "unbelievable", "river", ",", "it", "flows", "."]
    inside = [n for n in plain if encoding.offsets[n][0] < 16 and encoding.offsets[n][1] > 4]
    assert len(inside) > 1
    assert np.abs(words.vectors[1] - states[inside].mean(0)).max() <= 1e-5


def test_depths(small: Small) -> None:
    bert = small()
    all_of_them = bert.states(TEXTS[:3], depth=range(4), pool="mean")
    assert [one.vectors.shape for one in all_of_them] == [(4, 1, 32)] * 3
    first, second = bert.states(TEXTS[0], depth=[2, 0], pool="mean").vectors
    assert np.allclose(first, all_of_them[0].vectors[2], atol=1e-5)
    assert np.allclose(second, all_of_them[0].vectors[0], atol=1e-5)
    assert np.allclose(bert.states(TEXTS[0], depth=2, pool="mean").vectors, first, atol=1e-5)
    for depth in (-1, 4, 1.0, True, "2"):
        with pytest.raises(BertsmithError, match=r"this model has 0 \(embeddings\) to 3"):
            bert.states("a", depth=depth)
    with pytest.raises(BertsmithError, match="pool must be None"):
        bert.states("a", pool="max")


def test_long_texts_and_small_memory(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows cover every token; texts keep their order, whatever fits into memory at once."""
    bert = small()
    long = "the river flows " * 100
    texts = ["river", long, "", "the mayor asked"]
    expected = list(hidden_states(bert, texts))
    assert len(expected[1].spans) == 300
    assert np.isfinite(expected[1].vectors).all()
    near = by_hand(bert, "river")[:, 1:2]
    assert np.abs(expected[0].vectors - near).max() <= 1e-5
    assert expected[2].vectors.shape == (4, 0, 32)
    monkeypatch.setattr(module, "MOST", 1)
    monkeypatch.setattr(module, "CHUNK", 2)
    again = list(hidden_states(bert, iter(texts)))
    assert [one.text for one in again] == texts
    for one, other in zip(expected, again, strict=True):
        assert np.allclose(one.vectors, other.vectors, atol=1e-5)


def test_spans(small: Small) -> None:
    bert = small()
    text = "the unbelievable river"
    spans = [(4, 16), (17, 22), (3, 4)]
    (one,) = hidden_states(bert, [text], [3], spans=[spans])
    assert np.allclose(one.vectors[0, 1], bert.states(text, pool="words").vectors[2], atol=1e-5)
    assert np.isnan(one.vectors[0, 2]).all()  # a space is no token
    with pytest.raises(BertsmithError, match="spans or pool"):
        list(hidden_states(bert, [text], pool="mean", spans=[spans]))


def test_an_empty_text_has_the_mean_of_its_special_tokens(small: Small) -> None:
    bert = small()
    assert np.allclose(
        bert.states("", pool="mean").vectors[0], by_hand(bert, "")[-1].mean(0), atol=1e-5
    )
