"""Fused residual sums, norms and GELUs: on a CPU, Triton's interpreter runs the same programs."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.kernels import add_norm, fits_entropy, fused, rowwise, up_gelu
from bertsmith.kernels.fused import _norm as norm_operator
from bertsmith.kernels.fused import bias_gelu, fits_fused, sum_and_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS_AND_WIDTHS = [(1, 16), (37, 24), (9, 320)]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=random).to(DEVICE).requires_grad_()


def agree(mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...], inputs: list[Tensor]) -> None:
    """Values and all gradients."""
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    given = [torch.randn_like(x) for x in mine]
    found, expected = (
        torch.autograd.grad(x, inputs, given, retain_graph=True) for x in (mine, theirs)
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "width"), ROWS_AND_WIDTHS)
def test_sums_and_norms_are_torchs(rows: int, width: int, biased: bool) -> None:
    x, update = drawn(rows, width), drawn(rows, width, seed=1)
    bias, weight, shift = (drawn(width, seed=seed) for seed in range(3))
    inputs = [x, update, weight] + [bias, shift] * biased
    total = x + update + (bias if biased else 0.0)
    theirs = F.layer_norm(total, (width,), weight, shift if biased else None, 1e-5)
    options = (bias if biased else None, weight, shift if biased else None, 1e-5)
    summed, mine = sum_and_norm(x, update, *options)
    agree((summed, mine), (total, theirs), inputs)
    agree((mine,), (theirs,), inputs)  # where nobody else needs the sum


def test_dropout_is_differentiated_as_it_was_drawn() -> None:
    x, update, weight, bias = drawn(40, 32), drawn(40, 32, seed=1), drawn(32), drawn(32, seed=1)
    seed = torch.tensor([3], dtype=torch.int32, device=DEVICE)

    def run(update: Tensor, bias: Tensor) -> Tensor:
        return norm_operator(x, update, bias, weight, None, seed, 1e-5, 0.25)[0]

    kept = (run(update, bias) - x).abs() > 1e-6
    assert 0.15 < 1 - float(kept.float().mean()) < 0.35
    expected = x + torch.where(kept, (update + bias) / 0.75, 0.0)
    normed = norm_operator(x, update, bias, weight, None, seed, 1e-5, 0.25)[1]
    theirs = F.layer_norm(expected, (32,), weight, None, 1e-5)
    agree((normed,), (theirs,), [x, update, bias, weight])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("rows", "width"), ROWS_AND_WIDTHS)
def test_gelus_are_torchs(rows: int, width: int, gated: bool, biased: bool) -> None:
    x, bias = drawn(rows, width), drawn(width)
    scaled = 3 * x + (bias if biased else 0.0)
    bent, *gate = scaled.chunk(2, dim=-1) if gated else (scaled,)
    theirs = F.gelu(bent) * (gate[0] if gated else 1.0)
    mine = bias_gelu(3 * x, bias if biased else None, gated)
    agree((mine,), (theirs,), [x, bias] if biased else [x])


@pytest.mark.parametrize("rows", [1, 37, 700])  # more than one tile of rows
def test_column_sums_are_torchs(rows: int) -> None:
    x = drawn(rows, 70).detach()
    torch.testing.assert_close(rowwise.summed(x, torch.float32), x.sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("residual", [False, True])
def test_programs_loop_over_rows(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "PROGRAMS", 2)
    x, update, weight = drawn(300, 24), drawn(300, 24, seed=1), drawn(24)
    total = x + update
    theirs = (total, F.layer_norm(total, (24,), weight, None, 1e-5))
    mine = sum_and_norm(x, update, None, weight, None, 1e-5)
    first = 0 if residual else 1
    agree(mine[first:], theirs[first:], [x, update, weight])


def test_gelu_is_exact_to_the_ends() -> None:
    x = torch.tensor([[-1e4, -20.0, -6.0, -1e-6, 0.0, 1e-6, 6.0, 1e4]], device=DEVICE)
    torch.testing.assert_close(bias_gelu(x, None), F.gelu(x), rtol=1e-6, atol=1e-6)


def test_elsewhere_the_modules_are_called_as_they_are() -> None:
    torch.manual_seed(0)
    x, linear, norm = torch.randn(5, 8), nn.Linear(8, 8), nn.LayerNorm(8)
    for device in ("cpu", "meta"):
        assert not fits_fused(x.to(device, torch.bfloat16))
        assert not fits_entropy(torch.empty(3, 5000, device=device, dtype=torch.bfloat16))
    total, normed = add_norm(x, x, linear, nn.Dropout(0.0), norm)
    assert torch.equal(total, x + linear(x))
    assert torch.equal(normed, norm(total))
    assert torch.equal(up_gelu(x, linear, nn.Tanh()), linear(x).tanh())
    bent, gate = linear(x).chunk(2, dim=-1)
    assert torch.equal(up_gelu(x, linear, nn.GELU(), gated=True), F.gelu(bent) * gate)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_operators_are_what_torch_expects_of_operators(share: float) -> None:
    x, update, weight, bias = drawn(6, 8), drawn(6, 8, seed=1), drawn(8), drawn(8, seed=1)
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    given = (x, update, bias, weight, None, seed, 1e-5, share)
    torch.library.opcheck(torch.ops.bertsmith.norm.default, given, test_utils=checks)
    torch.library.opcheck(torch.ops.bertsmith.gelu.default, (x, bias, False), test_utils=checks)


def test_compiled_blocks_use_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph with the kernels in it gives what the modules give."""
    monkeypatch.setattr(fused, "fits_fused", lambda x: torch.compiler.is_compiling())
    torch.manual_seed(0)
    up, down, norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
    parameters = [p for module in (up, down, norm) for p in module.parameters()]

    def block(x: Tensor) -> Tensor:
        inner = up_gelu(x, up, nn.GELU())
        return sum(add_norm(x, inner, down, nn.Dropout(0.0), norm))  # type: ignore[return-value]

    x = torch.randn(5, 8)
    found, expected = torch.compile(block, backend="aot_eager", fullgraph=True)(x), block(x)
    agree((found,), (expected,), parameters)
