"""A pass over compiled graphs that multiplies by weights in FP8, forward and backward.

The model does not know of it: where its graph multiplies matrices, the pass inserts casts and
FP8 multiplications. Casts are part of the kernel before them where that is a GELU of `fused`, and
also sum gradients where a bias needs it.
"""

import math
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from bertsmith.kernels import float8, fused, rowwise  # registers the operators

ATEN, OURS = torch.ops.aten, torch.ops.bertsmith
CONVERT = torch.ops.prims.convert_element_type.default
TURNS = (ATEN.permute.default, ATEN.t.default)  # of matrices
COPIES = (ATEN.clone.default, ATEN.alias.default, ATEN.detach.default)
FLOAT8: dict[Any, Any] = {  # kernels, and those that write FP8 instead
    OURS.gelu.default: OURS.gelu_float8.default,
    OURS.gelu_back.default: OURS.gelu_back_float8.default,
}
ROWS = 1024  # matrix multiplications of fewer tokens stay in bfloat16
ACTIVATIONS = 8.0  # the factor of activations in FP8: norms keep them near 1, and 56 is the largest
GRADIENTS = 64.0  # the largest gradient that enters the graph is scaled to this; 57,344 is possible


class Product(NamedTuple):
    """A matrix multiplication, and what it multiplies."""

    node: Node
    left: Node
    right: Node
    kind: str  # forward: left @ right.T; input: left @ right; weight: left.T @ right
    bias: Node | None = None


class MultiplyInFloat8(CustomGraphPass):
    """mm(x, W.T), mm(grad, W) and mm(grad.T, x) in FP8, in joint graphs of forward and backward.

    Weights are scaled by their largest value, activations by a constant, and all gradients of a
    graph by the largest one that enters it: nothing is remembered from step to step.
    """

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place; graphs without a backward pass stay as they are."""
        products = _products(graph)
        if products:
            casts = _Casts(graph, {product.node for product in products})
            for product in products:
                _replace(product, casts)
            graph.eliminate_dead_code()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def uuid(self) -> Any:
        """Identify this version of the pass to torch's cache of compiled graphs."""
        return get_hash_for_files((__file__, float8.__file__, fused.__file__, rowwise.__file__))


def _products(graph: Graph) -> list[Product]:
    """The matrix multiplications by weights whose sizes suit FP8, in order."""
    if not _tangents(graph):
        return []
    found = []
    for node in graph.nodes:
        if node.target in (ATEN.mm.default, ATEN.addmm.default):
            *bias, left, right = node.args
            (left, turned), (right, turned_right) = _source(left), _source(right)
            kinds = {(False, True): "forward", (False, False): "input", (True, False): "weight"}
            kind = kinds.get((turned, turned_right))
            if kind and not node.kwargs and (not bias or kind == "forward"):
                found.append(Product(node, left, right, kind, *bias))
    weights = {product.right for product in found if product.kind == "forward"}
    # By weights only: tables laid out by position are multiplied too, by ones and zeros.
    inputs = (one for one in found if one.kind == "input" and one.right in weights)
    grads = {product.left for product in inputs}
    return [
        product
        for product in found
        if _suits(product.left) and _suits(product.right)
        if (product.left in grads if product.kind == "weight" else product.right in weights)
        if _value(product.left).shape[0] >= ROWS
    ]


def _suits(node: Node) -> bool:
    value = _value(node)
    sizes = (size if isinstance(size, int) else size.node.hint for size in value.shape)
    return value.dtype == torch.bfloat16 and not any(size % float8.ALIGNED for size in sizes)


def _source(node: Node) -> tuple[Node, bool]:
    """The matrix behind copies and transposes, and whether it is transposed."""
    turned = False
    while node.target in TURNS or node.target in COPIES:
        turned ^= node.target in TURNS
        node = node.args[0]  # type: ignore[assignment]
    return node, turned


def _is_column_sum(node: Node) -> bool:
    return node.target is ATEN.sum.dim_IntList and list(node.args[1]) == [0] and not node.kwargs  # type: ignore[arg-type]


def _tangents(graph: Graph) -> list[Node]:
    placeholders = graph.find_nodes(op="placeholder")
    return [node for node in placeholders if node.name.startswith("tangents")]


def _value(node: Node) -> Tensor:
    value: Tensor = node.meta["val"]
    return value


