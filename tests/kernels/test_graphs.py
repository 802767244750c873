"""The pass over compiled graphs; on a CPU, Triton's interpreter runs the kernels."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.custom_graph_pass import get_hash_for_files
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.kernels import add_norm, fused, graphs, rowwise, up_gelu
from bertsmith.kernels.graphs import ADD, NORM, FuseSums

WIDTH = 16


class PostNorm(nn.Module):
    """Two residual sums with norms after them; `share` is the dropout probability."""

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


@pytest.mark.parametrize(("share", "rows"), [(0.0, 7), (0.2, 7), (0.0, 300)])
def test_sums_of_gradients_move_into_the_kernel(
    share: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowwise, "PROGRAMS", 2)  # each of them loops over several tiles
    torch.manual_seed(0)
    blocks = nn.Sequential(PostNorm(share), PostNorm(share))
    x, push = torch.randn(rows, WIDTH, requires_grad=True), torch.randn(rows, WIDTH)
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


@pytest.mark.parametrize("kind", ["broadcast", "dtype", "alpha", "number"])
def test_other_sums_stay(kind: str) -> None:
    graph = Graph()
    one, other = graph.placeholder("one"), graph.placeholder("other")
    one.meta["val"] = other.meta["val"] = torch.empty(3, 4)
    if kind == "broadcast":
        other.meta["val"] = torch.empty(4)
    if kind == "dtype":
        other.meta["val"] = torch.empty(3, 4, dtype=torch.float64)
    options = {"alpha": 2} if kind == "alpha" else {}
    total = graph.call_function(ADD, (one, 1.0 if kind == "number" else other), options)
    total.meta["val"] = torch.empty(3, 4)
    norm = graph.call_function(NORM, (total, None, None))
    FuseSums()(graph)
    assert norm.args == (total, None, None)


def test_graphs_are_stored_by_the_version_of_the_pass() -> None:
    assert FuseSums().uuid() == get_hash_for_files((graphs.__file__, fused.__file__))


def test_what_is_compiled_is_used_again() -> None:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    module = nn.Linear(3, 3)
    for _ in range(3):  # as in three pre-training runs of one process
        options: dict[str, Any] = {"post_grad_custom_pre_pass": FuseSums()}
        torch.compile(module.forward, options=options)(torch.ones(2, 3))
    assert counters["stats"]["unique_graphs"] == 1


def test_sums_of_symbolic_sizes() -> None:
    """Lengths that vary between batches become symbols."""
    traced = make_fx(lambda a, b: a + b, tracing_mode="symbolic")
    graph = traced(torch.ones(6, 4), torch.ones(6, 4)).graph
    (total,) = graph.find_nodes(op="call_function", target=ADD)
    assert graphs._is_plain_sum(total)
