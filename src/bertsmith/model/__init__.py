"""The encoder: a batch in, hidden states and head outputs out, for every family.

Shapes: T tokens of all sequences end to end, N sequences, D width, H attention heads,
d width of one head, n length of one sequence, R rows of the relative-position table.
"""

from bertsmith.model.attend import Scores, attend
from bertsmith.model.build import build, build_head, initialise
from bertsmith.model.config import (
    Config,
    Convolution,
    Disentangled,
    DistanceBias,
    HeadConfig,
    Rotary,
)
from bertsmith.model.encoder import Encoder, Hidden, Model, Trace

__all__ = ["Config", "Convolution", "Disentangled", "DistanceBias", "Encoder", "HeadConfig"]
__all__ += ["Hidden", "Model", "Rotary", "Scores", "Trace", "attend", "build", "build_head"]
__all__ += ["initialise"]
