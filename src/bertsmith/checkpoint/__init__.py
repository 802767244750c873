"""A model directory: read, write, create, convert. The layout is the ecosystem's own."""

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, create
from bertsmith.checkpoint.convert import convert, save
from bertsmith.checkpoint.locate import locate
from bertsmith.checkpoint.read import read
from bertsmith.checkpoint.sentence import Sentence, read_sentence
from bertsmith.checkpoint.write import write

__all__ = ["Checkpoint", "Report", "Sentence", "convert", "create", "locate", "read"]
__all__ += ["read_sentence", "save", "write"]
