"""The routes of Cohere: embed, classify and rerank, which is also Jina's and infinity's."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from bertsmith.serve.errors import ServeError
from bertsmith.serve.openai import as_base64
from bertsmith.serve.route import Filled, Loose, ModelName, Read, Truncate, by_score, routes
from bertsmith.serve.service import USAGE, ModelService
from bertsmith.tasks.classifying import ClassifyRequest
from bertsmith.tasks.embedding import Vectors, unit_vectors

LONG = {"START": "cut_left", "END": "cut", "NONE": "refuse"}
SHARPNESS = 20.0  # of cosines with the labels of examples, as with those of zero-shot
API = {"version": "1"}


def _bits(vectors: Vectors) -> Any:
    return np.packbits(vectors > 0, axis=1)


# What Cohere calls embedding types. int8 and uint8 need ranges, which no model here states.
TYPES: dict[str, Callable[[Vectors], Any]] = {
    "float": lambda vectors: vectors,
    "base64": lambda vectors: list(map(as_base64, vectors)),
    "ubinary": lambda vectors: _bits(vectors).tolist(),
    "binary": lambda vectors: (_bits(vectors).astype(int) - 128).tolist(),
}


class CohereBody(Loose):
    """The fields of embed and classify. Without `truncate`, long texts are read in windows."""

    model: ModelName = None
    truncate: Literal["NONE", "START", "END"] | None = None

    @property
    def long(self) -> str | None:
        """How long texts are handled; None selects the server's setting."""
        return None if self.truncate is None else LONG[self.truncate]


class TextPart(Loose):
    """A part of an input: text, not an image."""

    type: Literal["text"]
    text: str


class MixedInput(Loose):
    """An input of several parts."""

    content: Filled[TextPart]


class CohereEmbed(CohereBody):
    """Texts to embed: a vector for each, in every type that is asked for."""

    texts: Filled[str] | None = None
    inputs: Filled[MixedInput] | None = None
    images: None = None
    input_type: str | None = None
    embedding_types: Filled[Literal["float", "base64", "binary", "ubinary"]] | None = None
    output_dimension: Annotated[int, Field(ge=1)] | None = None

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """A vector for every text, in all types that were asked for."""
        served = service.pick(self.model, "embed")
        mixed = self.inputs or ()
        texts = self.texts or [" ".join(part.text for part in item.content) for item in mixed]
        if not texts:
            raise ServeError(400, "texts is missing", param="texts")
        query, document = served.bert.sentence.search_prompts
        prompts = {"search_query": query, "search_document": document}
        vectors = await service.embed(
            served,
            texts,
            normalise=True,
            long=self.long,
            dimensions=self.output_dimension,
            prompt=prompts.get(self.input_type or ""),  # others have no prompt: the default
        )
        kinds = {name: TYPES[name](vectors) for name in self.embedding_types or ["float"]}
        answer = {"id": str(uuid4()), "texts": texts, "meta": _meta()}
        return {**answer, "response_type": "embeddings_by_type", "embeddings": kinds}


class CohereEmbedV1(CohereEmbed):
    """Texts to embed: a vector for each, without a type if none is asked for."""

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """A vector for every text."""
        answer = await super().respond(service)
        if self.embedding_types is None:
            vectors = answer["embeddings"]["float"]
            answer |= {"response_type": "embeddings_floats", "embeddings": vectors}
        return answer


class CohereExample(Loose):
    """A text with its label."""

    text: str
    label: str


