"""OpenAI's embeddings and list of models."""

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Filled, Ids, Loose, Read, Truncate, routes
from bertsmith.serve.service import USAGE, ModelService
from bertsmith.tasks.embedding import Vectors


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
