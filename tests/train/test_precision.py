"""Half precision in between, whole weights at both ends."""

import pytest
import torch
from torch import nn

from bertsmith.train.precision import TOGETHER, Halved


def network(layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(layers)))


@pytest.mark.parametrize("layers", [1, TOGETHER])
def test_it_is_a_module_whose_weights_were_cast(layers: int) -> None:
    whole = network(layers)
    x = torch.randn(5, 6, dtype=torch.bfloat16)
    found = Halved(whole)(x)
    cast = network(layers).bfloat16()
    expected = cast(x)
    assert torch.equal(found, expected)
    assert found.dtype == torch.bfloat16
    found.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(whole.parameters(), cast.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert mine.grad.dtype == torch.float32
        assert torch.equal(mine.grad, theirs.grad.float())


def test_gradients_of_several_passes_add_up_in_float32() -> None:
    whole, other = network(1), network(1)
    parts = [torch.randn(5, 6, dtype=torch.bfloat16) for _ in range(2)]
    halved = Halved(whole)
    for x in parts:
        halved(x).sum().backward()
    alone = []
    for x in parts:
        other.zero_grad()
        Halved(other)(x).sum().backward()
        alone.append(other[0].weight.grad.clone())  # type: ignore[union-attr]
    assert torch.equal(whole[0].weight.grad, alone[0] + alone[1])


def test_what_takes_no_part_gets_no_gradient() -> None:
    whole = nn.ModuleDict({"used": nn.Linear(3, 3), "spare": nn.Linear(3, 3)})
    whole.forward = lambda x: whole["used"](x)  # type: ignore[method-assign]
    Halved(whole)(torch.randn(2, 3, dtype=torch.bfloat16)).sum().backward()
    assert whole["used"].weight.grad is not None
    assert whole["spare"].weight.grad is None


def test_halves_stay_where_they_are_and_follow_the_weights() -> None:
    halved, x = Halved(network(1)), torch.randn(5, 6, dtype=torch.bfloat16)
    before = halved(x)
    places = {name: half.data_ptr() for name, half in halved.halves.items()}
    with torch.no_grad():
        halved.inner[0].weight.add_(1.0)
    after = halved(x)
    assert not torch.equal(before, after)
    assert {name: half.data_ptr() for name, half in halved.halves.items()} == places


def test_of_tables_only_what_is_read_is_cast() -> None:
    table = nn.Embedding(50, 6)
    halved = Halved(table, [table])
    found = halved(torch.tensor([3, 3, 7]))
    assert torch.equal(found, table.weight[[3, 3, 7]].bfloat16())
    assert halved.halves == {}
    found.sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad[3].tolist() == [2.0] * 6
