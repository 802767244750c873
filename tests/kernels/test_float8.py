"""FP8 matrix multiplications; on a CPU, Triton's interpreter casts and torch multiplies."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Graph

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.errors import BertsmithError
from bertsmith.kernels import add_norm, fused, products, up_gelu
from bertsmith.kernels.float8 import (
    gelu_back_float8,
    gelu_float8,
    has_float8,
    to_float8,
    to_float8_and_sum,
)
from bertsmith.kernels.products import ATEN, OURS, MultiplyInFloat8

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, ROWS = 32, 64
# Triton's interpreter rounds some numbers to the neighbour; a GPU rounds as torch does.
EQUAL = 1.0 if DEVICE == "cuda" else 0.9


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


def share_equal(mine: Tensor, theirs: Tensor) -> float:
    return float((mine.float() == theirs.float()).float().mean())


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("shape", [(16, 48), (80, 16), (33, 7)])
def test_a_cast_is_torchs_and_comes_transposed(shape: tuple[int, int], gradient: bool) -> None:
    x, scale = drawn(*shape), torch.tensor(8.0, device=DEVICE)
    rows, columns = to_float8(x, scale, gradient)
    expected = (x * 8).to(torch.float8_e5m2 if gradient else torch.float8_e4m3fn)
    assert rows.dtype == expected.dtype
    assert share_equal(rows, expected) >= EQUAL
    assert torch.equal(columns.float(), rows.float().T)


def test_values_out_of_range_are_clamped() -> None:
    x = torch.full((16, 16), 1e4, device=DEVICE)
    x[0] *= -1
    rows, _ = to_float8(x, torch.tensor(8.0, device=DEVICE), False)
    assert set(rows.float().flatten().tolist()) == {448.0, -448.0}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_a_gelu_writes_what_a_cast_of_it_would(gated: bool, biased: bool) -> None:
    x = drawn(40, 64)
    bias = drawn(64) if biased else None
    grad, scale = drawn(40, 32 if gated else 64), torch.tensor(4.0, device=DEVICE)
    plain = to_float8(fused._gelu(x, bias, gated), scale, False)
    mine = gelu_float8(x, bias, gated, scale)
    rows, sums = fused._gelu_back(grad, x, bias, gated)
    *back, of_bias = gelu_back_float8(grad, x, bias, gated, scale)
    expected = to_float8(rows, scale, True)
    for one, other in zip((*mine, *back), (*plain, *expected), strict=True):
        assert one.shape == other.shape
        assert torch.equal(one.float(), other.float())
    torch.testing.assert_close(of_bias, sums)


def test_casts_sum_columns() -> None:
    x, scale = drawn(100, 48), torch.tensor(8.0, device=DEVICE)
    *pair, sums = to_float8_and_sum(x, scale)
    for mine, other in zip(pair, to_float8(x, scale, True), strict=True):
        assert torch.equal(mine.float(), other.float())
    torch.testing.assert_close(sums, x.sum(0))


class Block(nn.Module):
    """Two residual sums with norms after them, all of whose products suit FP8."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.output = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.0)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        _, x = add_norm(x, self.first(x).tanh(), self.output, self.dropout, self.norms[0])
        wide = up_gelu(x, self.up, nn.GELU())
        return add_norm(x, wide, self.down, self.dropout, self.norms[1])[1]


def compiled(call: Any, seen: list[Graph]) -> Any:
    """`call`, its joint graph changed by the pass."""

    def partition(module: Any, *rest: Any, **options: Any) -> Any:
        MultiplyInFloat8()(module.graph)
        module.graph.lint()
        module.recompile()
        seen.append(module.graph)
        return min_cut_rematerialization_partition(module, *rest, **options)

    def plain(module: Any, _: Any) -> Any:
        return make_boxed_func(module.forward)

    backend = aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=partition)
    return torch.compile(call, backend=backend, fullgraph=True)


def count(graph: Graph, target: Any) -> int:
    return len(graph.find_nodes(op="call_function", target=target))


@pytest.fixture
def kernels_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "fits_fused", lambda x: torch.compiler.is_compiling())
    monkeypatch.setattr(products, "ROWS", 32)


