"""A small, safe reader of SentencePiece .model files, without protobuf.

A .model file is a protocol buffer: fields of (key, value), the key holding the field's number
and the shape of its value. Only the few fields that a tokenizer needs are looked at.
"""

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # types of pieces
MOST_PIECES = 1_000_000  # four times those of the largest published model of this kind
ALGORITHMS = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}


class SentencePiece(NamedTuple):
    """One entry of the vocabulary; its id is its place in the file."""

    text: str
    score: float
    type: int


class Normalization(NamedTuple):
    """How a model changes text before it is split."""

    charsmap: bytes = b""  # compiled rules
    rule: str = ""  # their name: nmt_nfkc, nfkc, identity, ...
    dummy_prefix: bool = True  # a text begins with a space
    remove_extra_spaces: bool = True

    @property
    def is_nfkc(self) -> bool:
        """Whether the rules contain the Unicode normalization form NFKC."""
        return bool(self.charsmap) and "nfkc" in self.rule


class SentencePieceModel(NamedTuple):
    """What a unigram model is made of."""

    pieces: list[SentencePiece]
    unknown: int  # the id of the unknown piece
    normalization: Normalization
    byte_fallback: bool  # characters without a piece are spelled in bytes: <0xE2>


def parse(data: bytes) -> SentencePieceModel:
    """Read the bytes of a .model file; raise ValueError for anything but a unigram model."""
    pieces: list[SentencePiece] = []
    trainer, normalizer = dict[int, int | bytes](), dict[int, int | bytes]()
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
            if len(pieces) > MOST_PIECES:
                raise ValueError(f"a SentencePiece model of more than {MOST_PIECES:,} pieces")
        elif number == 2:  # trainer_spec
            trainer = dict(_fields(_bytes(value)))
        elif number == 3:  # normalizer_spec
            normalizer = dict(_fields(_bytes(value)))
    if (algorithm := trainer.get(3, 1)) != 1:
        kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, int) else None
        raise ValueError(f"a SentencePiece model of kind {kind}; only unigram ones are read")
    normalization = Normalization(
        charsmap=_bytes(normalizer.get(2, b"")),
        rule=_text(_bytes(normalizer.get(1, b""))),
        dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_spaces=bool(normalizer.get(4, 1)),
    )
    texts = {piece.text for piece in pieces}
    if len(texts) != len(pieces):
        raise ValueError("a SentencePiece model in which a piece occurs twice")
    unknown = [index for index, piece in enumerate(pieces) if piece.type == UNKNOWN]
    if len(unknown) != 1:
        raise ValueError(f"a SentencePiece model with {len(unknown)} unknown pieces, not one")
    all_bytes = texts.issuperset(f"<0x{byte:02X}>" for byte in range(256))
    fallback = bool(trainer.get(35, 0)) and all_bytes
    return SentencePieceModel(pieces, unknown[0], normalization, fallback)


def _piece(data: bytes) -> SentencePiece:
    text, score, type_ = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1:
            text = _text(_bytes(value))
        elif number == 2:
            if len(_bytes(value)) != 4:
                raise ValueError("not a SentencePiece model: a score of another size")
            score = float(struct.unpack("<f", _bytes(value))[0])
        elif number == 3 and isinstance(value, int):
            type_ = value
    if not text or not math.isfinite(score):
        raise ValueError("a SentencePiece model with an empty piece or a score that is none")
    return SentencePiece(text, score, type_)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("not a SentencePiece model: a number where bytes should be")
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not a SentencePiece model: a piece is not UTF-8") from None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value): an int for a varint, else the value's bytes."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        shape = key & 7
        if shape == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if shape == 2:
            length, position = _varint(data, position)
        elif shape in (1, 5):
            length = 8 if shape == 1 else 4
        else:
            raise ValueError(f"not a SentencePiece model: field of shape {shape}")
        if length > end - position:
            raise ValueError("a SentencePiece model that is cut short, or not one at all")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number written seven bits a byte, low bits first, and the place after it."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a SentencePiece model that is cut short, or not one at all")
