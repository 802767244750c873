"""The routes of Cohere: embed, classify and rerank, which is also Jina's and infinity's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.openai import check_dimensions
from bertsmith.serve.route import Filled, JsonRoute, Loose, ModelName, Read, Truncate
from bertsmith.serve.work import USAGE, Work
from bertsmith.tasks.classifying import ClassifyRequest
from bertsmith.tasks.embedding import Vectors

LONG = {"START": "cut_left", "END": "cut", "NONE": "refuse"}
SHARPNESS = 20.0  # of cosines with the labels of examples, as with those of zero-shot
Longer = Literal["NONE", "START", "END"] | None  # without one, long texts are read in windows


def _bits(vectors: Vectors) -> Any:
    return np.packbits(vectors > 0, axis=1)


# What Cohere calls embedding types. int8 and uint8 need ranges, which no model here states.
TYPES: dict[str, Callable[[Vectors], Any]] = {
    "float": lambda vectors: vectors,
    "base64": lambda vectors: [
        base64.b64encode(one.astype("<f4").tobytes()).decode() for one in vectors
    ],
    "ubinary": lambda vectors: _bits(vectors).tolist(),
    "binary": lambda vectors: (_bits(vectors).astype(int) - 128).tolist(),
}


class Document(Loose):
    """A document as an object with a text."""

    text: str


class CohereRerank(Loose):
    """A query and documents to order by relevance."""

    model: ModelName = None
    query: str
    documents: Filled[str | Document]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    truncate: Truncate | None = None
    read: Read = False


class Part(Loose):
    """A part of an input: text, not an image."""

    type: Literal["text"]
    text: str


class Parts(Loose):
    """An input of several parts."""

    content: Filled[Part]


class CohereEmbed(Loose):
    """Texts to embed."""

    model: ModelName = None
    texts: Filled[str] | None = None
    inputs: Filled[Parts] | None = None
    images: None = None
    input_type: str | None = None
    embedding_types: Filled[Literal["float", "base64", "binary", "ubinary"]] | None = None
    output_dimension: Annotated[int, Field(ge=1)] | None = None
    truncate: Longer = None


class CohereExample(Loose):
    """A text with its label."""

    text: str
    label: str


class CohereClassify(Loose):
    """Texts to classify, by a classifier or, with examples, by the vectors of an encoder."""

    model: ModelName = None
    inputs: Filled[str]
    examples: list[CohereExample] | None = None
    truncate: Longer = None


async def cohere_embed(work: Work, body: CohereEmbed, typed: bool) -> dict[str, Any]:
    """A vector for every text, in all types that were asked for."""
    served = work.models.pick(body.model, "embed")
    check_dimensions(work, served, body.output_dimension)
    texts = body.texts or [" ".join(p.text for p in one.content) for one in body.inputs or ()]
    if not texts:
        raise ServeError(400, "texts is missing", param="texts")
    sentence, long = served.bert.sentence, body.truncate and LONG[body.truncate]
    query, document = sentence.search_prompts
    prompts = {"search_query": query, "search_document": document}
    start = prompts.get(body.input_type or "")  # others have no prompt: the model's default
    vectors = await work.embed(
        served, texts, normalise=True, long=long, dimensions=body.output_dimension, prompt=start
    )
    answer: dict[str, Any] = {"id": str(uuid4()), "texts": texts, "meta": _meta()}
    if not typed and body.embedding_types is None:
        return {**answer, "response_type": "embeddings_floats", "embeddings": vectors}
    kinds = {name: TYPES[name](vectors) for name in body.embedding_types or ["float"]}
    return {**answer, "response_type": "embeddings_by_type", "embeddings": kinds}


async def cohere_classify(work: Work, body: CohereClassify) -> dict[str, Any]:
    """The label of every text."""
    long, several = body.truncate and LONG[body.truncate], False
    if body.examples:
        rows = await _by_examples(work, body, body.examples, long)
    else:
        served = work.models.pick(body.model, "classify")
        asked = ClassifyRequest(inputs=body.inputs)
        found = await work.ask(served, "classify", asked, long)
        rows, several = [one.scores for one in found], found[0].labels is not None
        chosen = [one.labels for one in found] if several else None
    answers = []
    for number, (text, scores) in enumerate(zip(body.inputs, rows, strict=True)):
        best = max(scores, key=scores.__getitem__)
        labels = chosen[number] if several and chosen else [best]
        answers.append(
            {
                "id": str(uuid4()),
                "input": text,
                "prediction": None if several else best,
                "predictions": labels,
                "confidence": None if several else scores[best],
                "confidences": [scores[label] for label in labels],
                "labels": {name: {"confidence": score} for name, score in scores.items()},
                "classification_type": "multi-label" if several else "single-label",
            }
        )
    return {"id": str(uuid4()), "classifications": answers, "meta": _meta()}


async def _by_examples(
    work: Work, body: CohereClassify, examples: list[CohereExample], long: str | None
) -> list[dict[str, float]]:
    """Labels compete by the cosine of a text's vector with the mean vector of their examples."""
    names = list(dict.fromkeys(one.label for one in examples))
    if len(names) < 2:
        raise ServeError(400, "examples must have at least two labels", param="examples")
    served, count = work.models.pick(body.model, "embed"), len(body.inputs)
    texts = [*body.inputs, *(one.text for one in examples)]
    vectors = await work.embed(served, texts, normalise=True, long=long)
    own = np.array([names.index(one.label) for one in examples])
    means = np.stack([vectors[count:][own == n].mean(0) for n in range(len(names))])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    scores = np.exp((vectors[:count] @ means.T - 1) * SHARPNESS)
    scores /= scores.sum(1, keepdims=True)
    return [dict(zip(names, row, strict=True)) for row in scores.tolist()]


