"""Documents → pieces of all lengths: titles, sentences and passages."""

import math
import re
import zlib
from collections.abc import Iterator
from random import Random

SHORTEST = 6  # words that a piece has at least, if the text goes on
BREAK = re.compile(r"\n+|(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")  # lines and sentences


def pieces_of(text: str, longest: int) -> Iterator[str]:
    """Cut a text into pieces that end with a sentence or a line, if that leaves room.

    Their lengths are drawn from 6 to `longest` words on a logarithmic scale, by the text alone; a
    first line of up to 12 words is a title and a piece of its own.
    """
    draws = Random(zlib.crc32(text.encode("utf-8", "surrogatepass")))
    sentences = [one.split() for one in BREAK.split(text) if one and not one.isspace()]
    if len(sentences) > 1 and len(sentences[0]) <= 12 and "\n" in text:
        yield " ".join(sentences.pop(0))
    low, high = math.log(min(SHORTEST, longest)), math.log(longest)
    piece: list[str] = []
    wanted = math.exp(draws.uniform(low, high))
    for words in sentences:
        if piece and (len(piece) >= wanted or len(piece) + len(words) > longest):
            yield " ".join(piece)
            piece, wanted = [], math.exp(draws.uniform(low, high))
        while len(words) > longest:  # a sentence without an end
            yield " ".join(words[:longest])
            words = words[longest:]
        piece += words
    if piece:
        yield " ".join(piece)
