"""Model directories: read, write, create, convert and export them, in Hugging Face's layout."""

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, create
from bertsmith.checkpoint.convert import convert, save, save_adapter
from bertsmith.checkpoint.extend import extend_vocabulary
from bertsmith.checkpoint.layers import (
    add_averaging_layer,
    can_average,
    check_layers,
    keep_layers,
    spread_layers,
)
from bertsmith.checkpoint.locate import built_in, locate, model_hash
from bertsmith.checkpoint.lora import Lora, attach, demand_whole, tokenizer_folder
from bertsmith.checkpoint.onnx import export_model
from bertsmith.checkpoint.read import read, read_config, read_notes
from bertsmith.checkpoint.sentence import Sentence, read_sentence
from bertsmith.checkpoint.write import demand_float, kept_float32, write

__all__ = ["Checkpoint", "Lora", "Report", "Sentence", "add_averaging_layer", "attach", "built_in"]
__all__ += ["can_average", "check_layers", "convert", "create", "demand_float", "demand_whole"]
__all__ += ["export_model", "extend_vocabulary", "keep_layers", "kept_float32", "locate"]
__all__ += ["model_hash", "read", "read_config", "read_notes", "read_sentence", "save"]
__all__ += ["save_adapter", "spread_layers", "tokenizer_folder", "write"]