class CohereClassify(CohereBody):
    """Texts to classify, by a classifier or, with examples, by the vectors of an encoder."""

    inputs: Filled[str]
    examples: list[CohereExample] | None = None

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """The label of every text."""
        if self.examples:
            rows = await self._by_examples(service, self.examples)
            answers = [_classified(*row, None) for row in zip(self.inputs, rows, strict=True)]
        else:
            served = service.pick(self.model, "classify")
            request = ClassifyRequest(inputs=self.inputs)
            predictions = await service.ask(served, "classify", request, self.long)
            answers = [
                _classified(text, prediction.scores, prediction.labels)
                for text, prediction in zip(self.inputs, predictions, strict=True)
            ]
        return {"id": str(uuid4()), "classifications": answers, "meta": _meta()}

    async def _by_examples(
        self, service: ModelService, examples: list[CohereExample]
    ) -> list[dict[str, float]]:
        """Labels compete by the cosine of a text with the mean vector of their examples."""
        names = list(dict.fromkeys(example.label for example in examples))
        if len(names) < 2:
            raise ServeError(400, "examples must have at least two labels", param="examples")
        served, count = service.pick(self.model, "embed"), len(self.inputs)
        texts = [*self.inputs, *(example.text for example in examples)]
        vectors = await service.embed(served, texts, normalise=True, long=self.long)
        own = np.array([names.index(example.label) for example in examples])
        means = np.stack([vectors[count:][own == n].mean(0) for n in range(len(names))])
        scores = np.exp((vectors[:count] @ unit_vectors(means).T - 1) * SHARPNESS)
        scores /= scores.sum(1, keepdims=True)
        return [dict(zip(names, row, strict=True)) for row in scores.tolist()]


def _classified(text: str, scores: dict[str, float], labels: list[str] | None) -> dict[str, Any]:
    """The answer for a text: with `labels` those above their threshold, else the best one."""
    best = None if labels is not None else max(scores, key=scores.__getitem__)
    predictions = labels if best is None else [best]
    return {
        "id": str(uuid4()),
        "input": text,
        "prediction": best,
        "predictions": predictions,
        "confidence": None if best is None else scores[best],
        "confidences": [scores[label] for label in predictions or ()],
        "labels": {name: {"confidence": score} for name, score in scores.items()},
        "classification_type": "multi-label" if best is None else "single-label",
    }


class CohereDocument(Loose):
    """A document as an object with a text."""

    text: str


class CohereRerank(Loose):
    """A query and documents to order by relevance, best first."""

    plain: ClassVar[bool] = False  # documents are answered as texts, not as objects
    model: ModelName = None
    query: str
    documents: Filled[str | CohereDocument]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    truncate: Truncate | None = None
    read: Read = False

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """Documents by relevance, best first."""
        texts = [text if isinstance(text, str) else text.text for text in self.documents]
        served = service.reranker(self.model)
        long = "cut" if self.truncate else None
        scores = await service.relevance(served, [self.query] * len(texts), texts, long=long)
        results = []
        for n in by_score(scores)[: self.top_n]:
            shown = texts[n] if self.plain else {"text": texts[n]}
            document = {"document": shown} if self.return_documents else {}
            results.append({"index": n, "relevance_score": scores[n], **document})
        usage = USAGE.get()
        return {
            "id": str(uuid4()),
            "model": served.name,
            "results": results,
            "usage": usage.counts,
            "meta": {"api_version": API, "billed_units": {"search_units": 1}},
            **({"read": usage.read} if self.read else {}),
        }


class InfinityRerank(CohereRerank):
    """The same for clients of infinity, where a document is a text, not an object."""

    plain = True


def _meta() -> dict[str, Any]:
    return {"api_version": API, "billed_units": {"input_tokens": USAGE.get().tokens}}


def cohere_routes(service: ModelService) -> APIRouter:
    """/v1 and /v2 of rerank and embed, /v1/classify, and infinity's rerank."""
    bodies = {
        "/v1/rerank": CohereRerank,
        "/v2/rerank": CohereRerank,
        "/infinity/rerank": InfinityRerank,
        "/v1/embed": CohereEmbedV1,
        "/v2/embed": CohereEmbed,
        "/v1/classify": CohereClassify,
    }
    return routes("Cohere, Jina", service, bodies)
