"""Fast inference on a CPU: packed weights, layers in int8, and all blocks as one program."""

from bertsmith.cpu.int8 import Int8Linear, blocks, int8_candidates, int8_weights, quantize
from bertsmith.cpu.packed import prepare
from bertsmith.cpu.program import fits_program, speed_up_single_texts, to_int8

__all__ = ["Int8Linear", "blocks", "fits_program", "int8_candidates", "int8_weights", "prepare"]
__all__ += ["quantize", "speed_up_single_texts", "to_int8"]
