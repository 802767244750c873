"""Text to ids and back, over the `tokenizers` library: read, encode, decode, train, save."""

from bertsmith.tokenizer.extend import Added, extend
from bertsmith.tokenizer.families import FAMILIES, KINDS
from bertsmith.tokenizer.read import FORMATS
from bertsmith.tokenizer.tokenizer import SPELLED, Encoding, Spelled, Tokenizer, TokenSplit
from bertsmith.tokenizer.train import train

__all__ = ["FAMILIES", "FORMATS", "KINDS", "SPELLED", "Added", "Encoding", "Spelled", "TokenSplit"]
__all__ += ["Tokenizer", "extend", "train"]
