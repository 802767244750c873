"""Lines of text files, plain or compressed, in bounded memory."""

from collections.abc import Iterable, Iterator
from encodings.utf_8_sig import IncrementalDecoder
from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.files import inner, not_utf8, open_bytes, reading

LONGEST = 1 << 20  # bytes; a longer line is read in pieces


def read_lines(files: Iterable[str | Path]) -> Iterator[str]:
    """Yield the lines of UTF-8 files, one after the other, without their ends."""
    for file in map(Path, files):
        if inner(file).suffix.lower() in (".jsonl", ".ndjson", ".parquet"):
            raise BertsmithError(
                f"{file}: not plain text; read it with bertsmith.corpus.text_lines"
            )
        yield from _lines(file)


def _lines(path: Path) -> Iterator[str]:
    decode = IncrementalDecoder().decode
    number = 1
    try:
        with reading(path), open_bytes(path) as (stream, _):
            while raw := stream.readline(LONGEST):
                yield decode(raw).rstrip("\r\n")
                number += raw.endswith(b"\n")
            decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise not_utf8(path, number, error.object[error.start]) from None
