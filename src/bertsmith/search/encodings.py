"""Detection of character encodings."""

import codecs
from pathlib import Path

from bertsmith.data.streams import marked_encoding
from bertsmith.files import open_bytes, reading
from bertsmith.ledger import Ledger

SAMPLE = 1 << 18  # bytes that the detection reads
PORTION = 1 << 20
GUESSED = "files whose character encoding was guessed"


def is_text(data: bytes) -> bool:
    """Whether bytes are text: without NUL, or with a byte order mark."""
    head = data[:8192]
    return b"\0" not in head or bool(marked_encoding(head) or _wide(head))


def _wide(head: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark by the positions of NUL bytes."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = max(1, len(head) // 2)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * half and odd < 0.05 * half else None


def decode(data: bytes, path: Path, ledger: Ledger) -> str:
    """Decode the bytes of a file after detecting their encoding."""
    name = marked_encoding(data) or _wide(data[:8192]) or "utf-8"
    try:
        return data.decode(name).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        start = max(0, error.start - SAMPLE // 2)
        return data.decode(_guess(data[start : start + SAMPLE], ledger), "replace")


def encoding_of(path: Path, ledger: Ledger) -> str | None:
    """The encoding of a file that is read in portions; None for UTF-8 and byte order marks."""
    with reading(path), open_bytes(path) as (stream, _):
        first = stream.read(PORTION)
        if marked_encoding(first):
            return None
        if wide := _wide(first[:8192]):
            return wide
        decoder = codecs.getincrementaldecoder("utf-8")()
        part = first
        try:
            while part:
                decoder.decode(part)
                part = stream.read(PORTION)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return _guess(first[:SAMPLE] if part in (first, b"") else part, ledger)
    return None


def _guess(sample: bytes, ledger: Ledger) -> str:
    """Return the most probable encoding; Windows-1252 if detection is not possible."""
    ledger.note(GUESSED)
    try:
        from charset_normalizer import from_bytes

        best = from_bytes(sample).best()
    except ImportError:
        best = None
    if best is not None and best.encoding not in ("utf_8", "ascii"):
        return best.encoding
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"
