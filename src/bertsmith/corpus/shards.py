"""Long arrays in .npy files, written in portions and atomically."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertsmith.corpus.encode import Ints
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, sweep

HEADER = 128  # bytes; of fixed size, so that the length can be written at the end


def header(dtype: np.dtype[Any], length: int) -> bytes:
    """The first bytes of a .npy file (N,) of this length."""
    about = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": (length,)}
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + f"{about}".encode().ljust(HEADER - 11) + b"\n"


class RowWriter:
    """One .npy file (N,) whose length is known when it is finished."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype.newbyteorder("<")
        self.length = 0
        self.opened = ExitStack()
        self.stream = self.opened.enter_context(atomic(path))
        self.stream.write(bytes(HEADER))

    def append(self, values: Ints) -> None:
        """Append rows."""
        self.stream.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def finish(self) -> None:
        """Write the length, then rename the file to its final name."""
        self.stream.seek(0)
        self.stream.write(header(self.dtype, self.length))
        self.opened.close()


class SplitWriter:
    """A split of a corpus: its tokens in shards, and where sentences and documents begin."""

    def __init__(
        self, folder: Path, dtype: np.dtype[Any], shard_tokens: int, suffix: str = ""
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        self.folder, self.dtype, self.shard_tokens = folder, dtype, shard_tokens
        self.tokens = self.sentences = self.documents = 0
        self.shards: list[RowWriter] = []
        self.indexes: dict[str, RowWriter] = {}
        self.suffix, self.before = suffix, 0  # of its files, and the shards before them

    def start(
        self, indexes: Sequence[Ints] = (), shards: int = 0, rest: Ints | None = None
    ) -> None:
        """Open the files of an empty split, or continue one after its full shards and the `rest`.

        Files that are there stay as they are, so that the split is readable all the time.
        """
        indexes = indexes or [np.zeros(1, np.int64)] * len(INDEXES)
        for name, rows in zip(INDEXES, indexes, strict=True):
            path = self.folder / f"{name}{self.suffix}.npy"
            self.indexes[name] = RowWriter(path, np.dtype("<i8"))
            self.indexes[name].append(rows)
        self.before, self.tokens = shards, shards * self.shard_tokens
        self.sentences, self.documents = len(indexes[0]) - 1, len(indexes[1]) - 1
        if rest is not None:
            self._append(rest)

    def append(self, tokens: Ints, sentence_lengths: Ints, document_sentences: Ints) -> None:
        """Add some documents."""
        if not len(document_sentences):
            return
        sentence_ends = self.tokens + sentence_lengths.cumsum(dtype=np.int64)
        document_ends = document_sentences.cumsum(dtype=np.int64)
        self.indexes["sentence_starts"].append(sentence_ends)
        self.indexes["document_sentences"].append(self.sentences + document_ends)
        self.indexes["document_starts"].append(sentence_ends[document_ends - 1])
        self._append(tokens)
        self.sentences += len(sentence_lengths)
        self.documents += len(document_sentences)

    def _append(self, tokens: Ints) -> None:
        self.tokens += len(tokens)
        while len(tokens):
            if not self.shards or self.shards[-1].length == self.shard_tokens:
                if self.shards:
                    self.shards[-1].finish()
                number = self.before + len(self.shards)
                path = self.folder / f"{shard_name(number)}{self.suffix}.npy"
                self.shards.append(RowWriter(path, self.dtype))
            room = self.shard_tokens - self.shards[-1].length
            self.shards[-1].append(tokens[:room])
            tokens = tokens[room:]

    def finish(self) -> None:
        """Finish all files and rename them to their final names."""
        for writer in [*self.shards[-1:], *self.indexes.values()]:
            writer.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in [*self.shards, *self.indexes.values()]:
            with suppress(BertsmithError):  # on a full disk closing may fail as well
                writer.opened.__exit__(*error)


INDEXES = ("sentence_starts", "document_sentences", "document_starts")


def shard_name(number: int) -> str:
    """The name of a shard of tokens."""
    return f"tokens-{number:05}"
