"""The kernels behind `attend` agree, forward and backward, with each other and with torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.batch import Layout
from bertsmith.errors import BertsmithError
from bertsmith.model import Scores, attend
from bertsmith.model.attend import CHUNK, RelativeBias, choose, maps
from model.tensors import HEADS, SCALE, SPAN, WIDTH, qkv, relative
from model.tiny import difference

TIGHT = {torch.float64: 1e-11, torch.float32: 5e-6, torch.bfloat16: 0.05}


WINDOWS = st.none() | st.integers(0, 4) | st.sampled_from([63, 64, 255, 256, 300, 511, 600])


EDGES = st.sampled_from([1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK])


LENGTHS = st.lists(st.integers(1, 512) | st.integers(1, 9) | EDGES, min_size=1, max_size=4)


TERMS = st.sampled_from(["keys", "queries", "both", "levels"])


def tables(scores: Scores) -> list[Tensor]:
    bias = scores.bias
    return [t for t in (bias.keys, bias.queries, bias.levels) if t is not None] if bias else []


def results(kernel: str, parts: list[Tensor], layout: Layout, scores: Scores) -> list[Tensor]:
    """The output, and the gradients of queries, keys, values and tables."""
    out = attend(*parts, layout, scores, kernel=kernel)
    random = torch.Generator().manual_seed(9)
    pull = torch.randn(out.shape, generator=random, dtype=torch.float64).to(out)
    return [out, *torch.autograd.grad(out, parts + tables(scores), pull)]


def exactly(parts: list[Tensor], layout: Layout, scores: Scores) -> list[Tensor]:
    """What `reference` gives for the same values in float64."""

    def wide(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.detach().double().requires_grad_()

    bias = scores.bias
    if bias is not None:
        bias = RelativeBias(wide(bias.keys), wide(bias.queries), bias.rows, wide(bias.levels))
    widened = [x.detach().double().requires_grad_() for x in parts]
    return results("reference", widened, layout, scores._replace(bias=bias))


def assert_agree(parts: list[Tensor], layout: Layout, scores: Scores) -> None:
    """The kernels `runs` and `grouped` are right, forward and backward.

    Sums over many rounded numbers, such as gradients of tables, are as far from what is exact in
    any kernel: twice as far as `reference` in the same dtype is right as well.
    """
    exact = exactly(parts, layout, scores)
    plain = results("reference", parts, layout, scores)
    for kernel in ("runs", "grouped"):
        found = results(kernel, parts, layout, scores)
        for expected, rounded, made in zip(exact, plain, found, strict=True):
            room = TIGHT[parts[0].dtype] * max(1.0, float(expected.detach().abs().max()))
            room = max(room, 2 * difference(rounded.double(), expected))
            assert difference(made.double(), expected) <= room


DTYPES = pytest.mark.parametrize("dtype", TIGHT, ids=str)


@DTYPES
@given(lengths=LENGTHS, window=WINDOWS, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_runs_agree(dtype: torch.dtype, lengths: list[int], window: int | None, seed: int) -> None:
    layout = Layout.of(lengths)
    assert_agree(qkv(layout, dtype, seed), layout, Scores(SCALE, window))


@DTYPES
@given(lengths=LENGTHS, terms=TERMS, buckets=st.sampled_from([0, 4, SPAN]))
@settings(max_examples=20, deadline=None)
def test_runs_agree_on_relative_bias(
    dtype: torch.dtype, lengths: list[int], terms: str, buckets: int
) -> None:
    layout = Layout.of(lengths)
    scores = Scores(SCALE / 3, bias=relative(layout, terms, buckets, dtype))
    assert_agree(qkv(layout, dtype), layout, scores)


@pytest.mark.parametrize("window", [0, 1, 64, CHUNK - 1, CHUNK, CHUNK + 1, 511, 512, 600])
@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1, 511, 512, 513])
def test_chunks_of_local_attention_meet_without_a_seam(length: int, window: int) -> None:
    layout = Layout.of([length])
    assert_agree(qkv(layout), layout, Scores(SCALE, window))


def test_equal_neighbours_share_one_run() -> None:
    layout = Layout.of([7, 7, 7, 3, 7, 7])
    assert len(layout.runs) == 3
    assert_agree(qkv(layout), layout, Scores(SCALE, bias=relative(layout)))
    assert_agree(qkv(layout), layout, Scores(SCALE, 2))


@pytest.mark.parametrize("terms", ["both", "neither"])
@pytest.mark.parametrize("window", [None, 0, 3, 50])
def test_bias_and_window_together(window: int | None, terms: str) -> None:
    layout = Layout.of([9, 1, 20, 20])
    assert_agree(qkv(layout), layout, Scores(SCALE, window, relative(layout, terms)))


def test_no_term_of_a_bias_is_no_bias() -> None:
    layout = Layout.of([9, 1, 20])
    parts = qkv(layout)
    empty = Scores(SCALE, bias=relative(layout, "neither"))
    for kernel in ("reference", "runs", "grouped"):
        plain = attend(*parts, layout, Scores(SCALE), kernel=kernel)
        assert difference(attend(*parts, layout, empty, kernel=kernel), plain) <= 1e-12


@pytest.mark.parametrize("kernel", ["reference", "runs", "grouped"])
def test_large_scores_in_half_precision(kernel: str) -> None:
    """Scores beyond float16's 65,504 before they are scaled are no harm: only after."""
    layout = Layout.of([40, 3])
    bias = relative(layout, dtype=torch.float16)
    assert bias.keys is not None
    assert bias.queries is not None
    loud = RelativeBias(bias.keys * 120, bias.queries * 120, bias.rows)
    query, key, value = (x.detach() for x in qkv(layout, torch.float16))
    query, key, scores = query * 120, key * 120, Scores(1e-4, bias=loud)
    assert float((query.float() @ key.float().mT).abs().max()) > 65504
    found = attend(query, key, value, layout, scores, kernel=kernel)
    exact = RelativeBias(loud.keys.double(), loud.queries.double(), loud.rows)  # type: ignore[union-attr]
    parts = (query.double(), key.double(), value.double())
    expected = attend(*parts, layout, Scores(1e-4, bias=exact), kernel="reference")
    assert difference(found.double(), expected) <= 0.02