def _meta() -> dict[str, Any]:
    units = {"input_tokens": USAGE.get().tokens}
    return {"api_version": {"version": "1"}, "billed_units": units}


async def cohere_rerank(work: Work, body: CohereRerank) -> dict[str, Any]:
    """Documents by relevance, best first."""
    texts = [one if isinstance(one, str) else one.text for one in body.documents]
    served = reranker(work, body.model)
    long = "cut" if body.truncate else None
    scores = await work.relevance(served, [body.query] * len(texts), texts, long=long)
    order = sorted(range(len(scores)), key=lambda n: -scores[n])[: body.top_n]
    usage = USAGE.get()
    results = [
        {"index": n, "relevance_score": scores[n]}
        | ({"document": {"text": texts[n]}} if body.return_documents else {})
        for n in order
    ]
    return {
        "id": str(uuid4()),
        "model": served.name,
        "results": results,
        "usage": {"prompt_tokens": usage.tokens, "total_tokens": usage.tokens},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
        **({"read": usage.read} if body.read else {}),
    }


def reranker(work: Work, name: str | None) -> ServedModel:
    """Return the model of this name; without a name, the one that suits best.

    That is a cross-encoder, else a model without labels, whose vectors are compared, else a
    classifier with a label that may mean relevant.
    """

    def order(one: ServedModel) -> int:
        try:
            if one.pair_scores is None:
                return 1 if one.task.head is None else 2
        except ServeError:
            return 4
        return 0 if one.cross_encoder else 3

    served = work.models.named(name) if name else min(work.models, key=order)
    _ = served.pair_scores  # an error where the model cannot rank texts
    return served


def cohere_routes(work: Work) -> APIRouter:
    """/v1 and /v2 of rerank and embed, /v1/classify, and infinity's rerank."""
    router = APIRouter(route_class=JsonRoute, tags=["Cohere, Jina"])

    @router.post("/v1/rerank")
    @router.post("/v2/rerank")
    async def rerank(body: CohereRerank) -> dict[str, Any]:
        """Documents by relevance, best first."""
        return await cohere_rerank(work, body)

    @router.post("/infinity/rerank")
    async def infinity_rerank(body: CohereRerank) -> dict[str, Any]:
        """The same for clients of infinity, where a document is a text, not an object."""
        answer = await cohere_rerank(work, body)
        for one in answer["results"]:
            one |= {"document": one["document"]["text"]} if "document" in one else {}
        return answer

    @router.post("/v1/embed")
    async def embed(body: CohereEmbed) -> dict[str, Any]:
        """A vector for every text."""
        return await cohere_embed(work, body, typed=False)

    @router.post("/v2/embed")
    async def embed_by_type(body: CohereEmbed) -> dict[str, Any]:
        """A vector for every text, by type."""
        return await cohere_embed(work, body, typed=True)

    @router.post("/v1/classify")
    async def classify(body: CohereClassify) -> dict[str, Any]:
        """The label of every text."""
        return await cohere_classify(work, body)

    return router
