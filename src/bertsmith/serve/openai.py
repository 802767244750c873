"""OpenAI's embeddings and list of models."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from bertsmith.serve.address import NAMED
from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Filled, JsonRoute, Loose, Read, Truncate
from bertsmith.serve.work import USAGE, Work

Ids = Filled[int]


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


def openai_routes(work: Work) -> APIRouter:
    """/v1/embeddings, /v1/models and /v1/models/NAME."""
    router = APIRouter(route_class=JsonRoute, tags=["OpenAI"])

    @router.post("/v1/embeddings")
    @router.post("/infinity/embeddings")
    async def embeddings(body: EmbeddingsBody) -> dict[str, Any]:
        """A vector for every input, as floats or base64 of little-endian float32."""
        served = work.models.pick(body.model, "embed")
        check_dimensions(work, served, body.dimensions)
        several = not isinstance(body.input, str) and not isinstance(body.input[0], int)
        vectors = await work.embed(
            served,
            await work.texts(served, body.input if several else [body.input], whole=True),
            normalise=True,
            long="cut" if body.truncate else None,
            dimensions=body.dimensions,
        )
        usage, data = USAGE.get(), []
        for index, vector in enumerate(vectors):
            content: Any = vector
            if body.encoding_format == "base64":
                content = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            read = {"read": usage.read[index]} if body.read else {}
            data.append({"object": "embedding", "index": index, "embedding": content, **read})
        counts = {"prompt_tokens": usage.tokens, "total_tokens": usage.tokens}
        return {"object": "list", "data": data, "model": served.name, "usage": counts}

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models of this server."""
        own = [work.models.named(named)] if (named := NAMED.get()) else work.models
        return {"object": "list", "data": [_listed(one) for one in own]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model of this server."""
        return _listed(work.models.named(name))

    return router


def _listed(served: ServedModel) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "bertsmith",
        "max_model_len": served.bert.max_length,
    }


def check_dimensions(work: Work, served: ServedModel, dimensions: int | None) -> None:
    """Refuse shorter vectors than a model was trained for, and name those that were."""
    if dimensions is None or _gives(served, dimensions):
        return
    able = [one.name for one in work.models.current if _gives(one, dimensions)]
    instead = f"{', '.join(able)} can" if able else "no model here can"
    raise ServeError(
        400,
        f"the vectors of {served.name} have {served.bert.vector_width} dimensions, and it was not "
        f"trained for {dimensions}: {instead}",
        param="dimensions",
        code="invalid_value",
    )


def _gives(served: ServedModel, dimensions: int) -> bool:
    """Whether a model has vectors of this width, or was trained for such (Matryoshka)."""
    settings, width = served.bert.checkpoint.settings, served.bert.vector_width
    trained = settings.get("matryoshka_dimensions")
    if dimensions == width or (isinstance(trained, list) and dimensions in trained):
        return True
    return settings.get("is_matryoshka") is True and dimensions < width
