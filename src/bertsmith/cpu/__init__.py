"""Fast inference on a CPU: packed weights, layers in int8, and all blocks as one program."""

from bertsmith.cpu.int8 import blocks, int8_candidates, int8_weights
from bertsmith.cpu.packed import prepare
from bertsmith.cpu.program import slow_int8, speed_up_single_texts, to_int8

__all__ = ["blocks", "int8_candidates", "int8_weights", "prepare", "slow_int8"]
__all__ += ["speed_up_single_texts", "to_int8"]
