"""The routes of OpenAI (embeddings, models) and of vLLM (classification, scores)."""

import base64
from time import time
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Filled, Ids, Loose, ModelName, Read, Truncate, routes
from bertsmith.serve.service import USAGE, ModelService
from bertsmith.tasks.classifying import ClassifyRequest
from bertsmith.tasks.embedding import Vectors
from bertsmith.tasks.use import Texts, listed


def as_base64(vector: Vectors) -> str:
    """A vector as base64 of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class EmbeddingsBody(Loose):
    """Texts to embed. Keys of other servers (`input_type`, …) are ignored, as they do."""

    input: str | Ids | Filled[str] | Filled[Ids]
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None, validation_alias=AliasChoices("dimensions", "output_dimension")
    )
    user: str | None = None
    truncate: Truncate = False
    read: Read = False

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """A vector for every input, as floats or base64."""
        served = service.pick(self.model, "embed")
        vectors = await service.embed(
            served,
            await service.texts(served, self.input, framed=True),
            normalise=True,
            long="cut" if self.truncate else None,
            dimensions=self.dimensions,
        )
        usage, data = USAGE.get(), []
        for index, vector in enumerate(vectors):
            content = as_base64(vector) if self.encoding_format == "base64" else vector
            read = {"read": usage.read[index]} if self.read else {}
            data.append({"object": "embedding", "index": index, "embedding": content, **read})
        return {"object": "list", "data": data, "model": served.name, "usage": usage.counts}


def openai_routes(service: ModelService) -> APIRouter:
    """/v1/embeddings, also under infinity's name, /v1/models and /v1/models/NAME."""
    paths = ("/v1/embeddings", "/infinity/embeddings")
    router = routes("OpenAI", service, dict.fromkeys(paths, EmbeddingsBody))

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models of this server."""
        return {"object": "list", "data": [_listed(model) for model in service.addressed]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model of this server."""
        return _listed(service.models.get(name))

    return router


def _listed(served: ServedModel) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "bertsmith",
        "max_model_len": served.bert.max_length,
    }


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
        """Each text's label, and its probabilities in the order of the model's labels."""
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
