"""The classification and score routes of vLLM."""

from __future__ import annotations

from time import time
from typing import Any
from uuid import uuid4

from fastapi import APIRouter

from bertsmith.serve.cohere import reranker
from bertsmith.serve.errors import ServeError
from bertsmith.serve.own import Dialect
from bertsmith.serve.route import JsonRoute, Loose, ModelName, Read, Truncate
from bertsmith.serve.work import USAGE, Work
from bertsmith.tasks.classifying import ClassifyRequest
from bertsmith.tasks.use import Texts, listed


class VllmClassify(Loose):
    """Texts to classify."""

    model: ModelName = None
    input: Texts
    truncate: Truncate | None = None
    read: Read = False


class VllmScore(Loose):
    """One text and many, or the same number on both sides."""

    model: ModelName = None
    text_1: Texts
    text_2: Texts
    truncate: Truncate | None = None
    read: Read = False


async def vllm_classify(work: Work, body: VllmClassify) -> dict[str, Any]:
    """The label of every text and the probabilities of all labels, in their order."""
    served = work.models.pick(body.model, "classify")
    long = "cut" if body.truncate else None
    rows = await work.ask(served, "classify", ClassifyRequest(inputs=body.input), long)
    labels = served.bert.checkpoint.labels
    data = [
        {
            "index": index,
            "label": one.label,
            "probs": [one.scores[label] for label in labels],
            "num_classes": len(labels),
        }
        for index, one in enumerate(rows)
    ]
    return _answer("classify", served.name, data, body.read)


VLLM_CLASSIFY = Dialect(VllmClassify, lambda keys: "input" in keys, vllm_classify, dict[str, Any])


def _answer(kind: str, model: str, data: list[dict[str, Any]], read: bool) -> dict[str, Any]:
    usage = USAGE.get()
    tokens = usage.tokens
    return {
        "id": f"{kind}-{uuid4().hex}",
        "object": "list",
        "created": int(time()),
        "model": model,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        **({"read": usage.read} if read else {}),
    }


def vllm_routes(work: Work) -> APIRouter:
    """/score; /classify is shared with the server's own route."""
    router = APIRouter(route_class=JsonRoute, tags=["vLLM"])

    @router.post("/score")
    @router.post("/v1/score")
    async def score(body: VllmScore) -> dict[str, Any]:
        """How relevant the second texts are to the first."""
        served = reranker(work, body.model)
        one, two = listed(body.text_1), listed(body.text_2)
        one = one * len(two) if len(one) == 1 else one
        if len(one) != len(two):
            raise ServeError(400, f"{len(one)} texts cannot be scored with {len(two)}")
        long = "cut" if body.truncate else None
        scores = await work.relevance(served, one, two, long=long)
        data = [{"index": n, "object": "score", "score": s} for n, s in enumerate(scores)]
        return _answer("score", served.name, data, body.read)

    return router
