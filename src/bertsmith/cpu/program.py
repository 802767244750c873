"""The blocks of an encoder as one ONNX Runtime graph in int8: sequences end to end, no padding.

ONNX Runtime chooses one scale for all rows of a linear layer's input. Where they vary too much for
that, they are divided by their largest values before, and the results multiplied by them again.
Only attention sees a grid of sequences, which are of similar length. Rows are in order of position,
the first tokens of all sequences and so on, so that attention need not transpose its inputs.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from importlib.util import find_spec
from operator import is_
from threading import Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batch import Batch, Layout, like
from bertsmith.cpu.int8 import Int8Linear, even_layers, quantize
from bertsmith.errors import BertsmithError
from bertsmith.kernels import int8_engine, onnx_session, quantize_weight
from bertsmith.kernels.int8 import LARGEST
from bertsmith.model import Encoder, Model
from bertsmith.model.attention import Attention, QueryValueLinear, RotaryAttention
from bertsmith.model.block import PostNormBlock, PreNormBlock
from bertsmith.model.feedforward import FeedForward
from bertsmith.model.position import RotarySignal

PROBE = (4, 64, 32)  # rows, inputs and outputs of the product that is checked
GELU_LEAST = -0.1701  # no value of a GELU is lower
TINY = 1e-30  # the scale of a row of zeros
TOKENS = 256  # run at once: what is computed on the way stays in a core's cache
ENOUGH = 96  # tokens of equal lengths that are not padded for more of them: that takes longer
OFTEN = 50  # batches after which a session has paid for the time to make it
SMALL = 150_000_000  # parameters of which a second copy may be kept in memory
OUTSIDE = np.float32(-1e30)  # the score of tokens beyond the window of local attention
ACTIVATIONS = {nn.GELU: "Gelu", nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}
Array = NDArray[Any]


def fits_program(encoder: Encoder) -> bool:
    """Does the graph have all parts of this encoder? Others multiply in int8 with torch."""
    return bool(encoder.plan) and all(map(_fits, encoder.blocks))


def _fits(block: Any) -> bool:
    return (
        type(block) in (PostNormBlock, PreNormBlock)
        and type(block.attention) in (Attention, RotaryAttention)
        and not block.attention.scores.causal
        and _activation(block.feedforward.activation) is not None
    )


def to_int8(model: Model, keep: Container[str] = (), sample: Batch | None = None) -> None:
    """Round the weights of a model to int8 and compute in int8, except in the layers to `keep`.

    Layers whose inputs are even on a sample of text compute with one scale for all tokens that are
    run at once, which is faster; the others, and all of them without a sample, with one for each.
    """
    fits = fits_program(model.encoder)
    if fits and missing():
        raise BertsmithError("int8 needs ONNX Runtime: pip install 'bertsmith[onnx]'")
    even = even_layers(model, sample) if fits and sample else ()
    quantize(model, keep, even)
    if fits:
        model.encoder.program = OnnxProgram(model.encoder, exact_weights())


def _activation(module: nn.Module) -> str | None:
    if isinstance(module, nn.GELU) and module.approximate == "tanh":
        return "FastGelu"
    return ACTIVATIONS.get(type(module))


class OnnxProgram:
    """The blocks of an encoder in ONNX Runtime: a session for equal lengths, and one for others."""

    def __init__(self, encoder: Encoder, weight_type: str = "int8") -> None:
        self.encoder, self.weight_type = encoder, weight_type
        self.sessions: dict[bool, tuple[Any, Graph]] = {}
        self.forget()

    def forget(self) -> None:
        """Forget the sessions, and what they were made of."""
        self.sessions = {}
        self.places: list[dict[str, Any]] = []  # each part is in one of these, under its name
        self.names: list[str] = []
        self.parts: list[Any] = []
        self.hooks: list[Any] = []
        self.weights: list[Tensor] = []  # which count their changes
        self.versions: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"encoder": self.encoder, "weight_type": self.weight_type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc] # a copy makes its own sessions

    def takes(self, layout: Layout) -> bool:
        """Does it run such a batch? Nothing that has hooks, which torch must call."""
        return self._is_current()

    def _is_current(self) -> bool:
        """Forget the sessions if a part of the encoder has changed; False if one has hooks."""
        current = map(dict.get, self.places, self.names)
        same = bool(self.parts) and all(map(is_, current, self.parts))
        if not same or [weight._version for weight in self.weights] != self.versions:
            self.forget()
            self._look(self.encoder.blocks)
            self._look(self.encoder.norm)
            self.versions = [weight._version for weight in self.weights]
        return not any(self.hooks)

    def _look(self, module: nn.Module) -> None:
        self.hooks += [module._forward_hooks, module._forward_pre_hooks]
        for place in (module._modules, module._parameters):
            for name, part in place.items():
                self.places.append(place)
                self.names.append(name)
                self.parts.append(part)
                if isinstance(part, nn.Module):
                    self._look(part)
                elif part is not None and not part.is_inference():
                    self.weights.append(part)

    def session(self, padded: bool) -> tuple[Any, Graph]:
        """The session for sequences that are padded in attention, or for others."""
        if padded not in self.sessions:
            self.sessions[padded] = self.new_session(padded, torch.get_num_threads())
        return self.sessions[padded]

    def new_session(self, padded: bool, threads: int) -> tuple[Any, Graph]:
        """Build a graph and its session."""
        from onnxruntime import GraphOptimizationLevel

        graph = Graph(self.encoder, padded, self.weight_type)
        session = onnx_session(
            graph.serialized(),
            intra_op_num_threads=threads,
            # Higher levels join operators into ones that take longer, such as a bias with a GELU.
            graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_BASIC,
        )
        return session, graph

    def __call__(self, x: Tensor, layout: Layout) -> Tensor:
        """(T, D) → the final states (T, D)."""
        rows, lengths = x.numpy(), np.asarray(layout.lengths)
        if len(lengths) == 1:
            return torch.from_numpy(self._run(rows, np.ones((len(rows), 1), bool)))
        starts = np.cumsum(lengths) - lengths
        last = np.empty_like(rows)
        for members in like(layout.lengths, most=TOKENS, enough=ENOUGH):
            chosen = lengths[members]
            grid = starts[members] + np.arange(chosen.max())[:, None]  # (n, N) rows
            seen = grid < starts[members] + chosen
            last[grid[seen]] = self._run(rows[grid[seen]], seen)
        return torch.from_numpy(last)

    def _run(self, x: Array, seen: Array) -> Array:
        """Run sequences of similar length: the first token of each, the second of each, ..."""
        longest, count = seen.shape
        padded = len(x) < longest * count
        session, graph = self.session(padded)
        across = np.arange(longest)
        feeds: dict[str, Any] = {"x": x, "grid": np.array([longest, count])}
        if padded:
            rows = np.cumsum(seen).reshape(seen.shape) - 1
            feeds["picked"] = np.where(seen, rows, 0).ravel()
            feeds["places"] = np.flatnonzero(seen)
            feeds["seen"] = np.where(seen.T, np.float32(0), OUTSIDE)[:, None, None]
        for at, (base, width) in graph.bases.items():
            even = np.arange(0, width, 2, dtype=np.float32)
            angles = across[:, None, None, None] * (1 / base ** (even / width))
            feeds[f"{at}cosines"] = np.cos(angles).astype(np.float32)
            feeds[f"{at}sines"] = np.sin(angles).astype(np.float32)
        for window in graph.windows:
            far = np.abs(across[:, None] - across) > window
            feeds[f"window{window}"] = np.where(far, OUTSIDE, np.float32(0))[None, None]
        return session.run(None, feeds)[0]


class FewTokens(OnnxProgram):
    """The blocks in float32, for single texts: they take torch up to three times as long.

    It has a second copy of the weights, which a thread makes once such batches are frequent.
    """

    waited, thread_name = 0, "float32 session"

    def takes(self, layout: Layout) -> bool:
        """Few tokens, in sequences of equal length, once there is a session."""
        before = self.parts
        if layout.total > TOKENS or len({*layout.lengths}) > 1 or not self._is_current():
            return False
        self.waited = self.waited + 1 if self.parts is before else 0
        if self.waited == OFTEN:
            arguments = self.parts, torch.get_num_threads()
            Thread(None, self._make, self.thread_name, arguments, daemon=True).start()
        return bool(self.sessions)

    def _make(self, parts: list[Any], threads: int) -> None:
        sessions = {False: self.new_session(False, threads)}
        if self.parts is parts:  # nothing has changed since
            self.sessions = sessions


def speed_up_single_texts(model: Model) -> None:
    """Let ONNX Runtime compute single texts in float32, where it is installed."""
    encoder, table = model.encoder, model.encoder.table
    float32_on_cpu = table.device.type == "cpu" and table.dtype == torch.float32
    small = sum(weight.numel() for weight in encoder.blocks.parameters()) <= SMALL
    if float32_on_cpu and small and encoder.program is None and fits_program(encoder):
        encoder.program = None if missing() else FewTokens(encoder)


def missing() -> bool:
    """Is anything not installed that a program needs?"""
    return not all(map(find_spec, ("onnx", "onnxruntime")))


def slow_int8(model: Model) -> bool:
    """Does a model compute in int8 on a CPU without fast instructions for it?"""
    if not any(isinstance(module, Int8Linear) for module in model.modules()):
        return False
    in_graph = fits_program(model.encoder)
    return exact_weights() != "int8" if in_graph else int8_engine().engine.name == "float32"


@cache
def exact_weights() -> str:
    """The data type of weights with which ONNX Runtime's products are exact on this CPU.

    Kernels for CPUs without dot-product instructions may saturate with signed weights.
    """
    for kind in ("int8", "uint8"):
        if all(_is_exact(kind, rows) for rows in (1, PROBE[0])):  # each has a kernel of its own
            return kind
    raise BertsmithError("int8: ONNX Runtime's products are not exact on this CPU; use float32")


def _is_exact(kind: str, rows: int) -> bool:
    from onnx import TensorProto, helper, numpy_helper

    _, inputs, outputs = PROBE
    x = np.full((rows, inputs), 255, np.uint8)
    weight = np.full((inputs, outputs), LARGEST, np.int64)
    weight[:, ::2] *= -1
    middle = 128 if kind == "uint8" else 0
    constants = {"w": (weight + middle).astype(kind), "z": np.array(middle, kind)}
    constants |= {"one": np.array(1, np.float32), "a": np.array(0, np.uint8)}
    node = helper.make_node(
        "MatMulIntegerToFloat", ["x", "w", "one", "one", "a", "z"], ["y"], domain="com.microsoft"
    )
    model = _serialized(
        [node],
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, outputs])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    session = onnx_session(model)
    return bool(np.array_equal(session.run(None, {"x": x})[0], x.astype(np.int64) @ weight))


def _serialized(nodes: Any, inputs: Any, outputs: Any, constants: Any) -> bytes:
    from onnx import helper

    graph = helper.make_graph(nodes, "encoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


class Graph:
    """The graph of an encoder, one operator after the other."""

    def __init__(self, encoder: Encoder, padded: bool, weight_type: str) -> None:
        from onnx import helper, numpy_helper

        self.padded, self.weight_type = padded, weight_type
        self.helper, self.as_tensor = helper, numpy_helper.from_array
        self.nodes: list[Any] = []
        self.values: dict[str, Any] = {}
        self.windows: set[int] = set()
        self.shapes: dict[int, str] = {}  # heads → the name of a grid's shape
        # Of rotary positions: name → base and width of a head.
        self.bases: dict[str, tuple[float, int]] = {}
        x = "x"
        for number, signal in encoder.plan:
            x = self.block(encoder.blocks[number], encoder.signals, signal, x, f"{number}.")
        first: Any = encoder.blocks[0]
        self.width = first.attention.output.out_features
        self.output = self.norm(encoder.norm, x, "last.")

    def add(
        self, kind: str, *inputs: str, outputs: int = 1, ours: bool = False, **more: Any
    ) -> Any:
        """Add an operator; return the name of its result, or those of several."""
        names = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        domain = "com.microsoft" if ours else ""
        self.nodes.append(self.helper.make_node(kind, inputs, names, domain=domain, **more))
        return names[0] if outputs == 1 else names

    def value(self, name: str, tensor: Tensor | Array) -> str:
        """Add a constant, once under each name."""
        if name not in self.values:
            array = tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor
            self.values[name] = self.as_tensor(np.ascontiguousarray(array), name)
        return name

    def block(self, block: Any, signals: Any, signal: int, x: str, at: str) -> str:
        """One layer."""
        attention, forward = block.attention, block.feedforward
        pre = isinstance(block, PreNormBlock)
        normed = self.norm(block.attention_norm, x, f"{at}first.") if pre else x
        joint = self.linear(attention.qkv, normed, f"{at}qkv.", parts=3 if self.padded else 1)
        mixed = self.attend(attention, signals[signal] if len(signals) else None, joint)
        total = self.add("Add", x, *self.linear(attention.output, mixed, f"{at}output."))
        after = block.feedforward_norm if pre else block.attention_norm
        normed = self.norm(after, total, f"{at}middle.")
        gelu = not forward.gated and isinstance(forward.activation, nn.GELU)
        inner = self.up_projection(forward, normed, at)
        down = self.linear(forward.down, inner, f"{at}down.", least=GELU_LEAST if gelu else None)
        if pre:
            return str(self.add("Add", total, *down))
        return self.norm(block.feedforward_norm, self.add("Add", normed, *down), f"{at}last.")

    def linear(
        self, layer: Any, x: str, at: str, parts: int = 1, least: float | None = None
    ) -> list[str]:
        """A linear layer, its outputs in equal parts; `least` is a lower bound of the inputs."""
        bias = layer.bias
        if isinstance(layer, QueryValueLinear):
            bias = layer.joint_bias()
        biases = [""] * parts if bias is None else self.parted(f"{at}bias", bias, parts)
        if not isinstance(layer, Int8Linear):
            weights = self.parted(f"{at}weight", layer.weight, parts)
            pairs = zip(weights, biases, strict=True)
            return [self.add("Gemm", x, *pair, transB=1) for pair in pairs]
        values, scales = quantize_weight(layer.weight.detach())
        middle = ""  # the zero of weights
        if self.weight_type == "uint8":
            values = values.view(torch.uint8) ^ 128
            middle = self.value("middle", np.array(128, np.uint8))
        weights = self.parted(f"{at}weight", values, parts, transposed=True)
        scaled = self.parted(f"{at}scale", scales, parts)
        if layer.even:
            rows, step, zero = self.add("DynamicQuantizeLinear", x, outputs=3)
            return [
                self.add("MatMulIntegerToFloat", rows, w, step, s, zero, middle, b, ours=True)
                for w, s, b in zip(weights, scaled, biases, strict=True)
            ]
        positive = x if least is not None else self.add("Abs", x)
        smallest = self.value(f"least{least}", np.array(-(least or -TINY), np.float32))
        largest = self.add("ReduceMax", positive, axes=[1], keepdims=1)
        scale = self.add("Max", largest, smallest)
        rows, step, zero = self.add("DynamicQuantizeLinear", self.add("Div", x, scale), outputs=3)
        outputs = []
        for weight, own, bias in zip(weights, scaled, biases, strict=True):
            product = self.add(
                "MatMulIntegerToFloat", rows, weight, step, own, zero, middle, ours=True
            )
            product = self.add("Mul", product, scale)
            outputs.append(self.add("Add", product, bias) if bias else product)
        return outputs

    def parted(self, name: str, tensor: Tensor, parts: int, transposed: bool = False) -> list[str]:
        """Constants: a tensor in equal parts, transposed if asked."""
        chunks = enumerate(tensor.detach().chunk(parts))
        return [self.value(f"{name}{n}", part.t() if transposed else part) for n, part in chunks]

    def norm(self, norm: nn.Module, x: str, at: str) -> str:
        """A layer norm, if there is one."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        parameters = [self.value(f"{at}gamma", norm.weight)]
        if norm.bias is not None:
            parameters.append(self.value(f"{at}beta", norm.bias))
        return str(self.add("LayerNormalization", x, *parameters, axis=-1, epsilon=norm.eps))

    def up_projection(self, forward: FeedForward, x: str, at: str) -> str:
        """Up-projection and activation."""
        kind = str(_activation(forward.activation))
        ours = kind.endswith("Gelu")
        if forward.gated:
            active, gate = self.linear(forward.up, x, f"{at}up.", parts=2)
            return str(self.add("Mul", self.add(kind, active, ours=ours), gate))
        return str(self.add(kind, *self.linear(forward.up, x, f"{at}up."), ours=ours))

    def attend(self, attention: Attention, signal: Any, joint: list[str]) -> str:
        """Attention on a grid of sequences: queries, keys and values (T, D) → (T, D)."""
        if self.padded:  # many short texts: three products take less time than to split one
            shape = self.shape(attention.heads)
            joint = [self.add("Gather", rows, "picked") for rows in joint]
            joint = [self.add("Reshape", rows, shape) for rows in joint]
        else:
            rows = self.add("Reshape", *joint, self.shape(3 * attention.heads))
            joint = self.add("Split", rows, outputs=3, axis=2)
        query, key, value = joint  # (n, N, H, d)
        if isinstance(signal, RotarySignal):
            query, key = self.rotated(signal, query), self.rotated(signal, key)
        how: dict[str, Any] = {"transB": 1, "transBatchA": 1, "alpha": attention.scores.scale}
        scores = self.add("FusedMatMul", query, key, ours=True, transBatchB=1, **how)
        if self.padded:
            scores = self.add("Add", scores, "seen")
        if attention.scores.window is not None:
            self.windows.add(attention.scores.window)
            scores = self.add("Add", scores, f"window{attention.scores.window}")
        weights = self.add("Softmax", scores, axis=-1)  # (N, H, n, n)
        mixed = self.add("FusedMatMul", weights, value, ours=True, transBatchB=1)
        rows = self.add("Transpose", mixed, perm=[2, 0, 1, 3])
        width: Any = attention.output.in_features
        rows = self.add("Reshape", rows, self.value(f"rows{width}", np.array([-1, width])))
        return str(self.add("Gather", rows, "places") if self.padded else rows)

    def shape(self, heads: int) -> str:
        """The shape of a grid of sequences with these heads, computed once for all layers."""
        if heads not in self.shapes:
            parts = self.value(f"heads{heads}", np.array([heads, -1]))
            self.shapes[heads] = self.add("Concat", "grid", parts, axis=0)
        return self.shapes[heads]

    def rotated(self, signal: RotarySignal, x: str) -> str:
        """Queries or keys (n, N, H, d), rotated by their positions."""
        at = f"base{signal.base:g}"
        self.bases[at] = signal.base, signal.width
        first, second = self.add("Split", x, outputs=2, axis=-1)
        halves = []
        for kind, a, b in (("Sub", first, second), ("Add", second, first)):
            product = self.add("Mul", a, f"{at}cosines")
            halves.append(self.add(kind, product, self.add("Mul", b, f"{at}sines")))
        return str(self.add("Concat", *halves, axis=-1))

    def serialized(self) -> bytes:
        """The model as ONNX Runtime reads it."""
        from onnx import TensorProto as Kind

        tensor = self.helper.make_tensor_value_info
        inputs = [tensor("x", Kind.FLOAT, ["T", self.width]), tensor("grid", Kind.INT64, [2])]
        if self.padded:
            inputs += [tensor("picked", Kind.INT64, ["R"]), tensor("places", Kind.INT64, ["T"])]
            inputs.append(tensor("seen", Kind.FLOAT, ["N", 1, 1, "n"]))
        for at, (_, width) in self.bases.items():
            shape: list[Any] = ["n", 1, 1, width // 2]
            inputs += [tensor(f"{at}{name}", Kind.FLOAT, shape) for name in ("cosines", "sines")]
        windows = (f"window{window}" for window in self.windows)
        inputs += [tensor(name, Kind.FLOAT, [1, 1, "n", "n"]) for name in windows]
        outputs = [tensor(self.output, Kind.FLOAT, ["T", self.width])]
        return _serialized(self.nodes, inputs, outputs, list(self.values.values()))
