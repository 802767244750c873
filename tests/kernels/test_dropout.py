"""Dropout by bits: the shares, the scale, the way back."""

import pytest
import torch
from torch import nn

from bertsmith.kernels import Dropout


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_kept(share: float) -> None:
    torch.manual_seed(0)
    found = Dropout(share)(torch.ones(400_003))
    lanes = torch.stack([found[lane:400_000:4] for lane in range(4)])  # drawn by the same number
    assert (lanes == 0).double().mean(1).tolist() == pytest.approx([share] * 4, abs=0.006)
    assert found.double().mean().item() == pytest.approx(1.0, abs=0.02)
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - share)], rel=1e-4)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    gone = (Dropout(0.5)(torch.ones(400_000)) == 0).double()
    for apart in (1, 2, 3, 4):
        both = (gone[apart:] * gone[:-apart]).mean().item()
        assert both == pytest.approx(0.25, abs=0.005)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_dropped_gets_no_gradient(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 9, dtype=dtype).requires_grad_()
    found = Dropout(0.3)(x)
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert found.dtype == grad.dtype == dtype
    assert torch.equal(grad == 0, found == 0)
    torch.testing.assert_close(grad * x.detach(), found.detach())


def test_the_same_seed_draws_the_same() -> None:
    x = torch.randn(50, 3)
    torch.manual_seed(1)
    first = Dropout(0.1)(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.1)(x), first)
    assert not torch.equal(Dropout(0.1)(x), first)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_and_nothing_are_torchs(share: float) -> None:
    x = torch.randn(5, 3)
    assert torch.equal(Dropout(share)(x), nn.Dropout(share)(x))
    assert torch.equal(Dropout(0.5).eval()(x), x)


def test_a_device_that_is_neither_cpu_nor_cuda_has_torchs_own() -> None:
    x = torch.ones(5, 7, device="meta")  # as a Mac's GPU, it cannot take what a CPU draws
    assert Dropout(0.5)(x).device.type == "meta"
