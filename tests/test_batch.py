"""Layout and Batch: where sequences lie, for any lengths."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.batch import Batch, Layout

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
SEQUENCES = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=9)


@given(LENGTHS)
def test_a_layout_says_where_every_token_is(lengths: list[int]) -> None:
    layout = Layout.of(lengths)
    rows = [(owner, place) for owner, n in enumerate(lengths) for place in range(n)]
    assert layout.owner.tolist() == [owner for owner, _ in rows]
    assert layout.positions.tolist() == [place for _, place in rows]
    assert layout.first.tolist() == [row for row, (_, place) in enumerate(rows) if place == 0]
    assert layout.boundaries.tolist() == [*layout.first.tolist(), len(rows)]
    assert (layout.total, layout.longest) == (len(rows), max(lengths))
    assert layout.lengths == tuple(lengths)
    assert (layout.boundaries.dtype, layout.positions.dtype) == (torch.int32, torch.int64)


@given(LENGTHS)
def test_runs_are_the_longest_stretches_of_equal_length(lengths: list[int]) -> None:
    runs = Layout.of(lengths).runs
    assert [length for _, count, length in runs for _ in range(count)] == lengths
    assert all(here[2] != after[2] for here, after in pairwise(runs))
    ends = [row + count * length for row, count, length in runs]
    assert [row for row, _, _ in runs] == [0, *ends[:-1]]


@given(LENGTHS)
def test_split_undoes_the_laying_end_to_end(lengths: list[int]) -> None:
    parts = [torch.rand(n, 2) for n in lengths]
    again = Layout.of(lengths).split(torch.cat(parts))
    assert len(again) == len(parts)
    assert all(torch.equal(mine, part) for mine, part in zip(again, parts, strict=True))


@given(SEQUENCES, st.data())
def test_a_batch_holds_ids_and_segments_end_to_end(
    ids: list[list[int]], data: st.DataObject
) -> None:
    marks = [data.draw(st.lists(st.integers(0, 1), min_size=len(s), max_size=len(s))) for s in ids]
    batch = Batch.of(ids, marks)
    assert [part.tolist() for part in batch.layout.split(batch.ids)] == ids
    assert [part.tolist() for part in batch.layout.split(batch.segments)] == marks
    assert not Batch.of(ids).segments.any()
    assert batch.ids.dtype == batch.segments.dtype == Batch.of(ids).segments.dtype == torch.int64


def test_segments_may_be_truths() -> None:
    assert Batch.of([[5, 6]], [[False, True]]).segments.dtype == torch.int64


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 2], [-1], [4, -2]])
def test_no_sequence_is_empty(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one sequence, and none may be empty"):
        Layout.of(lengths)


@pytest.mark.parametrize("ids", [[], [[]], [[1, 2], []]])
def test_no_batch_is_empty(ids: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="none may be empty"):
        Batch.of(ids)


@pytest.mark.parametrize("segments", [[], [[0, 0]], [[0], [0, 0]], [[0, 0], [0], [0]]])
def test_segments_fit_the_ids(segments: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="ids and segments differ in length"):
        Batch.of([[1, 2], [3]], segments)


def test_moving_keeps_the_lengths_and_moves_every_tensor() -> None:
    batch = Batch.of([[1, 2, 3], [4]])
    moved = batch.to("meta")
    assert moved.layout.lengths == batch.layout.lengths
    tensors = (moved.ids, moved.segments, moved.layout.boundaries, moved.layout.positions)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert batch.ids.device.type == "cpu"


@given(st.lists(st.integers(1, 600), min_size=1, max_size=80))
def test_groups_hold_every_token_once_with_little_padding(lengths: list[int]) -> None:
    layout = Layout.of(lengths)
    seen, picked, places = layout.groups
    assert torch.equal(picked[places], torch.arange(layout.total))
    assert len(picked) <= layout.total / 0.8 + 1
    for real, part in zip(seen, picked.split([one.numel() for one in seen]), strict=True):
        rows = part.view(real.shape)
        assert rows.numel() <= 16384 or len(rows) == 1
        assert torch.equal(layout.owner[rows].amin(1), layout.owner[rows].amax(1))
        assert real.sum(1).tolist() == [lengths[n] for n in layout.owner[rows[:, 0]].tolist()]


def test_layouts_of_one_bound_have_ends_of_few_sizes() -> None:
    several = [Layout.of([8] * count, most=16) for count in range(1, 40)]
    for layout in several:
        count = len(layout.lengths)
        assert layout.longest == 16
        assert layout.ends[: count + 1].tolist() == layout.boundaries.tolist()
        assert set(layout.ends[count:].tolist()) == {layout.total}  # empty ones
    assert {len(layout.ends) for layout in several} == {2, 3, 5, 9, 17, 33, 65}


def test_a_bound_is_a_bound() -> None:
    with pytest.raises(ValueError, match="a sequence of 9 tokens, where 8 is the most"):
        Layout.of([8, 9], most=8)


def test_a_layout_knows_whether_it_is_full() -> None:
    assert Layout.of([8, 8], most=8).full
    assert Layout.of([8, 8], most=8).to("cpu").full
    assert not Layout.of([8, 7], most=8).full
    assert not Layout.of([8, 8], most=16).full
    assert not Layout.of([8, 8]).full


@pytest.mark.parametrize("most", [0, 16])
def test_a_layout_moves_as_a_whole(most: int) -> None:
    layout = Layout.of([8, 3, 1], most=most)
    moved = layout.to("meta")
    assert {moved.boundaries.device.type, moved.ends.device.type, moved.positions.device.type} == {
        "meta"
    }
    assert (moved.ends is moved.boundaries) == (most == 0)
    assert (moved.lengths, moved.longest) == (layout.lengths, most or 8)
