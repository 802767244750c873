"""The encoder of an index: texts → unit vectors, identified by a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.checkpoint import locate, read_sentence
from bertsmith.errors import BertsmithError
from bertsmith.files import reading
from bertsmith.ledger import Ledger
from bertsmith.tasks.embedding import Vectors, embed
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.opening import open_model

DEFAULT_MODEL = "bertsmith-embed"
LONG = ("window", "cut")
HASHED: tuple[str, ...] = (
    "*.safetensors",
    "config.json",
    "tokenizer.json",
    "vocab.txt",
    "*.model",
    "modules.json",
)
HASHED += ("1_Pooling/config.json", "sentence_*_config.json", "config_sentence_transformers.json")


class Encoder:
    """A model that turns texts into vectors of length 1; it is loaded when it is first needed."""

    long = "window"  # texts beyond the model's maximum length: "window", or "cut" (truncate)

    def __init__(
        self,
        name: str | Path,
        device: str | None = None,
        dtype: str = "float32",
        long: str = "window",
    ) -> None:
        if long not in LONG:
            raise BertsmithError(f"unknown way to read long passages {long!r}; known: window, cut")
        directory = locate(name)
        self.name = str(directory.resolve()) if Path(name).exists() else str(name)
        self.hash = model_hash(directory)  # of all files that determine the vectors
        self.device, self.dtype, self.long = device, dtype, long
        self.ledger: Ledger | None = None

    @cached_property
    def model(self) -> LoadedModel:
        """The model itself."""
        model = open_model(self.name, device=self.device, dtype=self.dtype, progress=False)
        model.ledger = self.ledger or model.ledger
        return model

    @property
    def dimension(self) -> int:
        """The width of the vectors."""
        return self.model.checkpoint.config.width

    @property
    def stamp(self) -> dict[str, Any]:
        """The description of the model that is stored in an index."""
        sentence = self.model.sentence
        limit = min(self.model.max_length, sentence.max_length or self.model.max_length)
        return {
            "name": self.name,
            "hash": self.hash,
            "pooling": sentence.pool,
            "dimension": self.dimension,
            "max_length": limit,
            "long": self.long,
        }

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors (N, D) of texts; long ones are read in windows, or cut."""
        vectors = embed(self.model, list(texts), normalise=True, long=self.long)
        # Empty texts and overflows in half precision get a zero vector.
        return np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)


def model_hash(name: str | Path) -> str:
    """Return the SHA-256 sum of the files of a model that determine its vectors."""
    directory = locate(name)
    sentence = read_sentence(directory)
    total = hashlib.sha256()
    folders = {directory, sentence[0]} if sentence else {directory}
    for folder in sorted(folders):
        for path in sorted({path for pattern in HASHED for path in folder.glob(pattern)}):
            with reading(path), path.open("rb") as stream:
                total.update(f"{path.name}\0".encode())
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()
