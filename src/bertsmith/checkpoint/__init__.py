"""A model directory: read, write, create, convert. The layout is the ecosystem's own."""

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, create
from bertsmith.checkpoint.convert import convert, save
from bertsmith.checkpoint.extend import extend_vocabulary
from bertsmith.checkpoint.locate import locate
from bertsmith.checkpoint.read import read
from bertsmith.checkpoint.sentence import Sentence, read_sentence
from bertsmith.checkpoint.write import write

__all__ = ["Checkpoint", "Report", "Sentence", "convert", "create", "extend_vocabulary"]
__all__ += ["locate", "read", "read_sentence", "save", "write"]
