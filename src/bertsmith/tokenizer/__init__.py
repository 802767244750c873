"""Text to ids and back, over the `tokenizers` library: read, encode, decode, train, save."""

from bertsmith.tokenizer.extend import Added, extend
from bertsmith.tokenizer.families import FAMILIES, KINDS
from bertsmith.tokenizer.read import FORMATS
from bertsmith.tokenizer.tokenizer import SPELLED, Encoding, Piece, Spelled, Split, Tokenizer
from bertsmith.tokenizer.train import train

__all__ = ["FAMILIES", "FORMATS", "KINDS", "SPELLED", "Added", "Encoding", "Piece", "Spelled"]
__all__ += ["Split", "Tokenizer", "extend", "train"]
