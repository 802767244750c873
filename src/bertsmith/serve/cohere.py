"""The rerank routes of Cohere and Jina."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter
from pydantic import Field

from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Filled, JsonRoute, Loose, ModelName, Read, Truncate
from bertsmith.serve.work import USAGE, Work


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
    """/v1/rerank and /v2/rerank."""
    router = APIRouter(route_class=JsonRoute, tags=["Cohere, Jina"])

    @router.post("/v1/rerank")
    @router.post("/v2/rerank")
    async def rerank(body: CohereRerank) -> dict[str, Any]:
        """Documents by relevance, best first."""
        return await cohere_rerank(work, body)

    return router
