"""Requests as calls: body → pydantic model → endpoint → JSON of the dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bertsmith.errors import BertsmithError
from bertsmith.serve.errors import (
    ServeError,
    Shape,
    cohere_shape,
    openai_shape,
    shape_of,
    tei_shape,
)
from bertsmith.serve.validation import invalid, members
from bertsmith.serve.work import USAGE

ModelName = Annotated[str | None, Field(description="Which of the server's models.")]
Top = Annotated[int, Field(ge=1, le=1000)]
Read = Annotated[bool, Field(description="Also say which characters were read.")]
Truncate = Annotated[
    bool, Field(description="Cut long texts; otherwise they are read in windows, or refused.")
]


class Body(BaseModel):
    """A request of the server's own routes: unknown keys are an error."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Loose(BaseModel):
    """A request of a dialect that ignores unknown keys."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Error(BaseModel):
    """An error of TEI, and of the server's own routes."""

    error: str
    error_type: str


class JsonRoute(APIRoute):
    """A route that parses and checks JSON in one step and answers with plain JSON.

    FastAPI's own handling is left to the documentation of the API; errors of any kind are answered
    in the dialect's format. A request is cancelled if its client disconnects.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        endpoint, path = self.endpoint, self.path
        hints = get_type_hints(endpoint, include_extras=True)
        adapter = TypeAdapter(hints["body"]) if "body" in hints else None
        models = members(hints["body"]) if "body" in hints else {}

        async def handle(request: Request) -> Response:
            usage, shape, body = USAGE.get(), shape_of(path), b""
            usage.route = path
            try:
                if adapter is None:
                    value = await endpoint()
                else:
                    body = await request.body()
                    shape = _shape(path, body)
                    parsed = adapter.validate_json(body)
                    value = await _attended(request, endpoint(parsed), usage.seconds)
                return value if isinstance(value, Response) else answer(value)
            except ServeError as error:
                return failure(error, shape)
            except ValidationError as error:
                return failure(invalid(error, models), shape)
            except BertsmithError as error:
                return failure(ServeError(422, str(error)), shape)
            except ClientDisconnect:
                return Response(status_code=499)

        return handle


async def _attended(request: Request, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Return the result of an endpoint; cancel it on a disconnect or timeout."""
    current = asyncio.current_task()
    assert current is not None
    watch = asyncio.ensure_future(request.receive())
    left = False

    def leave(_: Any) -> None:
        nonlocal left
        if not watch.cancelled():
            left = True
            current.cancel()

    watch.add_done_callback(leave)
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        message = f"the request took more than {seconds:g} s and was cancelled"
        raise ServeError(503, message, kind="Timeout", headers={"Retry-After": "1"}) from None
    except asyncio.CancelledError:
        if left:
            current.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watch.remove_done_callback(leave)
        watch.cancel()


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON; NaN is an error."""
    try:
        content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = content.encode()
    except ValueError as error:
        raise ServeError(424, "the model's output is not a number") from error
    return Response(data, status, headers, media_type="application/json")


def vectors_answer(value: Any) -> Response:
    """The same for many floats that are known to be finite, several times as fast."""
    return Response(to_json(value), media_type="application/json")


def failure(error: ServeError, shape: Shape) -> Response:
    """Return an error in the dialect's format; TEI's status 422 is 400 in other dialects."""
    status = 400 if error.status == 422 and shape is not tei_shape else error.status
    return answer(shape(error), status, error.headers)


def _shape(path: str, body: bytes) -> Shape:
    """Return the error format of a path; the body's keys decide between two dialects."""
    if path == "/rerank" and b'"documents"' in body:
        return cohere_shape
    if path == "/classify" and b'"input"' in body:
        return openai_shape
    return shape_of(path)
