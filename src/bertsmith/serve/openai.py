"""OpenAI's embeddings and list of models."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Body, JsonRoute, Read, Truncate, vectors_answer
from bertsmith.serve.work import USAGE, Work, tokens_to_text

Ids = Annotated[list[int], Field(min_length=1)]


class EmbeddingsBody(Body):
    """Texts to embed."""

    input: (
        str
        | Ids
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[Ids], Field(min_length=1)]
    )
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None
    truncate: Truncate = False
    read: Read = False


def openai_routes(work: Work) -> APIRouter:
    """/v1/embeddings and /v1/models."""
    router = APIRouter(route_class=JsonRoute, tags=["OpenAI"])

    @router.post("/v1/embeddings")
    async def embeddings(body: EmbeddingsBody) -> dict[str, Any]:
        """A vector for every input, as floats or base64 of little-endian float32."""
        served = work.models.pick(body.model, "embed")
        _check_dimensions(served, body.dimensions)
        vectors = await work.embed(
            served,
            _texts(work, served, body.input),
            normalise=True,
            long="cut" if body.truncate else None,
            dimensions=body.dimensions,
        )
        usage, data = USAGE.get(), []
        for index, vector in enumerate(vectors):
            content: Any = vector.tolist()
            if body.encoding_format == "base64":
                content = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            read = {"read": usage.read[index]} if body.read else {}
            data.append({"object": "embedding", "index": index, "embedding": content, **read})
        counts = {"prompt_tokens": usage.tokens, "total_tokens": usage.tokens}
        answer = {"object": "list", "data": data, "model": served.name, "usage": counts}
        return vectors_answer(answer)  # type: ignore[return-value]

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models of this server."""
        return {"object": "list", "data": [_listed(one) for one in work.models]}

    return router


def _listed(served: ServedModel) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "bertsmith",
        "max_model_len": served.bert.max_length,
    }


def _texts(work: Work, served: ServedModel, inputs: Any) -> list[str]:
    tokenizer = served.bert.tokenizer
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs[0], int):
        return [tokens_to_text(tokenizer, inputs, whole=True)]
    work.check([""] * len(inputs))
    if isinstance(inputs[0], str):
        return list(inputs)
    return [tokens_to_text(tokenizer, one, whole=True) for one in inputs]


def _check_dimensions(served: ServedModel, dimensions: int | None) -> None:
    """Refuse shorter vectors than a model was trained for."""
    settings, width = served.bert.checkpoint.settings, served.bert.vector_width
    if dimensions is None or dimensions == width or settings.get("is_matryoshka") is True:
        return
    trained = settings.get("matryoshka_dimensions")
    if isinstance(trained, list) and dimensions in trained:
        return
    raise ServeError(
        400,
        f"the vectors of {served.name} have {width} dimensions, and it was not trained for fewer",
        param="dimensions",
        code="invalid_value",
    )
