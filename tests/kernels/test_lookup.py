"""Rows of small tables."""

import torch
import torch.nn.functional as F

from bertsmith.kernels import small_table
from bertsmith.kernels.lookup import Lookup


def test_rows_and_gradients_are_torchs() -> None:
    torch.manual_seed(0)
    table = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([3, 0, 3, 8, 3, 1])  # some rows several times, some never
    mine, theirs = Lookup.apply(table, ids), F.embedding(ids, table)
    assert torch.equal(mine, theirs)
    push = torch.randn_like(theirs)
    found, expected = (torch.autograd.grad(x, table, push)[0] for x in (mine, theirs))
    torch.testing.assert_close(found, expected)


def test_no_ids_have_no_gradient() -> None:
    table = torch.randn(4, 3, requires_grad=True)
    rows = Lookup.apply(table, torch.zeros(0, dtype=torch.long))
    (found,) = torch.autograd.grad(rows.sum(), table)
    assert torch.equal(found, torch.zeros_like(table))


def test_off_a_gpu_it_is_torchs_own() -> None:
    table = torch.randn(4, 3, dtype=torch.bfloat16, requires_grad=True)
    rows = small_table(table, torch.tensor([1, 2]))
    assert rows.grad_fn is not None
    assert "Embedding" in rows.grad_fn.name()
