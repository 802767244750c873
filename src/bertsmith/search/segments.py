"""Segments: immutable files of vectors, named by their SHA-256 sums."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.files import UNREADABLE, cause, digest, sync, write_bytes, writing
from bertsmith.search.database import DamagedIndexError

Matrix = np.ndarray[Any, np.dtype[Any]]
DTYPES = ("float32", "float16", "int8")


@dataclass(frozen=True)
class Segment:
    """A file of vectors (rows, dimension) as recorded in the database."""

    id: int  # 0 before it is recorded
    name: str
    sha256: str
    rows: int
    dimension: int
    dtype: str


class DamagedSegmentError(DamagedIndexError):
    """A segment is missing or damaged."""

    def __init__(self, segment: Segment, message: str) -> None:
        super().__init__(message)
        self.segment = segment


def write_segment(folder: Path, matrices: Sequence[Matrix], dtype: str) -> Segment:
    """Write vectors to a new file, named by its sum, and flush it to the disk."""
    vectors = np.concatenate([stored(matrix, dtype) for matrix in matrices]).astype(dtype)
    content = io.BytesIO()
    np.save(content, vectors)
    sha256 = hashlib.sha256(content.getbuffer()).hexdigest()
    name = f"{sha256[:24]}.npy"
    write_bytes(folder / name, content.getvalue())
    with writing(folder):
        sync(folder)
    rows, dimension = vectors.shape
    return Segment(0, name, sha256, rows, dimension, dtype)


def stored(vectors: Matrix, dtype: str) -> Matrix:
    """Return unit vectors as a segment stores them.

    int8 scales each vector so that its largest value is 127. The scale is not stored: the length
    of every vector is 1, so that it is the inverse of the length of the integers.
    """
    if dtype != "int8" or vectors.dtype == np.int8:
        return vectors
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    return np.rint(vectors * (np.float32(127) / np.maximum(largest, np.float32(1e-12))))


def unit_vectors(matrix: Matrix) -> Matrix:
    """Return stored vectors as float32 vectors of length 1 (empty texts: 0)."""
    vectors = np.asarray(matrix, dtype=np.float32)
    if matrix.dtype == np.int8:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(lengths, np.float32(1e-12))
    return vectors


def open_segment(folder: Path, segment: Segment, verify: bool = False) -> Matrix:
    """Map the vectors of a segment into memory; `verify` compares their checksum first."""
    path = folder / segment.name
    try:
        if verify and digest(path) != segment.sha256:
            raise DamagedSegmentError(segment, f"{path}: damaged (its SHA-256 sum differs)")
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DamagedSegmentError(segment, f"{path}: missing") from None
    except (*UNREADABLE, ValueError) as error:
        raise DamagedSegmentError(segment, f"{path}: cannot be read ({cause(error)})") from None
    if vectors.shape != (segment.rows, segment.dimension) or vectors.dtype.name != segment.dtype:
        raise DamagedSegmentError(segment, f"{path}: not the vectors that the database describes")
    return vectors
