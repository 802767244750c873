"""Attention in short sequences: Triton's interpreter runs the very programs on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.batch import Layout
from bertsmith.kernels import short_attention
from bertsmith.kernels.short import _short
from bertsmith.model.attend import Scores, attend

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for CPUs")
LENGTHS = [7, 16, 1, 30, 12]
SCALE = 0.25


def parts(layout: Layout, heads: int = 2, width: int = 16) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(layout.total, 3, heads, width, requires_grad=True)


@pytest.mark.parametrize(("window", "causal"), [(None, False), (3, False), (None, True), (4, True)])
@pytest.mark.parametrize("lengths", [LENGTHS, [16, 16], [1]])
def test_values_and_gradients_are_the_references(
    lengths: list[int], window: int | None, causal: bool
) -> None:
    layout = Layout.of(lengths)
    joint = parts(layout)
    scores = Scores(SCALE, window, None, causal)
    expected = attend(*joint.unbind(1), layout, scores, kernel="reference")
    given = torch.randn_like(expected)
    (theirs,) = torch.autograd.grad(expected, joint, given)
    for as_one in (None, joint):
        found = attend(*joint.unbind(1), layout, scores, kernel="short", joint=as_one)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        (mine,) = torch.autograd.grad(found, joint, given)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_rows_may_lie_apart_and_be_transposed() -> None:
    layout = Layout.of(LENGTHS)
    query, key, value = (x.detach() for x in parts(layout).unbind(1))
    scattered = query.transpose(1, 2).contiguous().transpose(1, 2)  # heads are not side by side
    how = (layout.boundaries, layout.longest, SCALE)
    expected = short_attention([query, key, value], *how)
    assert torch.equal(short_attention([scattered, key, value], *how), expected)


def test_a_bound_on_lengths_changes_nothing() -> None:
    layout = Layout.of(LENGTHS)
    query, key, value = parts(layout).detach().unbind(1)
    exact = short_attention([query, key, value], layout.boundaries, layout.longest, SCALE)
    loose = short_attention([query, key, value], layout.boundaries, 128, SCALE)
    torch.testing.assert_close(exact, loose, rtol=1e-6, atol=1e-6)


def test_empty_sequences_are_passed_over() -> None:
    layout = Layout.of([5, 9])
    query, key, value = parts(layout).detach().unbind(1)
    expected = short_attention([query, key, value], layout.boundaries, 9, SCALE)
    ends = torch.tensor([0, 5, 5, 14, 14], dtype=torch.int32)
    assert torch.equal(short_attention([query, key, value], ends, 9, SCALE), expected)


def dropping(seed: int) -> Callable[..., Tensor]:
    layout = Layout.of([16, 11, 16])
    drawn = torch.tensor([seed], dtype=torch.int32)

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _short([query, key, value], layout.boundaries, drawn, 16, SCALE, -1, False, 0.3)[0]

    return run


def test_dropout_is_differentiated_as_it_was_drawn() -> None:
    run, joint = dropping(3), parts(Layout.of([16, 11, 16]))
    inputs = [x.detach().requires_grad_() for x in joint.unbind(1)]
    given = torch.randn(43, 2, 16)
    grads = torch.autograd.grad((run(*inputs) * given).sum(), inputs)
    for place, grad in enumerate(grads):
        way = torch.randn_like(grad)

        def along(step: float, place: int = place, way: Tensor = way) -> float:
            moved = [x + step * way if n == place else x for n, x in enumerate(inputs)]
            return (run(*moved) * given).double().sum().item()

        slope = (along(1e-2) - along(-1e-2)) / 2e-2
        assert slope == pytest.approx(float((grad * way).sum()), rel=2e-3, abs=2e-3)


def test_dropout_thins_the_weights_and_keeps_their_mean() -> None:
    layout = Layout.of([16, 11, 16])
    query, key, value = parts(layout).detach().unbind(1)
    whole = short_attention([query, key, value], layout.boundaries, 16, SCALE)
    drawn = [dropping(seed)(query, key, value) for seed in range(40)]
    assert float((drawn[0] - drawn[1]).abs().max()) > 0.1
    assert float((torch.stack(drawn).mean(0) - whole).abs().mean()) < 0.1


@pytest.mark.parametrize("together", [True, False])
def test_the_operators_are_what_torch_expects_of_operators(together: bool) -> None:
    layout = Layout.of([5, 9])
    joint = parts(layout)
    rows = [joint] if together else list(joint.unbind(1))
    seed = torch.zeros(1, dtype=torch.int32)
    torch.library.opcheck(
        torch.ops.bertsmith.short_attention.default,
        (rows, layout.boundaries, seed, 9, SCALE, -1, False, 0.0),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
