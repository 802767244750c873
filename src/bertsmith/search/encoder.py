"""The encoder of an index: texts → unit vectors, identified by a hash."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.ledger import Ledger

if TYPE_CHECKING:  # what imports PyTorch is imported when a model is needed
    from bertsmith.infer.loaded import LoadedModel

Vectors = np.ndarray[Any, np.dtype[np.float32]]
DEFAULT_MODEL = "bertsmith-embed"
LONG = ("window", "cut")
WINDOWED = "long texts read in windows"  # in a model's ledger
Prompts = tuple[str | None, str | None]  # before queries, before documents


class TextEncoder:
    """A model that turns texts into vectors of length 1; it is loaded when it is first needed.

    Texts beyond the model's maximum length are read in windows, or with `long="cut"` truncated.
    `width` is the number of elements of a vector that are kept.
    """

    def __init__(
        self,
        name: str | Path,
        device: str | None = None,
        dtype: str | None = None,
        long: str = "window",
        prompts: Prompts = (None, None),
        width: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Open a model; a prompt that is None is the model's default one."""
        if long not in LONG:
            raise BertsmithError(f"unknown way to read long passages {long!r}; known: window, cut")
        from bertsmith.checkpoint import locate, model_hash

        directory = locate(name)
        self.name = str(directory.resolve()) if Path(name).exists() else str(name)
        self.hash = model_hash(directory)  # of all files that determine the vectors
        self.device, self.dtype, self.ledger = device, dtype, ledger
        self.long, self.prompts, self.width = long, prompts, width

    @cached_property
    def model(self) -> "LoadedModel":
        """The model itself."""
        from bertsmith.infer.opening import open_model

        model = open_model(self.name, device=self.device, dtype=self.dtype, progress=False)
        model.ledger = self.ledger or model.ledger
        return model

    @property
    def dimension(self) -> int:
        """The width of the vectors."""
        return self.width or self.model.vector_width

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
            "query_prompt": self.prompts[0],
            "document_prompt": self.prompts[1],
            "width": self.width,
        }

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors (N, D) of documents; long ones are read in windows, or cut."""
        return self._embed(list(texts), self.prompts[1])

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors (N, D) of queries."""
        return self._embed(list(texts), self.prompts[0])

    def embed_query(self, text: str) -> Vectors:
        """The unit vector (D,) of a query."""
        return self.embed_queries([text])[0]

    def _embed(self, texts: list[str], prompt: str | None) -> Vectors:
        from bertsmith.tasks.embedding import embed

        vectors = embed(
            self.model, texts, normalise=True, long=self.long, prompt=prompt, width=self.width
        )
        # Empty texts and overflows in half precision get a zero vector.
        return np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)

    @property
    def _loaded(self) -> "LoadedModel | None":
        """The model, if it was needed already."""
        return self.__dict__.get("model")

    def portion(self, inputs: int) -> int:
        """The number of inputs to embed at once on all devices, from that of one device."""
        return inputs if self._loaded is None else self._loaded.portion(inputs)

    def note_windows(self, ledger: Ledger) -> None:
        """Count the passages that took several windows, and say how to save the time."""
        count = 0 if self._loaded is None else self._loaded.ledger.counts.pop(WINDOWED, 0)
        if count:
            what = f"passages of more than {self.stamp['max_length']} tokens"
            advice = "`long` set to cut reads only their beginning, which is faster"
            ledger.note(f"{what}, read in several windows ({advice})", count)


def search_prompts(name: str | Path) -> Prompts:
    """The prompts that a model stores for queries and documents."""
    from bertsmith.checkpoint import Sentence, locate, read_sentence

    directory = locate(name)
    _, sentence = read_sentence(directory) or (directory, Sentence())
    return sentence.search_prompts


def encoder_of(
    stamp: Mapping[str, Any],
    name: str | Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    ledger: Ledger | None = None,
) -> TextEncoder:
    """The encoder of an index, with the settings of its vectors; `name` is its new location."""
    place, long = str(name or stamp.get("name")), stamp.get("long", "window")
    prompts = stamp.get("query_prompt"), stamp.get("document_prompt")
    return TextEncoder(place, device, dtype, long, prompts, stamp.get("width"), ledger)


def another_model(path: Path, stamp: Mapping[str, Any], name: str) -> BertsmithError:
    """Return the error for a model other than the one that embedded the index."""
    command = f"bertsmith index --out {path} --model {name} --re-embed"
    return BertsmithError(
        f"{path}: its vectors were computed with {stamp['name']}; {name} is another model (or its"
        f" files changed). To change it: {setting_name('re_embed', True, command)}"
    )
