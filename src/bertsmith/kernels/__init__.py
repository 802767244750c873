"""Work on tensors that knows nothing of models: what torch has not, or not as fast.

short    attention in short sequences, in Triton, which comes with torch's CUDA builds
ragged   attention in sequences of any length: torch's, by boundaries on the GPU
dropout  for CPUs
"""

from bertsmith.kernels.dropout import Dropout
from bertsmith.kernels.ragged import fits_ragged, ragged_attention
from bertsmith.kernels.short import fits_short, short_attention

__all__ = ["Dropout", "fits_ragged", "fits_short", "ragged_attention", "short_attention"]
