"""Kernels independent of models: operations that torch lacks or runs more slowly.

short     attention in short sequences, in Triton, which comes with torch's CUDA builds
relative  attention with relative positions, in Triton, likewise
ragged    attention in sequences of any length: torch's, by boundaries on the GPU
fused     residual sums with norms and biases with GELUs in one pass each way, in Triton, likewise
entropy   cross entropy over a vocabulary, in Triton, likewise
dropout   for CPUs
"""

from bertsmith.kernels.dropout import Dropout
from bertsmith.kernels.entropy import fits_entropy, summed_entropy
from bertsmith.kernels.fused import add_norm, up_gelu
from bertsmith.kernels.ragged import fits_ragged, ragged_attention
from bertsmith.kernels.relative import fits_relative, relative_attention
from bertsmith.kernels.short import fits_short, short_attention

__all__ = ["Dropout", "add_norm", "fits_entropy", "fits_ragged", "fits_relative", "fits_short"]
__all__ += ["ragged_attention", "relative_attention", "short_attention", "summed_entropy"]
__all__ += ["up_gelu"]
