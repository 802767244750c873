"""Distances in buckets as DeBERTa-v2's authors count them; rotations that keep distances."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from bertsmith.batch import Layout
from bertsmith.kernels import distance_rows
from bertsmith.model.encoder import Hidden
from bertsmith.model.heads import AnchoredHead
from bertsmith.model.position import RelativeSignal, RotarySignal, rotate
from model.tiny import difference


def theirs(length: int, buckets: int, furthest: int) -> torch.Tensor:
    """`transformers`' bucket of every distance from -(length-1) to length-1."""
    states = torch.empty(length, 0)
    table = build_relative_position(states, states, buckets, furthest)[0]
    return torch.cat([table[0].flip(0), table[1:, 0]])


def assert_rows(length: int, span: int, buckets: int, furthest: int) -> None:
    expected = (theirs(length, buckets, furthest) + span).clamp(0, 2 * span - 1)
    found = distance_rows(length, span, buckets, furthest)
    assert found.dtype == torch.int64
    assert torch.equal(found, expected)


PUBLISHED = (256, 512)


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 130, 255, 511, 512, 513, 1000, 2000])
@pytest.mark.parametrize(
    ("buckets", "furthest"),
    [PUBLISHED, (256, 1024), (32, 512), (16, 128), (7, 100), (2, 512), (128, 2000), (512, 512)],
)
def test_buckets_equal_those_of_transformers(length: int, buckets: int, furthest: int) -> None:
    assert_rows(length, buckets, buckets, furthest)


@given(st.integers(1, 700), st.integers(1, 600), st.integers(2, 600), st.integers(2, 2000))
@settings(max_examples=60, deadline=None)
def test_any_buckets_equal_those_of_transformers(
    length: int, span: int, buckets: int, furthest: int
) -> None:
    assume(furthest - 1 > buckets // 2)  # else their logarithm is of nothing
    assert_rows(length, span, buckets, furthest)


@pytest.mark.parametrize("length", [1, 20, 64, 300])
def test_without_buckets_a_distance_is_its_own_row(length: int) -> None:
    assert_rows(length, 64, 0, 64)
    near = distance_rows(length, 1000, 0, 64)
    assert near.tolist() == list(range(1001 - length, 1000 + length))


@given(st.integers(1, 2000), st.integers(2, 300), st.integers(300, 2000))
@settings(max_examples=40, deadline=None)
def test_back_is_the_mirror_of_forth(length: int, buckets: int, furthest: int) -> None:
    span = 5000  # wide enough that nothing is cut off
    rows = distance_rows(length, span, buckets, furthest) - span
    assert torch.equal(rows, -rows.flip(0))
    assert (rows.diff() >= 0).all()
    assert rows[length - 1] == 0


def test_rows_for_a_shorter_sequence_are_the_middle() -> None:
    long, short = distance_rows(900, 256, *PUBLISHED), distance_rows(40, 256, *PUBLISHED)
    assert torch.equal(long[899 - 39 : 899 + 40], short)


# ------------------------------------------------------------------ rotations


@pytest.mark.parametrize("base", [10_000.0, 160_000.0])
def test_rotation_turns_pairs_by_their_angle(base: float) -> None:
    """Against complex numbers: coordinate pairs times e^(i place / base^(2k/d))."""
    layout, width = Layout.of([5, 1, 700]), 8
    x = torch.randn(layout.total, 3, width, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, *RotarySignal(width, base)(layout))
    angle = layout.positions.double()[:, None] * base ** -(torch.arange(4).double() / 4)
    pairs = torch.complex(x[..., :4].double(), x[..., 4:].double())
    expected = pairs * torch.polar(torch.ones_like(angle), angle)[:, None]
    assert difference(turned.double(), torch.cat([expected.real, expected.imag], -1)) <= 2e-4


def test_rotated_products_depend_on_distance_alone() -> None:
    layout = Layout.of([50])
    signal = RotarySignal(16, 10_000.0)(layout)
    one, other = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(0))
    query, key = (rotate(x.expand(50, 1, 16), *signal)[:, 0] for x in (one, other))
    products = query @ key.T
    for distance in (-20, 0, 3, 49):
        along = products.diagonal(distance)
        assert difference(along, along[:1].expand_as(along)) <= 1e-4


def test_rotation_in_half_precision_is_computed_in_single() -> None:
    layout = Layout.of([300])
    signal = RotarySignal(8, 10_000.0)(layout)
    x = torch.randn(300, 1, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(rotate(x, *signal), rotate(x.float(), *signal).bfloat16())


@pytest.mark.parametrize(("lengths", "most"), [([5, 3], 0), ([5, 3], 30), ([100], 0)])
def test_rows_of_distances_are_computed_once(lengths: list[int], most: int) -> None:
    signal = RelativeSignal(torch.nn.Embedding(16, 4), torch.nn.Identity(), 0.0, 8, 64)
    layout = Layout.of(lengths, most=most)
    with torch.inference_mode():
        signal.prepare(layout)
    vectors, rows = signal(layout)
    longest, middle = layout.longest, len(rows) // 2
    near = rows[middle - longest + 1 : middle + longest]
    assert torch.equal(near, distance_rows(longest, 8, 8, 64))
    assert signal(Layout.of(lengths[:1], most=longest))[1] is rows
    vectors[rows].sum().backward()  # an inference tensor could not be saved for backward


def test_empty_sequences_at_the_end_have_no_first_state() -> None:
    """As captured steps pass them: boundaries that are repeated up to a power of two."""
    head = AnchoredHead(lambda x, *_: x, {}, torch.nn.Identity())
    layout, last = Layout.of([3, 2, 4], most=4), torch.randn(9, 2)
    padded = replace(layout, boundaries=layout.ends)
    assert len(padded.boundaries) == 5
    first = last[[0, 0, 0, 3, 3, 5, 5, 5, 5]]
    for one in (layout, padded):
        batch: Any = SimpleNamespace(layout=one)
        assert torch.equal(head.read(Hidden(last, last, None), batch), last + first)  # type: ignore[arg-type]
