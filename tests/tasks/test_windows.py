"""Windows and batches: all is covered, nothing is lost, order comes back."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.infer.run import packed
from bertsmith.infer.windows import Windower, clearest, cut
from bertsmith.ledger import Ledger
from tasks.models import STEMS, tokenizer

Case = tuple[int, int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A length, a room and an overlap of at most half of it, as windowers ask for."""
    room = draw(st.integers(1, 60))
    return draw(st.integers(0, 500)), room, draw(st.integers(0, room // 2))


@given(cases())
@settings(max_examples=300, deadline=None)
def test_stretches_cover_all_and_share_what_was_asked(case: Case) -> None:
    length, room, overlap = case
    parts = cut(length, room, overlap)
    assert {token for part in parts for token in part} == set(range(length))
    assert all(len(part) == min(room, length) for part in parts)
    assert parts[0].start == 0
    assert parts[-1].stop == length
    for left, right in pairwise(parts):
        assert left.start < right.start
        assert left.stop - right.start >= overlap
    for left, right in list(pairwise(parts))[:-1]:
        assert left.stop - right.start == overlap
    if length > room:
        assert len(parts) == -(-(length - overlap) // (room - overlap)), "no more than needed"


@given(cases())
@settings(max_examples=300, deadline=None)
def test_each_token_is_read_where_it_is_clearest(case: Case) -> None:
    length, room, overlap = case
    parts = cut(length, room, overlap)

    def clear(number: int, token: int) -> int:
        part = parts[number]
        left = length if part.start == 0 else token - part.start
        right = length if part.stop == length else part.stop - 1 - token
        return min(left, right)

    chosen = clearest(parts, length)
    assert len(chosen) == length
    for token, number in enumerate(chosen):
        holding = [n for n, part in enumerate(parts) if token in part]
        assert number in holding
        assert clear(number, token) == max(clear(n, token) for n in holding)


@given(st.lists(st.integers(1, 100), max_size=60), st.integers(1, 200))
@settings(max_examples=300, deadline=None)
def test_batches_hold_all_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = list(packed(lengths, budget))
    assert sorted(number for group in groups for number in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or sum(lengths[number] for number in group) <= budget
    flat = [lengths[number] for group in groups for number in group]
    assert flat == sorted(lengths, reverse=True), "longest first"
    for group, following in pairwise(groups):
        assert sum(lengths[n] for n in [*group, following[0]]) > budget, "batches are filled"


@pytest.mark.parametrize("family", STEMS)
def test_windows_are_inputs_as_the_tokenizer_builds_them(family: str) -> None:
    words = tokenizer(family)
    text, second = "the river flows", "through Prague in June"
    one, two = words.encode(text, special=False), words.encode(second, special=False)
    windower = Windower(words, 100, 20)
    (single,) = windower.single(3, one.ids)
    whole = words.encode(text)
    assert (single.ids, single.segments, single.number) == (whole.ids, whole.segments, 3)
    assert single.ids[single.first : single.first + len(single.tokens)] == one.ids
    (pair,) = windower.pair(4, one.ids, two.ids)
    both = words.encode(text, second)
    assert (pair.ids, pair.segments, pair.number) == (both.ids, both.segments, 4)
    assert pair.ids[pair.first : pair.first + len(pair.tokens)] == two.ids


@given(st.integers(0, 400), st.integers(0, 30), st.integers(12, 50))
@settings(max_examples=100, deadline=None)
def test_windows_of_pairs_hold_the_first_text_whole(count: int, first: int, limit: int) -> None:
    words = tokenizer("roberta")
    asked, read = list(range(10, 10 + first)), [100 + n for n in range(count)]
    windower = Windower(words, limit, limit // 4)
    if count > limit - 4 - first < max(1, limit // 4):
        with pytest.raises(BertsmithError, match="its first text has"):
            windower.pair(0, asked, read)
        return
    windows = windower.pair(0, asked, read)
    assert {read[t] for window in windows for t in window.tokens} == set(read)
    for window in windows:
        assert len(window.ids) <= limit
        assert window.ids[1 : 1 + first] == asked
        inside = window.ids[window.first : window.first + len(window.tokens)]
        assert inside == [read[token] for token in window.tokens]


@given(st.integers(1, 400), st.data())
@settings(max_examples=100, deadline=None)
def test_a_window_around_a_token_holds_it_in_the_middle(count: int, data: st.DataObject) -> None:
    words, ids = tokenizer("bert"), list(range(10, 10 + count))
    row = data.draw(st.integers(0, count - 1))
    window = Windower(words, 32, 8).around(0, ids, row)
    assert window.ids[window.first + row - window.tokens.start] == ids[row]
    assert len(window.tokens) == min(30, count)
    if 15 <= row < count - 15:
        assert row - window.tokens.start == 15


def test_long_inputs_are_refused_cut_or_windowed_and_noted() -> None:
    words, ledger = tokenizer("bert"), Ledger()
    ids = list(range(10, 60))
    with pytest.raises(BertsmithError) as caught:
        Windower(words, 22, 5, "refuse", ledger).single(7, ids)
    assert str(caught.value) == "input 7 has 50 tokens, but the model reads 20 at once: shorten it"
    assert ledger.lines() == []
    assert len(Windower(words, 22, 5, "cut", ledger).single(7, ids)) == 1
    assert len(Windower(words, 22, 5, "window", ledger).single(7, ids)) == 3
    Windower(words, 22, 5, "window", ledger).single(7, ids[:20])
    assert ledger.lines() == ["long texts cut: 1", "long texts read in windows: 1"]


def test_the_ledger_adds_up_and_keeps_silent_about_nothing() -> None:
    ledger = Ledger()
    ledger.note("unknown tokens", 0)
    ledger.note("unknown tokens", 1200)
    ledger.note("long texts cut")
    ledger.note("unknown tokens", 34)
    assert ledger.lines() == ["unknown tokens: 1,234", "long texts cut: 1"]


def test_a_ledger_says_out_of_how_many() -> None:
    ledger = Ledger()
    ledger.note("unknown tokens", 0, 10)
    assert ledger.lines() == []
    ledger.note("unknown tokens", 1, 10)
    assert ledger.lines() == ["unknown tokens: 1 of 20 (5%)"]
    ledger.note("unknown tokens", 19, 10)
    assert ledger.lines() == [
        "unknown tokens: 20 of 30 (67%): is this the model's language and alphabet?"
    ]
