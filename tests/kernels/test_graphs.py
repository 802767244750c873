"""The pass over compiled graphs; on a CPU, Triton's interpreter runs the kernels."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.fx import Graph, GraphModule

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.kernels import add_norm, fused, up_gelu
from bertsmith.kernels.graphs import ADD, NORM, FuseSums

WIDTH = 16


class PostNorm(nn.Module):
    """Two residual sums with norms after them; `share` of the rows is dropped."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.first, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down, self.dropout = nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(share)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        _, x = add_norm(x, x.tanh(), self.first, self.dropout, self.norms[0])
        wide = up_gelu(x, self.up, nn.GELU())
        return add_norm(x, wide, self.down, self.dropout, self.norms[1])[1]


@pytest.fixture(autouse=True)
def kernels_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "fits_fused", lambda x: torch.compiler.is_compiling())


def compiled(call: Any, change: Any) -> Any:
    """`call`, its backward graph changed."""

    def backward(module: GraphModule, _: Any) -> Any:
        change(module.graph)
        module.graph.lint()
        module.recompile()
        return make_boxed_func(module.forward)

    backend = aot_autograd(
        fw_compiler=lambda module, _: make_boxed_func(module.forward), bw_compiler=backward
    )
    return torch.compile(call, backend=backend, fullgraph=True)


def counts(graph: Graph) -> tuple[int, int]:
    """Sums, and norms that read two gradients."""
    sums = graph.find_nodes(op="call_function", target=ADD)
    norms = graph.find_nodes(op="call_function", target=NORM)
    return len(sums), sum(norm.args[1] is not None for norm in norms)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_sums_of_gradients_move_into_the_kernel(share: float) -> None:
    torch.manual_seed(0)
    blocks = nn.Sequential(PostNorm(share), PostNorm(share))
    x, push = torch.randn(7, WIDTH, requires_grad=True), torch.randn(7, WIDTH)
    seen = list[tuple[int, int]]()

    def change(graph: Graph) -> None:
        seen.append(counts(graph))
        FuseSums()(graph)
        seen.append(counts(graph))

    results = []
    for how in (lambda graph: None, change):
        torch._dynamo.reset()
        torch.manual_seed(1)  # the same dropout
        out = compiled(blocks, how)(x)
        results.append(torch.autograd.grad(out, [x, *blocks.parameters()], push))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    assert seen == [(4, 0), (1, 3)]  # the remaining sum is the gradient of x


def test_a_sum_that_something_else_reads_stays() -> None:
    torch.manual_seed(0)
    block = PostNorm(0.0)
    x = torch.randn(5, WIDTH, requires_grad=True)

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        _, y = add_norm(x, x, block.first, block.dropout, block.norms[0])
        return y, y.tanh() + y.sin()

    def change(graph: Graph) -> None:
        (norm,) = graph.find_nodes(op="call_function", target=NORM)
        total = norm.args[0]
        assert total.target is ADD
        output = next(node for node in graph.nodes if node.op == "output")
        output.args = ((*output.args[0][:-1], total),)  # a second reader
        FuseSums()(graph)
        assert norm.args[:2] == (total, None)

    torch.autograd.grad(sum(map(torch.sum, compiled(call, change)(x))), x)  # type: ignore[arg-type]


def test_the_pass_names_its_version() -> None:
    assert FuseSums().uuid() == FuseSums().uuid()
