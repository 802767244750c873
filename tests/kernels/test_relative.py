"""Attention with relative positions: Triton's interpreter runs the very programs on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.batch import Layout
from bertsmith.kernels import bands, distance_rows, relative, relative_attention
from bertsmith.kernels.bands import Tiling
from bertsmith.kernels.relative import _relative
from bertsmith.model.attend import RelativeBias, Scores, attend

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for CPUs")
LENGTHS = [7, 16, 1, 30, 12]
SCALE = 0.25


def parts(total: int, heads: int = 2, width: int = 16) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(total, 3, heads, width, requires_grad=True)


def bias_of(
    longest: int, kind: str = "both", buckets: int = 0, span: int = 24, heads: int = 2
) -> RelativeBias:
    torch.manual_seed(1)
    keys, queries = (torch.randn(2 * span, heads, 16, requires_grad=True) for _ in range(2))
    rows = distance_rows(longest, span, buckets, 64)
    return RelativeBias(
        None if kind == "queries" else keys, None if kind == "keys" else queries, rows
    )


def tables_of(bias: RelativeBias) -> list[Tensor]:
    return [table for table in (bias.keys, bias.queries) if table is not None]


def results(
    joint: Tensor, layout: Layout, scores: Scores, kernel: str, as_one: bool = False
) -> list[Tensor]:
    """The output, and the gradients of the rows and of the tables."""
    assert scores.bias is not None
    out = attend(*joint.unbind(1), layout, scores, kernel=kernel, joint=joint if as_one else None)
    push = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out)
    inputs = [joint, *tables_of(scores.bias)]
    return [out.detach(), *torch.autograd.grad(out, inputs, push)]


def small(monkeypatch: pytest.MonkeyPatch, queries: int = 16, keys: int = 16) -> None:
    """Tiles that are shorter than a sequence."""
    monkeypatch.setattr(bands, "tiling", lambda *_, **__: Tiling(queries, keys, 4))


def as_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute short sequences in float32 as those in half precision: with `turned`."""
    monkeypatch.setattr(relative, "HALVES", (torch.float16, torch.float32))