class _Casts:
    """The matrices of a graph in FP8, each cast once, where it is computed."""

    def __init__(self, graph: Graph, replaced: set[Node]) -> None:
        self.graph, self.replaced = graph, replaced
        self.cast: dict[tuple[Node, str], tuple[Node, Node, Node]] = {}
        self.of_gradients: Node | None = None
        *_, self.last = graph.find_nodes(op="placeholder")
        self.device = _value(self.last).device
        with graph.inserting_before(self.last.next):
            self.constant = self.call(ATEN.full.default, [], ACTIVATIONS, device=self.device)

    def call(self, target: Any, *inputs: Any, **options: Any) -> Node:
        """Insert a call, with the fake value that the compiler wants to know."""
        node = self.graph.call_function(target, inputs, options)
        values = [one.meta["val"] if isinstance(one, Node) else one for one in inputs]
        with _value(self.last).fake_mode:  # type: ignore[attr-defined]
            node.meta["val"] = target(*values, **options)
        return node

    def __call__(self, node: Node, kind: str) -> tuple[Node, Node, Node]:
        """A matrix in FP8 as it lies and transposed, and the factor that undoes its scale."""
        if (node, kind) not in self.cast:
            scale = self.scale(node, kind)
            with self.graph.inserting_before(scale.next):
                inverse = self.call(ATEN.reciprocal.default, scale)
            pair = self.fused(node, scale) or self.plain(node, scale, kind)
            self.cast[node, kind] = (*pair, inverse)
        return self.cast[node, kind]

    def scale(self, node: Node, kind: str) -> Node:
        """The factor before a cast: a power of two, or the constant."""
        if kind == "activation":
            return self.constant
        if kind == "gradient":
            if self.of_gradients is None:
                self.of_gradients = self.up_to(GRADIENTS, _tangents(self.graph))
            return self.of_gradients
        return self.up_to(torch.finfo(float8.NARROW).max, [node])

    def up_to(self, most: float, nodes: list[Node]) -> Node:
        """The power of two that scales the largest value of some tensors to at most `most`."""
        with self.graph.inserting_before(self.last.next):
            sizes = [self.call(ATEN.abs.default, node) for node in nodes if _is_float(node)]
            largest, *others = [self.call(ATEN.amax.default, size) for size in sizes]
            for other in others:
                largest = self.call(ATEN.maximum.default, largest, other)
            wide = self.call(CONVERT, largest, torch.float32)
            wide = self.call(ATEN.clamp_min.default, wide, 1e-30)
            power = self.call(ATEN.log2.default, self.call(ATEN.reciprocal.default, wide))
            power = self.call(ATEN.add.Tensor, power, math.log2(most))
            return self.call(ATEN.exp2.default, self.call(ATEN.floor.default, power))

    def fused(self, node: Node, scale: Node) -> tuple[Node, Node] | None:
        """The outputs of a GELU that writes FP8, if nothing else reads the matrix."""
        kernel = node.args[0] if node.target is getitem else node
        if not isinstance(kernel, Node) or kernel.target not in FLOAT8:
            return None
        if not self.only_products(node):
            return None
        pair = self.written(kernel, FLOAT8[kernel.target], scale)
        for other in [user for user in kernel.users if user.args[1:] == (1,)]:
            self.third(pair, other)
        return pair

    def plain(self, node: Node, scale: Node, kind: str) -> tuple[Node, Node]:
        """The outputs of a cast after the matrix was computed; it also sums columns."""
        after = node if node.op != "placeholder" else scale
        sums = [user for user in node.users if kind == "gradient" and _is_column_sum(user)]
        with self.graph.inserting_before(after.next):
            if not sums:
                gradient = kind == "gradient"
                return self.outputs(self.call(OURS.to_float8.default, node, scale, gradient))
            pair = self.outputs(self.call(OURS.to_float8_and_sum.default, node, scale))
        for other in sums:
            self.third(pair, other)
        return pair

    def third(self, pair: tuple[Node, Node], other: Node) -> None:
        """Replace a result by the third output of a kernel that writes FP8."""
        with self.graph.inserting_before(other):
            output = self.call(getitem, pair[0].args[0], 2)
            output = self.call(ATEN.reshape.default, output, list(_value(other).shape))
        other.replace_all_uses_with(output)

    def written(self, node: Node, target: Any, scale: Node) -> tuple[Node, Node]:
        with self.graph.inserting_before(node.next):
            return self.outputs(self.call(target, *node.args, scale))

    def outputs(self, node: Node) -> tuple[Node, Node]:
        with self.graph.inserting_before(node.next):
            return self.call(getitem, node, 0), self.call(getitem, node, 1)

    def only_products(self, node: Node) -> bool:
        """Return whether a matrix is only read by multiplications that will read FP8 instead."""
        return all(
            user in self.replaced or (_source(user)[0] is not user and self.only_products(user))
            for user in node.users
        )


def _is_float(node: Node) -> bool:
    return isinstance(node.meta["val"], Tensor) and _value(node).is_floating_point()


def _replace(product: Product, casts: _Casts) -> None:
    """Multiply in FP8, to the same type of result."""
    left = casts(product.left, "activation" if product.kind == "forward" else "gradient")
    right = casts(product.right, "activation" if product.kind == "weight" else "weight")
    by_row = product.kind != "weight"
    first, second = (left[0] if by_row else left[1]), right[product.kind != "forward"]
    with casts.graph.inserting_before(product.node):
        turned = casts.call(ATEN.permute.default, second, [1, 0])
        result = casts.call(
            ATEN._scaled_mm.default,
            *(first, turned, left[2], right[2], product.bias, None, torch.bfloat16),
            by_row,  # fast sums, less exact, over columns; not over all tokens
        )
    product.node.replace_all_uses_with(result)
    casts.graph.erase_node(product.node)