# ------------------------------------------------------------------ the reference itself


def padded(layout: Layout, x: Tensor) -> Tensor:
    """(T, H, d) → (N, H, longest, d), as everyone else does it."""
    return torch.nn.utils.rnn.pad_sequence(list(layout.split(x)), batch_first=True).transpose(1, 2)


@pytest.mark.parametrize("window", [None, 0, 5, 30, 100])
def test_reference_equals_torch_on_a_padded_batch(window: int | None) -> None:
    layout = Layout.of([40, 1, 17, 33, 2])
    parts = qkv(layout)
    place = torch.arange(layout.longest)
    seen = (place < torch.tensor(layout.lengths)[:, None])[:, None, None, :]
    if window is not None:
        seen = seen & ((place[:, None] - place).abs() <= window)
        seen = seen | ~seen.any(-1, keepdim=True)  # padding has to look somewhere
    query, key, value = (padded(layout, x) for x in parts)
    theirs = F.scaled_dot_product_attention(query, key, value, seen, scale=SCALE).transpose(1, 2)
    ours = layout.split(attend(*parts, layout, Scores(SCALE, window), kernel="reference"))
    for mine, row in zip(ours, theirs, strict=True):
        assert difference(mine, row[: len(mine)]) <= 1e-12


def test_reference_equals_multihead_attention() -> None:
    layout, width = Layout.of([12, 5, 30]), HEADS * WIDTH
    torch.manual_seed(0)
    other = torch.nn.MultiheadAttention(width, HEADS, batch_first=True, dtype=torch.float64)
    rows = torch.randn(layout.total, width, dtype=torch.float64)
    joint = F.linear(rows, other.in_proj_weight, other.in_proj_bias)
    query, key, value = joint.unflatten(-1, (3, HEADS, WIDTH)).unbind(1)
    mixed = attend(query, key, value, layout, Scores(WIDTH**-0.5), kernel="reference")
    x = torch.nn.utils.rnn.pad_sequence(list(layout.split(rows)), batch_first=True)
    hidden = torch.arange(layout.longest) >= torch.tensor(layout.lengths)[:, None]
    theirs, weights = other(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
    for n, mine, row in zip(layout.lengths, layout.split(mixed), theirs, strict=True):
        assert difference(other.out_proj(mine.flatten(1)), row[:n]) <= 1e-12
    for n, mine, row in zip(
        layout.lengths, maps(query, key, layout, Scores(WIDTH**-0.5)), weights, strict=True
    ):
        assert difference(mine.double(), row[:, :n, :n]) <= 1e-6


@pytest.mark.parametrize("buckets", [0, 4])
@pytest.mark.parametrize("terms", ["keys", "queries", "both"])
def test_reference_adds_what_each_pair_of_tokens_should_get(terms: str, buckets: int) -> None:
    layout = Layout.of([3, 15])
    query, key, value = qkv(layout)
    bias = relative(layout, terms, buckets)
    row = {distance: int(bias.rows[distance + 14]) for distance in range(-14, 15)}
    expected = torch.zeros_like(value)
    for start, n in ((0, 3), (3, 15)):
        for head in range(HEADS):
            scores = torch.zeros(n, n, dtype=torch.float64)
            for i in range(n):
                for j in range(n):
                    q, k = query[start + i, head], key[start + j, head]
                    scores[i, j] = q @ k
                    if bias.keys is not None:
                        scores[i, j] += q @ bias.keys[row[i - j], head]
                    if bias.queries is not None:
                        scores[i, j] += k @ bias.queries[row[i - j], head]
            weights = (scores * SCALE).softmax(-1)
            expected[start : start + n, head] = weights @ value[start : start + n, head]
    found = attend(query, key, value, layout, Scores(SCALE, bias=bias), kernel="reference")
    assert difference(found, expected) <= 1e-12


# ------------------------------------------------------------------ maps


@pytest.mark.parametrize("kind", ["plain", "window", "bias", "one term"])
@pytest.mark.parametrize("heads", [None, [1], [1, 0]])
def test_maps_are_the_weights_that_attend_mixes_with(kind: str, heads: list[int] | None) -> None:
    layout = Layout.of([11, 1, 30, 30])
    query, key, value = (x.detach() for x in qkv(layout, torch.float32))
    terms = {"bias": "both", "one term": "queries"}.get(kind)
    bias = relative(layout, terms, 4, torch.float32) if terms else None
    scores = Scores(SCALE, 3 if kind == "window" else None, bias)
    found = maps(query, key, layout, scores, heads)
    with pytest.raises(BertsmithError, match=r"numbered from 0 to \d+, not \[99\]"):
        maps(query, key, layout, scores, [99])
    chosen = [0, 1] if heads is None else heads
    assert [tuple(m.shape) for m in found] == [(len(chosen), n, n) for n in layout.lengths]
    for kernel in ("reference", "runs", "grouped"):
        mixed = layout.split(attend(query, key, value, layout, scores, kernel=kernel))
        for weights, values, out in zip(found, layout.split(value), mixed, strict=True):
            assert difference(weights.sum(-1), torch.ones(weights.shape[:2])) <= 1e-5
            again = (weights @ values[:, chosen].transpose(0, 1)).transpose(0, 1)
            assert difference(again, out[:, chosen]) <= 1e-5
    if kind == "window":
        place = torch.arange(30)
        far = (place[:, None] - place).abs() > 3
        assert not found[2][:, far].any()
        assert (found[2][:, ~far] > 0).all()


def test_maps_are_a_softmax_of_scaled_products() -> None:
    layout = Layout.of([6, 9])
    query, key, _ = (x.detach() for x in qkv(layout, torch.float32))
    for weights, q, k in zip(
        maps(query, key, layout, Scores(SCALE), [1]),
        layout.split(query),
        layout.split(key),
        strict=True,
    ):
        expected = torch.einsum("id,jd->ij", q[:, 1], k[:, 1]).mul(SCALE).softmax(-1)
        assert difference(weights[0], expected) <= 1e-6


def test_maps_of_half_precision_are_computed_in_single() -> None:
    layout = Layout.of([6])
    query, key, _ = qkv(layout, torch.bfloat16)
    assert maps(query, key, layout, Scores(SCALE))[0].dtype == torch.float32


# ------------------------------------------------------------------ dropout


@pytest.mark.parametrize("kernel", ["reference", "runs", "grouped"])
@pytest.mark.parametrize("kind", ["plain", "window", "bias"])
def test_dropout_thins_the_weights_and_keeps_their_mean(kernel: str, kind: str) -> None:
    layout = Layout.of([20, 8])
    query, key, value = (x.detach() for x in qkv(layout, torch.float32))
    bias = relative(layout, dtype=torch.float32) if kind == "bias" else None
    scores = Scores(SCALE, 4 if kind == "window" else None, bias)
    torch.manual_seed(0)
    with torch.no_grad():
        whole = attend(query, key, value, layout, scores, kernel=kernel)
        drawn = [attend(query, key, value, layout, scores, 0.25, kernel) for _ in range(600)]
    assert difference(drawn[0], whole) > 0.1
    assert difference(torch.stack(drawn).mean(0), whole) <= 0.15


@pytest.mark.parametrize("kernel", ["runs", "grouped"])
@pytest.mark.parametrize("window", [None, 3])
def test_causal_attention_agrees(kernel: str, window: int | None) -> None:
    layout = Layout.of([4, 9, 9, 1, 30])
    parts, scores = qkv(layout), Scores(SCALE, window, causal=True)
    expected = attend(*parts, layout, scores, kernel="reference")
    found = attend(*parts, layout, scores, kernel=kernel)
    assert difference(found, expected) <= 1e-12
    rows = [part.triu(1).abs().sum() for part in maps(parts[0], parts[1], layout, scores)]
    assert float(torch.stack(rows).sum()) == 0
    given = torch.randn(expected.shape, dtype=expected.dtype)
    for mine, theirs in zip(
        torch.autograd.grad(found, parts, given),
        torch.autograd.grad(expected, parts, given),
        strict=True,
    ):
        assert difference(mine, theirs) <= 1e-11


@pytest.mark.skipif(not torch.cuda.is_available(), reason="varlen needs a CUDA device")
@pytest.mark.parametrize("width", [8, 26, 32, 64, 128])
@pytest.mark.parametrize("window", [None, 0, 3, 64, 1000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_device_agrees(dtype: torch.dtype, window: int | None, width: int) -> None:
    layout = Layout.of([5, 512, 1, 77, 77, 300, 2])
    random = torch.Generator().manual_seed(0)
    shape, scores = (layout.total, 3, width), Scores(width**-0.5, window)
    drawn = [torch.randn(shape, generator=random).to(dtype) for _ in range(4)]
    exact = [x.double().requires_grad_() for x in drawn[:3]]
    expected = attend(*exact, layout, scores, kernel="reference")
    wanted = [expected, *torch.autograd.grad(expected, exact, drawn[3].double())]
    placed = [x.cuda().requires_grad_() for x in drawn[:3]]
    assert choose(placed[0], scores, 0.0) == ("grouped" if width == 26 else "varlen")
    out = attend(*placed, layout.to("cuda"), scores)
    found = [out, *torch.autograd.grad(out, placed, drawn[3].cuda())]
    room = {torch.float16: 0.005, torch.bfloat16: 0.04}[dtype]
    for mine, theirs in zip(found, wanted, strict=True):
        scale = max(1.0, float(theirs.detach().abs().max()))
        assert difference(mine.cpu().double(), theirs) <= room * scale