@pytest.mark.usefixtures("unchecked_integers")
@pytest.mark.parametrize("kind", ["both", "keys", "queries"])
@pytest.mark.parametrize("lengths", [LENGTHS, [16, 16], [1]])
@pytest.mark.parametrize("turned", [True, False])
def test_values_and_gradients_are_the_references(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], kind: str, turned: bool
) -> None:
    if turned:
        as_half(monkeypatch)
    else:
        small(monkeypatch)
    layout = Layout.of(lengths)
    joint = parts(layout.total)
    scores = Scores(SCALE, bias=bias_of(layout.longest, kind))
    expected = results(joint, layout, scores, "reference")
    for as_one in (False, True):
        found = results(joint, layout, scores, "relative", as_one)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_rows_of_128_are_turned_by_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    as_half(monkeypatch)
    layout = Layout.of([128, 70])
    joint = parts(layout.total, heads=1)
    scores = Scores(SCALE / 4, bias=bias_of(128, heads=1))
    expected = results(joint, layout, scores, "reference")
    for mine, theirs in zip(results(joint, layout, scores, "relative"), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(("window", "causal"), [(3, False), (None, True), (4, True)])
def test_windows_and_causal_attention(
    monkeypatch: pytest.MonkeyPatch, window: int | None, causal: bool, turned: bool
) -> None:
    (as_half if turned else small)(monkeypatch)
    layout = Layout.of([7, 20])
    joint, scores = parts(layout.total), Scores(SCALE, window, bias_of(20), causal)
    expected = results(joint, layout, scores, "reference")
    for mine, theirs in zip(results(joint, layout, scores, "relative"), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unchecked_integers")
@pytest.mark.parametrize(("buckets", "span"), [(8, 8), (256, 256), (0, 12), (0, 300)])
def test_distances_may_share_a_row(buckets: int, span: int) -> None:
    """Beyond 128 tokens, with logarithmic buckets or with a furthest distance."""
    layout = Layout.of([130, 3])
    joint = parts(layout.total, heads=1)
    scores = Scores(SCALE / 4, bias=bias_of(130, "both", buckets, span, heads=1))
    expected = results(joint, layout, scores, "reference")
    for mine, theirs in zip(results(joint, layout, scores, "relative"), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("tiles", [(16, 32), (32, 16)])
def test_tiles_need_not_be_square(monkeypatch: pytest.MonkeyPatch, tiles: tuple[int, int]) -> None:
    small(monkeypatch, *tiles)
    layout = Layout.of([33, 9])
    joint, scores = parts(layout.total), Scores(SCALE, bias=bias_of(33))
    expected = results(joint, layout, scores, "reference")
    for mine, theirs in zip(results(joint, layout, scores, "relative"), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unchecked_integers")
@pytest.mark.parametrize("lengths", [[5, 16, 1], [20, 2], [100, 3], [130, 3]])
def test_half_precision(lengths: list[int]) -> None:
    """No further from float32 than the reference in the same precision, within a factor of two.

    Only float16: the interpreter multiplies the bits of bfloat16.
    """
    layout = Layout.of(lengths)
    joint, bias = parts(layout.total), bias_of(layout.longest)
    exact = results(joint, layout, Scores(SCALE, bias=bias), "reference")
    tables = [table.detach().half().requires_grad_() for table in tables_of(bias)]
    rounded = joint.detach().half().requires_grad_()
    scores = Scores(SCALE, bias=RelativeBias(*tables, bias.rows))
    near = results(rounded, layout, scores, "reference")
    for mine, theirs, true in zip(
        results(rounded, layout, scores, "relative"), near, exact, strict=True
    ):
        assert mine.dtype == torch.float16
        limit = 2 * float((theirs.float() - true).norm()) + 1e-3 * float(true.norm())
        assert float((mine.float() - true).norm()) <= limit


@pytest.mark.usefixtures("unchecked_integers")
def test_heads_are_computed_in_turn_if_there_are_many_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = Layout.of([9, 5])
    joint, scores = parts(layout.total, heads=3), Scores(SCALE, bias=bias_of(9, heads=3))
    expected = results(joint, layout, scores, "relative")
    monkeypatch.setattr(relative, "ELEMENTS", 2 * 14 * 32)
    found = results(joint, layout, scores, "relative")
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.usefixtures("unchecked_integers")
def test_a_bound_on_lengths_changes_nothing() -> None:
    layout, loose = Layout.of(LENGTHS), Layout.of(LENGTHS, most=64)
    joint = parts(layout.total)
    exact = results(joint, layout, Scores(SCALE, bias=bias_of(30)), "relative")
    bound = results(joint, loose, Scores(SCALE, bias=bias_of(64)), "relative")
    for mine, theirs in zip(bound, exact, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_empty_sequences_and_batches() -> None:
    layout, bias = Layout.of([5, 9]), bias_of(9)
    joint = parts(14).detach()
    how = (9, SCALE, None, False, 0.0, bias.keys, bias.queries, bias.rows)
    expected = relative_attention([joint], layout.boundaries, *how)
    ends = torch.tensor([0, 5, 5, 14, 14], dtype=torch.int32)
    assert torch.equal(relative_attention([joint], ends, *how), expected)
    none = parts(0)
    out = relative_attention([none], torch.zeros(2, dtype=torch.int32), *how)
    assert out.shape == (0, 2, 16)
    (grad,) = torch.autograd.grad(out.sum(), bias.keys)  # type: ignore[arg-type]
    assert float(grad.abs().max()) == 0


def test_rows_may_lie_apart_and_be_transposed() -> None:
    layout, bias = Layout.of([5, 9]), bias_of(9)
    query, key, value = (x.detach() for x in parts(14).unbind(1))
    scattered = query.transpose(1, 2).contiguous().transpose(1, 2)  # heads are not side by side
    scores = Scores(SCALE, bias=bias)
    expected = attend(query, key, value, layout, scores, kernel="relative")
    assert torch.equal(attend(scattered, key, value, layout, scores, kernel="relative"), expected)


def dropping(layout: Layout, tables: list[Tensor], seed: int) -> Callable[..., Tensor]:
    drawn = torch.tensor([seed], dtype=torch.int32)
    how = (3, layout.longest, SCALE, -1, False, 0.3)

    def run(*rows: Tensor) -> Tensor:
        return _relative(list(rows), tables, layout.boundaries, drawn, *how)[0]

    return run


@pytest.mark.usefixtures("unchecked_integers")
@pytest.mark.parametrize("lengths", [[16, 11], [20, 5]])
@pytest.mark.parametrize("turned", [True, False])
def test_dropout_is_differentiated_as_it_was_drawn(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], turned: bool
) -> None:
    (as_half if turned else small)(monkeypatch)
    layout = Layout.of(lengths)
    side = 16 if layout.longest == 16 else 32
    tables = [torch.randn(2 * side, 2, 16) for _ in range(2)]
    run = dropping(layout, tables, 3)
    inputs = [x.detach().requires_grad_() for x in parts(layout.total).unbind(1)]
    push = torch.randn(layout.total, 2, 16)
    grads = torch.autograd.grad((run(*inputs) * push).sum(), inputs)
    for place, grad in enumerate(grads):
        way = torch.randn_like(grad)

        def along(step: float, place: int = place, way: Tensor = way) -> float:
            moved = [x + step * way if n == place else x for n, x in enumerate(inputs)]
            return (run(*moved) * push).double().sum().item()

        slope = (along(1e-2) - along(-1e-2)) / 2e-2
        assert slope == pytest.approx(float((grad * way).sum()), rel=5e-3, abs=5e-3)


@pytest.mark.usefixtures("unchecked_integers")
def test_dropout_thins_the_weights_and_keeps_their_mean() -> None:
    layout = Layout.of([16, 11])
    tables = [torch.randn(32, 2, 16) for _ in range(2)]
    rows = [x.detach() for x in parts(layout.total).unbind(1)]
    none = torch.zeros(1, dtype=torch.int32)
    whole = _relative(rows, tables, layout.boundaries, none, 3, 16, SCALE, -1, False, 0.0)[0]
    drawn = [dropping(layout, tables, seed)(*rows) for seed in range(40)]
    assert float((drawn[0] - drawn[1]).abs().max()) > 0.1
    assert float((torch.stack(drawn).mean(0) - whole).abs().mean()) < 0.1


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("kind", [1, 3])
def test_the_operators_are_what_torch_expects_of_operators(together: bool, kind: int) -> None:
    layout, joint = Layout.of([5, 9]), parts(14)
    rows = [joint] if together else list(joint.unbind(1))
    tables = [torch.randn(32, 2, 16, requires_grad=True) for _ in range(1 + (kind == 3))]
    seed = torch.zeros(1, dtype=torch.int32)
    torch.library.opcheck(
        torch.ops.bertsmith.relative_attention.default,
        (rows, tables, layout.boundaries, seed, kind, 9, SCALE, -1, False, 0.0),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_without_vectors_it_is_plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, joint = Layout.of([5, 9]), parts(14).detach()
    monkeypatch.setattr(relative, "ragged_attention", lambda rows, *_: rows[0] + rows[2])
    scores = Scores(SCALE, bias=RelativeBias(None, None, bias_of(9).rows))
    for as_one in (None, joint):
        found = attend(*joint.unbind(1), layout, scores, kernel="relative", joint=as_one)
        assert torch.equal(found, joint[:, 0] + joint[:, 2])


def test_only_this_kernel_has_relative_positions() -> None:
    layout = Layout.of([3])
    rows = parts(3).unbind(1)
    with pytest.raises(ValueError, match="computes a relative bias"):
        attend(*rows, layout, Scores(SCALE, bias=bias_of(3)), kernel="short")
    with pytest.raises(ValueError, match="it needs one"):
        attend(*rows, layout, Scores(SCALE), kernel="relative")
