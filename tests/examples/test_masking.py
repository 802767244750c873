"""Masking: the shares are right on a million draws, for every unit and kind of vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.examples import Masking, Sequences
from bertsmith.examples.masking import word_marks
from bertsmith.tokenizer import Tokenizer, train


def rows(tokenizer: Tokenizer, count: int, length: int, seed: int = 0) -> Sequences:
    """Random ordinary tokens between the two special ones."""
    random = np.random.default_rng(seed)
    ordinary = np.array(sorted(set(range(tokenizer.size)) - tokenizer.special_ids))
    ids = random.choice(ordinary, (count, length))
    ids[:, 0], ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    return Sequences(ids.ravel(), np.zeros(ids.size, np.int64), np.full(count, length))


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_shares_on_a_million_tokens(tokenizer: Tokenizer, unit: Any) -> None:
    sequences = rows(tokenizer, 8000, 128)
    masked = Masking(tokenizer, unit=unit)(sequences, np.arange(8000))
    assert abs(len(masked.rows) / (8000 * 126) - 0.15) < 0.002
    seen = masked.ids[masked.rows]
    assert abs((seen == tokenizer.mask_id).mean() - 0.8) < 0.01
    ordinary = tokenizer.size - len(tokenizer.special_ids)
    other = (seen != tokenizer.mask_id) & (seen != masked.targets)
    assert abs(other.mean() - 0.1 * (1 - 1 / ordinary)) < 0.01
    assert np.array_equal(masked.targets, sequences.ids[masked.rows])
    untouched = np.delete(masked.ids, masked.rows)
    assert np.array_equal(untouched, np.delete(sequences.ids, masked.rows))
    # Every place is as likely as any other.
    places = np.bincount(masked.rows % 128, minlength=128)
    assert places[0] == places[-1] == 0
    assert places[5:-5].min() > 0.85 * places[5:-5].mean()
    assert places[5:-5].max() < 1.15 * places[5:-5].mean()


@pytest.mark.parametrize(
    ("rate", "mask", "random"), [(0.3, 1.0, 0.0), (0.4, 0.5, 0.5), (0.05, 0, 0)]
)
def test_any_rate_and_split(tokenizer: Tokenizer, rate: float, mask: float, random: float) -> None:
    sequences = rows(tokenizer, 1000, 128)
    masked = Masking(tokenizer, rate=rate, mask=mask, random=random)(sequences, np.arange(1000))
    assert abs(len(masked.rows) / (1000 * 126) - rate) < 0.005
    seen = masked.ids[masked.rows]
    assert abs((seen == tokenizer.mask_id).mean() - mask) < 0.02
    assert abs((seen == masked.targets).mean() - (1 - mask - random)) < 0.02


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("length", [3, 5, 24])
def test_a_thousand_sequences_each_have_a_target(
    tokenizer: Tokenizer, unit: Any, length: int
) -> None:
    masked = Masking(tokenizer, unit=unit)(rows(tokenizer, 1000, length), np.arange(1000))
    assert len(set((masked.rows // length).tolist())) == 1000


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("length", [24, 40, 66])
def test_the_rate_is_right_in_short_texts_of_long_words(
    tokenizer: Tokenizer, unit: Any, length: int
) -> None:
    sequences = texts(tokenizer, 20_000, length)
    masked = Masking(tokenizer, unit=unit)(sequences, np.arange(20_000))
    assert len(set((masked.rows // length).tolist())) == 20_000
    assert abs(len(masked.rows) / (20_000 * (length - 2)) - 0.15) < 0.002


def texts(tokenizer: Tokenizer, count: int, length: int) -> Sequences:
    """Words of one to six tokens, in each text at least one of a single token."""
    opens, _ = word_marks(tokenizer)
    ordinary = np.setdiff1d(np.arange(tokenizer.size), sorted(tokenizer.special_ids))
    first, later = ordinary[opens[ordinary]], ordinary[~opens[ordinary]]
    random = np.random.default_rng(0)
    opening = random.random((count, length)) < 0.3
    opening[:, 1:4] = True
    ids = np.where(
        opening, random.choice(first, opening.shape), random.choice(later, opening.shape)
    )
    ids[:, 0], ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    return Sequences(ids.ravel(), np.zeros(ids.size, np.int64), np.full(count, length))


def test_words_taken_from_a_span_lie_side_by_side_and_share_one_fate(tokenizer: Tokenizer) -> None:
    sequences = texts(tokenizer, 1000, 40)
    masking = Masking(tokenizer, unit="span", mask=0.4, random=0.0, rate=0.3)
    masked = masking(sequences, np.arange(1000))
    place = np.arange(len(sequences.ids))
    owner, free = place // 40, ~masking.special[sequences.ids]
    words, spans = masking._units(sequences.ids, owner, free, (0, owner, place % 40))
    taken = np.zeros(len(place), dtype=bool)
    taken[masked.rows] = True
    shown = masked.ids == tokenizer.mask_id
    cut = 0
    for span in np.unique(spans[taken]):
        own = np.flatnonzero(spans == span)
        chosen = own[taken[own]]
        assert np.array_equal(chosen, np.arange(chosen[0], chosen[-1] + 1))
        assert len(np.unique(shown[chosen])) == 1
        assert np.isin(words[own], words[chosen]).sum() == len(chosen)  # whole words
        cut += len(chosen) < len(own)
    assert cut > 100


def test_whole_words_are_hidden_whole(tokenizer: Tokenizer) -> None:
    sequences = rows(tokenizer, 300, 64)
    masked = Masking(tokenizer, unit="word", mask=1.0, random=0.0)(sequences, np.arange(300))
    hidden = np.zeros(len(sequences.ids), dtype=bool)
    hidden[masked.rows] = True
    opens, _ = word_marks(tokenizer)
    inside = ~opens[sequences.ids]  # goes on with the word of the token before
    special = np.isin(sequences.ids, sorted(tokenizer.special_ids))
    inside[1:] &= ~special[:-1]
    assert inside.sum() > 1000
    assert (hidden[1:] == hidden[:-1])[inside[1:]].all()


def test_spans_have_the_lengths_that_are_asked_for(tokenizer: Tokenizer) -> None:
    opens, _ = word_marks(tokenizer)
    whole = np.flatnonzero(opens)
    whole = whole[~np.isin(whole, sorted(tokenizer.special_ids))]
    ids = np.random.default_rng(0).choice(whole, 2000 * 200)
    sequences = Sequences(ids, np.zeros_like(ids), np.full(2000, 200))
    masking = Masking(tokenizer, unit="span", span=3, longest_span=6, rate=0.1)
    hidden = np.zeros(len(ids), dtype=bool)
    hidden[masking(sequences, np.arange(2000)).rows] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden.astype(int), [0]])))
    lengths = edges[1::2] - edges[::2]
    assert 2.4 < lengths.mean() < 3.4  # neighbours sometimes join, the last span may be cut off
    assert (lengths <= 6).mean() > 0.9


KINDS = {"wordpiece": "the cat##s", "bpe": "cats", "unigram": "cats"}


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_every_kind_of_vocabulary(kind: Any, tmp_path: Path) -> None:
    """Of a text, the tokens that open a word are as many as its words and signs."""
    path = tmp_path / "text.txt"
    words = "walking talked jumping walks sleeper running talks jumper walked sleeping runner"
    path.write_text("\n".join([words, words.title(), "walk, talk. jump! 12 34"] * 40))
    tokenizer = train([path], kind, size=330, min_frequency=1)
    opens, parts = word_marks(tokenizer)
    ids = np.array(tokenizer.encode_ids(["walking talked, sleepers jumped! runnings"])[0])
    first = opens[ids]
    first[1:] |= parts[ids[:-1]]
    first[0] = True
    assert first.sum() == 7
    assert len(ids) > 7


@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 20))
def test_a_sample_is_masked_alike_in_any_batch(
    tokenizer: Tokenizer, first: int, length: int, count: int
) -> None:
    for unit in ("token", "word", "span"):
        masking = Masking(tokenizer, unit=unit, rate=0.3)
        sequences = rows(tokenizer, count, length + 2)
        samples = np.arange(first, first + count)
        together = masking(sequences, samples).ids.reshape(count, -1)
        for number in {0, count - 1}:
            own = Sequences(*(x.reshape(count, -1)[number].ravel() for x in sequences[:3]))
            alone = masking(own, samples[number : number + 1])
            assert np.array_equal(alone.ids, together[number])


def test_another_epoch_is_masked_in_another_way(tokenizer: Tokenizer) -> None:
    sequences = rows(tokenizer, 10, 64)
    masking = Masking(tokenizer)
    one, other = (masking(sequences, np.arange(10) + start) for start in (0, 10))
    assert not np.array_equal(one.rows, other.rows)


def test_only_special_tokens_have_no_targets(tokenizer: Tokenizer) -> None:
    ids = np.array([tokenizer.cls_id, tokenizer.sep_id, tokenizer.cls_id, 9, tokenizer.sep_id])
    masked = Masking(tokenizer)(Sequences(ids, ids * 0, np.array([2, 3])), np.arange(2))
    assert masked.rows.tolist() == [3]
    none = Masking(tokenizer)(Sequences(ids[:2], ids[:2] * 0, np.array([2])), np.arange(1))
    assert none.rows.tolist() == []


@pytest.mark.parametrize(
    "options", [{"rate": 0}, {"rate": 1}, {"mask": 0.9, "random": 0.2}, {"mask": -0.1}, {"span": 0}]
)
def test_shares_that_are_none(tokenizer: Tokenizer, options: Any) -> None:
    with pytest.raises(BertsmithError, match="masking"):
        Masking(tokenizer, **options)


def test_weighted_tokens_are_drawn_as_by_multinomial(tokenizer: Tokenizer) -> None:
    """Rare tokens more often: as torch draws without replacement, the rate being the same."""
    sequences = rows(tokenizer, 4000, 22)
    weights = np.random.default_rng(1).integers(1, 50, tokenizer.size) ** -0.7
    masked = Masking(tokenizer, rate=0.2, weights=weights)(sequences, np.arange(4000))
    ids = sequences.ids.reshape(4000, 22)[:, 1:-1]
    assert len(masked.rows) == 4000 * 4
    probabilities = torch.from_numpy(weights[ids])
    drawn = torch.multinomial(probabilities, 4, generator=torch.Generator().manual_seed(0))
    expected = np.take_along_axis(weights[ids], drawn.numpy(), 1)
    assert np.mean(weights[masked.targets]) == pytest.approx(expected.mean(), rel=0.03)
    assert np.mean(weights[masked.targets]) > 1.15 * weights[ids].mean()
    with pytest.raises(BertsmithError, match="for single tokens"):
        Masking(tokenizer, unit="word", weights=weights)
