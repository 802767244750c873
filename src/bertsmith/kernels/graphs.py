"""A pass over compiled graphs that moves sums of gradients into the kernel that reads them.

Hidden states have two uses, a matrix multiplication and a residual sum, so two gradients arrive at
the norm that computed them. Autograd adds them up in a pass of its own; here `norm_back` does.
"""

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from bertsmith.kernels import fused  # registers norm_back

ADD = torch.ops.aten.add.Tensor
NORM = torch.ops.bertsmith.norm_back.default


class FuseSums(CustomGraphPass):
    """norm_back(a + b, None, ...) → norm_back(a, b, ...), for torch.compile's default backend."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        for norm in graph.find_nodes(op="call_function", target=NORM):
            total, more, *rest = norm.args
            if more is None and _is_plain_sum(total) and len(total.users) == 1:
                norm.args = (*total.args, *rest)
                graph.erase_node(total)

    def __eq__(self, other: object) -> bool:
        # torch.compile reuses graphs that were compiled with equal options.
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def uuid(self) -> Any:
        """Identify this version of the pass to torch's cache of compiled graphs."""
        return get_hash_for_files((__file__, fused.__file__))


def _is_plain_sum(node: Any) -> bool:
    """Return whether a node is the sum of two tensors of the same shape and type."""
    if not isinstance(node, Node) or node.target is not ADD or node.kwargs:
        return False
    values = [one.meta["val"] for one in (*node.args, node) if isinstance(one, Node)]
    # Sizes may be symbols, which have no hash and must not be compared here.
    return len(values) == 3 and len({(str(x.shape), x.dtype) for x in values}) == 1
