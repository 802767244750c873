"""Model directories: read, write, create, convert and export them, in Hugging Face's layout."""

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, create
from bertsmith.checkpoint.convert import convert, save
from bertsmith.checkpoint.extend import extend_vocabulary
from bertsmith.checkpoint.layers import check_layers, keep_layers, spread_layers
from bertsmith.checkpoint.locate import built_in, locate
from bertsmith.checkpoint.onnx import export_model
from bertsmith.checkpoint.read import read, read_config, read_notes
from bertsmith.checkpoint.sentence import Sentence, read_sentence
from bertsmith.checkpoint.write import write

__all__ = ["Checkpoint", "Report", "Sentence", "built_in", "convert", "create"]
__all__ += [
    "check_layers",
    "export_model",
    "extend_vocabulary",
    "keep_layers",
    "locate",
    "read",
    "read_config",
    "read_notes",
    "read_sentence",
    "save",
    "spread_layers",
    "write",
]
