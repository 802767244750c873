"""Attention kernels for GPUs that read on the device where sequences end.

They take and give tensors and know nothing of models. Triton, in which our own are written, comes
with torch's CUDA builds; where it is missing, torch's kernel does the work.
"""

from bertsmith.kernels.ragged import fits_ragged, ragged_attention
from bertsmith.kernels.short import fits_short, short_attention

__all__ = ["fits_ragged", "fits_short", "ragged_attention", "short_attention"]
