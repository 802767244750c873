"""The request bodies of text-embeddings-inference (TEI)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, Tag

from bertsmith.serve.cohere import CohereRerank
from bertsmith.serve.own import OwnBody, kind_by
from bertsmith.serve.route import Body, Filled, Loose, ModelName, Read, Truncate

Ids = Filled[int]
Input = str | Ids | Filled[str | Ids]
Direction = Literal["right", "left", "Right", "Left"]


class Truncation(BaseModel):
    """The fields that say how long texts are handled."""

    truncate: Truncate | None = None
    truncation_direction: Direction = "right"

    @property
    def long(self) -> str | None:
        """How long texts are handled; None selects the server's setting."""
        if not self.truncate:
            return None
        return "cut" if self.truncation_direction.lower() == "right" else "cut_left"


class TeiBody(Truncation, Loose):
    """The fields that most routes of TEI accept; `model` and `read` are additions."""

    model: ModelName = None
    prompt_name: str | None = None


class EmbedBody(TeiBody):
    """Texts to embed."""

    inputs: Input
    normalize: bool | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    pooling: Literal["mean", "cls"] | None = None
    read: Read = False


class EmbedAllBody(TeiBody):
    """Texts whose tokens are embedded."""

    inputs: Input


Pair = Annotated[list[str], Field(min_length=1, max_length=2)]


class PredictBody(TeiBody):
    """A text, a pair of texts, or a batch of lists of one or two texts."""

    inputs: str | Pair | Filled[Pair]
    raw_scores: bool = False


class RerankBody(TeiBody):
    """A query and texts to order by relevance."""

    query: str
    texts: Filled[str]
    raw_scores: bool = False
    return_text: bool = False
    read: Read = False


class Sentences(Loose):
    """A sentence and those that it is compared with."""

    source_sentence: str
    sentences: Filled[str]


class SimilarityParameters(Truncation, Body):
    """How sentences are read."""

    prompt_name: str | None = None


class SimilarityBody(Loose):
    """Sentences to compare, as TEI asks."""

    model: ModelName = None
    inputs: Sentences
    parameters: SimilarityParameters | None = None


class TokenSimilarityBody(OwnBody):
    """Two texts to compare token by token."""

    first: str
    second: str


class TokenizeBody(Loose):
    """Texts to split into tokens."""

    model: ModelName = None
    inputs: str | Filled[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(Loose):
    """Token ids to turn into text."""

    model: ModelName = None
    ids: Ids | Filled[Ids]
    skip_special_tokens: bool = True


Rerank = Annotated[
    Annotated[RerankBody, Tag("tei")] | Annotated[CohereRerank, Tag("cohere")],
    kind_by(lambda keys: "documents" in keys, "cohere", "tei"),
]
Similarity = Annotated[
    Annotated[SimilarityBody, Tag("tei")] | Annotated[TokenSimilarityBody, Tag("own")],
    kind_by(lambda keys: "inputs" in keys, "tei", "own"),
]
