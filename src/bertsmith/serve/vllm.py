"""The classification and score routes of vLLM."""

from time import time
from typing import Any
from uuid import uuid4

from fastapi import APIRouter

from bertsmith.serve.errors import ServeError
from bertsmith.serve.route import Loose, ModelName, Read, Truncate, routes
from bertsmith.serve.service import USAGE, ModelService
from bertsmith.tasks.classifying import ClassifyRequest
from bertsmith.tasks.use import Texts, listed


class VllmBody(Loose):
    """The fields of both routes."""

    model: ModelName = None
    truncate: Truncate = False
    read: Read = False

    @property
    def long(self) -> str | None:
        """How long texts are handled; None selects the server's setting."""
        return "cut" if self.truncate else None

    def answer(self, kind: str, model: str, data: list[dict[str, Any]]) -> dict[str, Any]:
        """An answer of either route."""
        usage = USAGE.get()
        return {
            "id": f"{kind}-{uuid4().hex}",
            "object": "list",
            "created": int(time()),
            "model": model,
            "data": data,
            "usage": usage.counts,
            **({"read": usage.read} if self.read else {}),
        }


class VllmClassify(VllmBody):
    """Texts to classify."""

    input: Texts

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """The label of every text and the probabilities of all labels, in their order."""
        served = service.pick(self.model, "classify")
        rows = await service.ask(served, "classify", ClassifyRequest(inputs=self.input), self.long)
        labels = served.bert.checkpoint.labels
        data = []
        for index, row in enumerate(rows):
            probabilities = [row.scores[label] for label in labels]
            data.append({"index": index, "label": row.label, "probs": probabilities})
            data[-1]["num_classes"] = len(labels)
        return self.answer("classify", served.name, data)


class VllmScore(VllmBody):
    """One text and many, or the same number on both sides: how relevant the second ones are."""

    text_1: Texts
    text_2: Texts

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """How relevant the second texts are to the first."""
        served = service.reranker(self.model)
        one, two = listed(self.text_1), listed(self.text_2)
        one = one * len(two) if len(one) == 1 else one
        if len(one) != len(two):
            raise ServeError(400, f"{len(one)} texts cannot be scored with {len(two)}")
        scores = await service.relevance(served, one, two, long=self.long)
        data = [{"index": n, "object": "score", "score": s} for n, s in enumerate(scores)]
        return self.answer("score", served.name, data)


def vllm_routes(service: ModelService) -> APIRouter:
    """/score; /classify is shared with the server's own route."""
    return routes("vLLM", service, dict.fromkeys(("/score", "/v1/score"), VllmScore))
