"""Matrix multiplication in int8 on a CPU: a scale for each token, and one for each output.

The product itself is a library's: oneDNN's through torch, or ONNX Runtime's where torch has no fast
kernel for the CPU. The engine is chosen once, by measurement, after a check that it is exact: some
kernels for CPUs without dot-product instructions saturate without a word. CPUs where none is exact
and faster than float32 multiply the same int8 values in float32.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from timeit import repeat
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LARGEST = 127  # of an int8 value; -128 is not used, so that both signs are alike
SMALLEST = 1e-30  # the scale of a row of zeros
ROWS = 128  # rows at a time: what is computed on the way stays in a core's cache
WORTHWHILE = 1.5  # times the speed of float32 at which no other engine is tried
PROBE = (128, 384, 1024)  # rows, inputs and outputs of the product that is measured


class Engine(NamedTuple):
    """A library that multiplies int8 matrices."""

    name: str
    pack: Callable[[Tensor], Any]  # int8 weights (out, in) → what `multiply` takes
    multiply: Callable[[Tensor, Any], Tensor]  # int8 (rows, in), packed weights → (rows, out)


class EngineChoice(NamedTuple):
    """The engine of this machine, and how many times as fast as float32 it is."""

    engine: Engine
    speedup: float


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to int8 with a scale of its own: (rows, D) → (rows, D), (rows, 1)."""
    scale = x.abs().amax(1, keepdim=True).mul_(1 / LARGEST)
    scale = scale.clamp_(min=SMALLEST)
    return torch.div(x, scale).round_().to(torch.int8), scale


def quantize_weight(weight: Tensor, blocks: int = 1) -> tuple[Tensor, Tensor]:
    """Round a weight to int8: (out, in) → (out, in), and scales (out,) or (out, blocks).

    Each row has a scale, or each of several equal blocks of its columns.

    Scales have 16 significant bits: products with int8 values are then exact, so that the weight
    that they give is rounded to the same values and scales again.
    """
    grid = weight.float().unflatten(1, (blocks, -1))
    scale = grid.abs().amax(2).div_(LARGEST).clamp_(min=SMALLEST)
    scale = ((scale.view(torch.int32) + 0xFF) & ~0xFF).view(torch.float32)
    values = torch.div(grid, scale[:, :, None]).round_().to(torch.int8).flatten(1)
    return values, scale[:, 0].contiguous() if blocks == 1 else scale


def dequantize_weight(values: Tensor, scale: Tensor) -> Tensor:
    """The weight that int8 values and their scales stand for, in float32."""
    columns = scale.float().reshape(len(values), -1, 1)
    return (values.float().unflatten(1, (columns.shape[1], -1)) * columns).flatten(1)


def int8_linear(
    x: Tensor, engine: Engine, packed: Any, scale: Tensor, bias: Tensor | None
) -> Tensor:
    """A linear layer of packed int8 weights with a scale for each output: (T, in) → (T, out).

    Rows are quantized on the fly, a chunk at a time.
    """
    out = x.new_empty(len(x), len(scale))
    size = max(ROWS, ROWS // 2 * torch.get_num_threads())
    for rows, part in zip(x.split(size), out.split(size), strict=True):
        quantized, scales = quantize_rows(rows)
        part.copy_(engine.multiply(quantized, packed)).mul_(scales)
        if bias is None:
            part.mul_(scale)
        else:
            torch.addcmul(bias, part, scale, out=part)
    return out


def onnx_session(model: bytes | str, spinning: bool = True, **options: Any) -> Any:
    """An ONNX Runtime session on the CPU; `options` are attributes of its SessionOptions."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    if not spinning:  # threads that wait for work leave the cores to others
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name, value in options.items():
        setattr(settings, name, value)
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def _onnx_runtime() -> Engine:
    """ONNX Runtime's kernels, which have dot-product code for x86 and for ARM."""
    from onnx import TensorProto, helper, numpy_helper

    def pack(weight: Tensor) -> Any:
        # Unsigned values around 128: on ARM signed weights are several times slower.
        shifted = weight.t().contiguous().view(torch.uint8) ^ 128
        middle = numpy_helper.from_array(torch.tensor(128, dtype=torch.uint8).numpy(), "middle")
        values = [numpy_helper.from_array(shifted.numpy(), "weight"), middle]
        names = ["rows", "weight", "middle", "middle"]
        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", names, ["product"])],
            "product",
            [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["T", weight.shape[1]])],
            [helper.make_tensor_value_info("product", TensorProto.INT32, ["T", len(weight)])],
            values,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        threads = torch.get_num_threads()
        return onnx_session(model.SerializeToString(), False, intra_op_num_threads=threads)

    def multiply(rows: Tensor, packed: Any) -> Tensor:
        shifted = rows.view(torch.uint8) ^ 128
        return torch.from_numpy(packed.run(None, {"rows": shifted.numpy()})[0])

    return Engine("onnxruntime", pack, multiply)


ENGINES: dict[str, Callable[[], Engine]] = {
    "torch": lambda: Engine("torch", Tensor.t, torch._int_mm),  # oneDNN's
    "onnxruntime": _onnx_runtime,
}


@cache
def int8_engine() -> EngineChoice:
    """Choose the fastest exact engine; float32 products of int8 values where none is faster."""
    best = EngineChoice(Engine("float32", Tensor.float, _multiply_in_float32), 1.0)
    for make in ENGINES.values():
        with suppress(ImportError, AttributeError, RuntimeError, NotImplementedError):
            best = max(best, _measured(make()), key=lambda choice: choice.speedup)
        if best.speedup >= WORTHWHILE:
            break
    return best


def _multiply_in_float32(rows: Tensor, packed: Tensor) -> Tensor:
    return F.linear(rows.float(), packed)


def _measured(engine: Engine) -> EngineChoice:
    """Check an engine on the largest values, and measure it beside float32."""
    rows, inputs, outputs = PROBE
    with torch.inference_mode():
        signs = torch.arange(rows * inputs).view(rows, inputs) % 3 < 2
        x = torch.where(signs, LARGEST, -LARGEST).to(torch.int8)
        weight = torch.full((outputs, inputs), LARGEST, dtype=torch.int8)
        weight[::2] = -LARGEST
        packed = engine.pack(weight)
        exact = x.double() @ weight.double().t()
        if not torch.equal(engine.multiply(x, packed).double(), exact):
            raise RuntimeError("its products are not exact on this CPU")
        plain, wide = x.float(), weight.float()
        scale = torch.ones(outputs)
        int8 = _seconds(lambda: int8_linear(plain, engine, packed, scale, scale))
        return EngineChoice(engine, _seconds(lambda: F.linear(plain, wide, scale)) / int8)


def _seconds(compute: Callable[[], Any]) -> float:
    return min(repeat(compute, number=1, repeat=6))
