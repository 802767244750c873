"""The encoder: a batch in, hidden states and head outputs out, for every family.

Shapes: T tokens of all sequences end to end, N sequences, D width, H attention heads,
d width of one head, n length of one sequence, R rows of the relative-position table.
"""

from bertsmith.model.attend import Scores, attend
from bertsmith.model.build import build, build_head, initialise
from bertsmith.model.config import Config, Convolution, Disentangled, HeadConfig, Rotary
from bertsmith.model.encoder import Encoder, Hidden, Model, Trace
from bertsmith.model.packed import prepare

__all__ = ["Config", "Convolution", "Disentangled", "Encoder", "HeadConfig", "Hidden", "Model"]
__all__ += ["Rotary", "Scores", "Trace", "attend", "build", "build_head", "initialise", "prepare"]
