"""Kernels independent of models: operations that torch lacks or runs more slowly.

int8      linear layers in int8 on a CPU, with oneDNN or ONNX Runtime
float8    casts to FP8 for matrix multiplications, in Triton, likewise
short     attention in short sequences, in Triton, which comes with torch's CUDA builds
relative  attention with relative positions, in Triton, likewise
ragged    attention in sequences of any length: torch's flash kernel, and cuDNN's for full rows
fused     residual sums with norms and biases with GELUs in one pass each way, in Triton, likewise
entropy   cross entropy over a vocabulary, in Triton, likewise
lookup    rows of small tables, whose gradient is a matrix multiplication
graphs    a pass over compiled graphs that moves sums of gradients into `fused`
products  a pass over compiled graphs that multiplies by weights in FP8
dropout   for CPUs
"""

from bertsmith.kernels.dropout import Dropout
from bertsmith.kernels.entropy import fits_entropy, summed_entropy
from bertsmith.kernels.fused import add_norm, up_gelu
from bertsmith.kernels.int8 import (
    dequantize_weight,
    int8_engine,
    int8_linear,
    onnx_session,
    quantize_rows,
    quantize_weight,
)
from bertsmith.kernels.lookup import small_table
from bertsmith.kernels.ragged import (
    fits_full,
    fits_ragged,
    full_attention,
    is_ampere,
    is_hopper,
    ragged_attention,
)
from bertsmith.kernels.relative import (
    DistanceRows,
    distance_rows,
    fits_relative,
    relative_attention,
    runs_relative,
)
from bertsmith.kernels.short import fits_short, short_attention

__all__ = ["DistanceRows", "Dropout", "add_norm", "distance_rows", "fits_entropy"]
__all__ += ["fits_full", "fits_ragged", "fits_relative", "full_attention"]
__all__ += ["fits_short", "is_ampere", "is_hopper", "ragged_attention", "relative_attention"]
__all__ += ["onnx_session", "runs_relative"]
__all__ += ["short_attention", "small_table", "summed_entropy", "up_gelu"]
__all__ += ["dequantize_weight", "int8_engine", "int8_linear", "quantize_rows", "quantize_weight"]
