"""A pass over compiled graphs that multiplies by weights in FP8, forward and backward.

The model's code does not change: the pass replaces matrix multiplications in its graph by casts and
FP8 multiplications. Where a GELU of `fused` computes the matrix, that kernel writes FP8 itself; a
cast of gradients also computes their column sums, where a bias needs those.
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
TRANSPOSES = (ATEN.permute.default, ATEN.t.default)  # operators that transpose
COPIES = (ATEN.clone.default, ATEN.alias.default, ATEN.detach.default)
FLOAT8: dict[Any, Any] = {  # kernels, and those that write FP8 instead
    OURS.gelu.default: OURS.gelu_float8.default,
    OURS.gelu_back.default: OURS.gelu_back_float8.default,
}
ROWS = 1024  # matrix multiplications of fewer tokens stay in bfloat16
ACTIVATIONS = 8.0  # scale of activations in FP8: norms keep them near 1; 56 is the largest possible
GRADIENTS = 64.0  # the largest incoming gradient is scaled to this; FP8 holds up to 57,344


class Product(NamedTuple):
    """A matrix multiplication in the graph, and its operands."""

    node: Node
    left: Node
    right: Node
    kind: str  # forward: left @ right.T; input: left @ right; weight: left.T @ right
    bias: Node | None = None


class MultiplyInFloat8(CustomGraphPass):
    """mm(x, W.T), mm(grad, W) and mm(grad.T, x) in FP8, in joint graphs of forward and backward.

    Weights are scaled by their largest value, activations by a constant, and all gradients of a
    graph by the largest incoming one: no scale depends on earlier steps.
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
    candidates = []
    for node in graph.nodes:
        if node.target in (ATEN.mm.default, ATEN.addmm.default):
            *bias, left, right = node.args
            (left, transposed), (right, right_transposed) = _source(left), _source(right)
            kinds = {(False, True): "forward", (False, False): "input", (True, False): "weight"}
            kind = kinds.get((transposed, right_transposed))
            if kind and not node.kwargs and (not bias or kind == "forward"):
                candidates.append(Product(node, left, right, kind, *bias))
    weights = {product.right for product in candidates if product.kind == "forward"}
    # Not tables of positions, which are multiplied by matrices of ones and zeros.
    inputs = (one for one in candidates if one.kind == "input" and one.right in weights)
    grads = {product.left for product in inputs}
    return [
        product
        for product in candidates
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
    transposed = False
    while node.target in TRANSPOSES or node.target in COPIES:
        transposed ^= node.target in TRANSPOSES
        node = node.args[0]  # type: ignore[assignment]
    return node, transposed


def _is_column_sum(node: Node) -> bool:
    return node.target is ATEN.sum.dim_IntList and list(node.args[1]) == [0] and not node.kwargs  # type: ignore[arg-type]


def _tangents(graph: Graph) -> list[Node]:
    placeholders = graph.find_nodes(op="placeholder")
    return [node for node in placeholders if node.name.startswith("tangents")]


def _value(node: Node) -> Tensor:
    value: Tensor = node.meta["val"]
    return value


class _Casts:
    """Inserts the casts of matrices to FP8: one for each matrix, where it is computed."""

    def __init__(self, graph: Graph, replaced: set[Node]) -> None:
        self.graph, self.replaced = graph, replaced
        self.cast: dict[tuple[Node, str], tuple[Node, Node, Node]] = {}
        self.of_gradients: Node | None = None
        *_, self.last = graph.find_nodes(op="placeholder")
        self.device = _value(self.last).device
        with graph.inserting_before(self.last.next):
            self.constant = self.call(ATEN.full.default, [], ACTIVATIONS, device=self.device)

    def call(self, target: Any, *inputs: Any, **options: Any) -> Node:
        """Insert a call, with the fake tensor that later compiler passes need."""
        node = self.graph.call_function(target, inputs, options)
        values = [one.meta["val"] if isinstance(one, Node) else one for one in inputs]
        with _value(self.last).fake_mode:  # type: ignore[attr-defined]
            node.meta["val"] = target(*values, **options)
        return node

    def __call__(self, node: Node, kind: str) -> tuple[Node, Node, Node]:
        """A matrix in FP8, its transpose, and the inverse of its scale."""
        if (node, kind) not in self.cast:
            scale = self.scale(node, kind)
            with self.graph.inserting_before(scale.next):
                inverse = self.call(ATEN.reciprocal.default, scale)
            pair = self.fused(node, scale) or self.plain(node, scale, kind)
            self.cast[node, kind] = (*pair, inverse)
        return self.cast[node, kind]

    def scale(self, node: Node, kind: str) -> Node:
        """The scale of a cast: a power of two, or the constant."""
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
        """Replace a GELU by one that writes FP8, if only FP8 multiplications read its output."""
        kernel = node.args[0] if node.target is getitem else node
        if not isinstance(kernel, Node) or kernel.target not in FLOAT8:
            return None
        if not self.read_only_in_float8(node):
            return None
        pair = self.insert_after(kernel, FLOAT8[kernel.target], scale)
        for other in [user for user in kernel.users if user.args[1:] == (1,)]:
            self.replace_sum(pair, other)
        return pair

    def plain(self, node: Node, scale: Node, kind: str) -> tuple[Node, Node]:
        """Insert a cast after the matrix is computed; of gradients it also replaces column sums."""
        after = node if node.op != "placeholder" else scale
        sums = [user for user in node.users if kind == "gradient" and _is_column_sum(user)]
        with self.graph.inserting_before(after.next):
            if not sums:
                gradient = kind == "gradient"
                return self.outputs(self.call(OURS.to_float8.default, node, scale, gradient))
            pair = self.outputs(self.call(OURS.to_float8_and_sum.default, node, scale))
        for other in sums:
            self.replace_sum(pair, other)
        return pair

    def replace_sum(self, pair: tuple[Node, Node], other: Node) -> None:
        """Replace a sum by the third output of a kernel that writes FP8."""
        with self.graph.inserting_before(other):
            output = self.call(getitem, pair[0].args[0], 2)
            output = self.call(ATEN.reshape.default, output, list(_value(other).shape))
        other.replace_all_uses_with(output)

    def insert_after(self, node: Node, target: Any, scale: Node) -> tuple[Node, Node]:
        with self.graph.inserting_before(node.next):
            return self.outputs(self.call(target, *node.args, scale))

    def outputs(self, node: Node) -> tuple[Node, Node]:
        with self.graph.inserting_before(node.next):
            return self.call(getitem, node, 0), self.call(getitem, node, 1)

    def read_only_in_float8(self, node: Node) -> bool:
        """Return whether only multiplications that are replaced by FP8 read a matrix."""
        return all(
            user in self.replaced
            or (_source(user)[0] is not user and self.read_only_in_float8(user))
            for user in node.users
        )


def _is_float(node: Node) -> bool:
    return isinstance(node.meta["val"], Tensor) and _value(node).is_floating_point()


def _replace(product: Product, casts: _Casts) -> None:
    """Replace a multiplication by one in FP8 with a result of the same dtype."""
    left = casts(product.left, "activation" if product.kind == "forward" else "gradient")
    right = casts(product.right, "activation" if product.kind == "weight" else "weight")
    by_row = product.kind != "weight"
    first, second = (left[0] if by_row else left[1]), right[product.kind != "forward"]
    with casts.graph.inserting_before(product.node):
        transposed = casts.call(ATEN.permute.default, second, [1, 0])
        result = casts.call(
            ATEN._scaled_mm.default,
            *(first, transposed, left[2], right[2], product.bias, None, torch.bfloat16),
            by_row,  # use_fast_accum: less exact, so not for sums over all tokens
        )
    product.node.replace_all_uses_with(result)
    casts.graph.erase_node(product.node)