def gradients(call: Any, model: nn.Module, x: Tensor, push: Tensor) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    result = call(x)
    return [result.detach(), *torch.autograd.grad(result, [x, *model.parameters()], push)]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_products_of_forward_and_backward(size: float, kernels_everywhere: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(DEVICE)
    exact = gradients(model, model, drawn(ROWS, WIDTH), drawn(ROWS, WIDTH) * size)
    model, seen = model.bfloat16(), list[Graph]()
    half = (drawn(ROWS, WIDTH).bfloat16(), drawn(ROWS, WIDTH).bfloat16() * size)
    found = gradients(compiled(model, seen), model, *half)
    (graph,) = seen
    assert count(graph, ATEN._scaled_mm.default) == 24  # eight layers, three products each
    assert count(graph, ATEN.mm.default) == count(graph, ATEN.addmm.default) == 0
    for target in (OURS.gelu_float8.default, OURS.gelu_back_float8.default):
        assert count(graph, target) == 2
    # Each matrix is cast once: eight weights, six activations and six gradients outside of GELUs,
    # two of which are also summed for a bias.
    assert count(graph, OURS.to_float8.default) == 18
    assert count(graph, OURS.to_float8_and_sum.default) == 2
    for mine, other in zip(found, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        # Scales follow the size of gradients. (The interpreter's rounding doubles the errors.)
        assert float((mine.float() - other).norm() / other.norm()) < 0.3
        similarity = torch.cosine_similarity(mine.float().flatten(), other.flatten(), dim=0)
        assert float(similarity) > 0.96


def test_graphs_that_do_not_train_and_small_products_stay(kernels_everywhere: None) -> None:
    model, seen = Block().to(DEVICE).bfloat16(), list[Graph]()
    few = drawn(16, WIDTH).bfloat16()  # tokens
    gradients(compiled(model, seen), model, few, torch.ones_like(few))
    assert count(seen[0], ATEN._scaled_mm.default) == 0
    odd = drawn(ROWS + 1, WIDTH).bfloat16()
    gradients(compiled(model, seen), model, odd, torch.ones_like(odd))
    assert count(seen[1], ATEN._scaled_mm.default) == 0
    graph = Graph()
    graph.output(graph.call_function(ATEN.mm.default, (graph.placeholder("a"),) * 2))
    MultiplyInFloat8()(graph)  # no gradient enters
    assert count(graph, ATEN.mm.default) == 1


class Placed(nn.Module):
    """A layer after a table that is laid out by a product with ones and zeros, as in DeBERTa."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Parameter(drawn(16, WIDTH)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.arange(ROWS, device=x.device)[:, None] // 4 == torch.arange(16).to(x.device)
        return self.layer(x + chosen.to(x.dtype) @ self.table)


def test_products_with_tables_stay(kernels_everywhere: None) -> None:
    """Gradients of a table are no activations: with the scale of those, small ones are lost."""
    model, seen = Placed().to(DEVICE), list[Graph]()
    push = drawn(ROWS, WIDTH) * 1e-6
    exact = gradients(model, model, drawn(ROWS, WIDTH), push)[2]
    model = model.bfloat16()
    half = (drawn(ROWS, WIDTH).bfloat16(), push.bfloat16())
    found = gradients(compiled(model, seen), model, *half)[2]
    assert count(seen[0], ATEN._scaled_mm.default) == 3
    assert count(seen[0], ATEN.mm.default) == 2  # forward and backward of the table
    assert float((found.float() - exact).norm() / exact.norm()) < 0.3


def test_equal_passes_share_compiled_graphs() -> None:
    assert MultiplyInFloat8() == MultiplyInFloat8()
    assert len({MultiplyInFloat8(), MultiplyInFloat8()}) == 1


def test_only_new_gpus_have_it() -> None:
    assert not has_float8(torch.device("cpu"))


def test_layers_of_odd_sizes_are_refused() -> None:
    from bertsmith.checkpoint import create
    from bertsmith.train.compiling import compile_rows

    settings = {"vocab_size": 64, "hidden_size": 40, "num_attention_heads": 2}
    settings |= {"intermediate_size": 72, "num_hidden_layers": 1}
    model = create({"model_type": "bert", **settings}).model
    with pytest.raises(BertsmithError, match="multiples of 16, not 40 x 120"):
        compile_rows(model, float8=True)
