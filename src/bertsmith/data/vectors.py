"""Vectors to a file as they are computed: .npy, or .jsonl and .parquet with their rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from bertsmith.data.predictions import merged, open_predictions
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic

ENDINGS = (".npy", ".jsonl", ".parquet")


def check_ending(out: Path) -> None:
    """Refuse a file whose name does not say in which format it is written."""
    if out.suffix not in ENDINGS:
        raise BertsmithError(f"{out}: the name must end in .npy, .jsonl or .parquet")


@contextmanager
def open_vectors(out: Path) -> Iterator["_Array | _Rows"]:
    """A file that appears when it is complete, in the format that its name ends with."""
    check_ending(out)
    if out.suffix == ".npy":
        with atomic(out) as stream, closing(_Array(out, stream)) as array:
            yield array
    else:
        with open_predictions(out) as writer:
            yield _Rows(writer, arrays=out.suffix == ".parquet")


class _Rows:
    def __init__(self, writer: Any, arrays: bool) -> None:
        self.writer, self.arrays = writer, arrays  # whether it writes arrays as they are

    def write(self, rows: Sequence[Mapping[str, Any]], vectors: np.ndarray[Any, Any]) -> None:
        pairs = zip(rows, vectors if self.arrays else vectors.tolist(), strict=True)
        self.writer.write([merged(row, (), {"vector": vector}) for row, vector in pairs])


class _Array:
    """A .npy file whose number of rows is known only at the end, when its header is written."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        if not stream.seekable():
            raise BertsmithError(f"{path}: .npy cannot be written to a pipe; write .jsonl")
        self.stream, self.count, self.width = stream, 0, 0
        self._write_header()

    def write(self, rows: Sequence[Mapping[str, Any]], vectors: np.ndarray[Any, Any]) -> None:
        self.count, self.width = self.count + len(vectors), vectors.shape[1]
        self.stream.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())

    def close(self) -> None:
        self.stream.seek(0)
        self._write_header()
        self.stream.seek(0, 2)

    def _write_header(self) -> None:
        """Write the header, in which numpy leaves room for more rows."""
        shape = (self.count, self.width)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.stream, header)
