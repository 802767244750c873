"""bfloat16 in between, float32 parameters at both ends."""

import pytest
import torch
from torch import nn

from bertsmith.train.precision import GROUP, MixedPrecision, Precision, supported

HALF = Precision(torch.bfloat16)


def network(layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(layers)))


@pytest.mark.parametrize("layers", [1, GROUP])
def test_it_is_a_module_whose_weights_were_cast(layers: int) -> None:
    whole = network(layers)
    x = torch.randn(5, 6, dtype=torch.bfloat16)
    output = HALF.wrap(whole)(x)
    cast = network(layers).bfloat16()
    expected = cast(x)
    assert torch.equal(output, expected)
    assert output.dtype == torch.bfloat16
    output.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(whole.parameters(), cast.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert mine.grad.dtype == torch.float32
        assert torch.equal(mine.grad, theirs.grad.float())


def test_gradients_of_several_passes_add_up_in_float32() -> None:
    whole, other = network(1), network(1)
    batches = [torch.randn(5, 6, dtype=torch.bfloat16) for _ in range(2)]
    half = HALF.wrap(whole)
    for x in batches:
        half(x).sum().backward()
    alone = []
    for x in batches:
        other.zero_grad()
        HALF.wrap(other)(x).sum().backward()
        alone.append(other[0].weight.grad.clone())  # type: ignore[union-attr]
    assert torch.equal(whole[0].weight.grad, alone[0] + alone[1])


def test_what_takes_no_part_gets_no_gradient() -> None:
    whole = nn.ModuleDict({"used": nn.Linear(3, 3), "spare": nn.Linear(3, 3)})
    whole.forward = lambda x: whole["used"](x)  # type: ignore[method-assign]
    HALF.wrap(whole)(torch.randn(2, 3, dtype=torch.bfloat16)).sum().backward()
    assert whole["used"].weight.grad is not None
    assert whole["spare"].weight.grad is None


def test_casts_stay_where_they_are_and_follow_the_weights() -> None:
    half, x = MixedPrecision(network(1), HALF), torch.randn(5, 6, dtype=torch.bfloat16)
    before = half(x)
    places = {name: cast.data_ptr() for name, cast in half.casts.items()}
    with torch.no_grad():
        half.inner[0].weight.add_(1.0)
    after = half(x)
    assert not torch.equal(before, after)
    assert {name: cast.data_ptr() for name, cast in half.casts.items()} == places


def test_of_tables_only_what_is_read_is_cast() -> None:
    table = nn.Embedding(50, 6)
    half = MixedPrecision(table, HALF, [table])
    rows = half(torch.tensor([3, 3, 7]))
    assert torch.equal(rows, table.weight[[3, 3, 7]].bfloat16())
    assert half.casts == {}
    rows.sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad[3].tolist() == [2.0] * 6


def test_a_tied_table_is_exact_as_a_table_and_cast_as_an_output() -> None:
    """Rows are added up in float32; the same parameter multiplies in bfloat16."""
    exact = Precision(torch.bfloat16, exact_sums=True)
    table, output = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    output.weight = table.weight
    tied = nn.Sequential(table, output)
    half = MixedPrecision(tied, exact)
    logits = half(torch.tensor([1, 2, 2]))
    assert logits.dtype == torch.bfloat16
    assert half.casts.keys() == {"1.weight"}
    logits.float().square().sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.dtype == torch.float32
    assert not table._forward_hooks
    assert not table._forward_pre_hooks


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 0), "float32"), ((7, 5), "float32"), ((8, 0), "bfloat16")]
)
def test_gpus_before_ampere_compute_in_float32(
    capability: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert supported("bfloat16", torch.device("cuda")) == expected
    assert supported("float32", torch.device("cuda")) == "float32"
