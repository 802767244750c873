"""Requests as calls: body → pydantic model → endpoint → JSON of the dialect."""

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from bertsmith.errors import BertsmithError
from bertsmith.serve.address import ADDRESSED
from bertsmith.serve.errors import (
    ServeError,
    Shape,
    cohere_shape,
    openai_shape,
    shape_of,
    tei_shape,
)
from bertsmith.serve.service import USAGE, ModelService, Usage
from bertsmith.serve.validation import invalid, members

ModelName = Annotated[str | None, Field(description="Which of the server's models.")]
Read = Annotated[bool, Field(description="Also say which characters were read.")]
Item = TypeVar("Item")
Filled = Annotated[list[Item], Field(min_length=1)]
Ids = Filled[int]
Truncate = Annotated[
    bool, Field(description="Cut long texts; otherwise they are read in windows, or refused.")
]


INLINE = 64  # pieces of an answer that are encoded on the event loop: faster than a thread switch
CHUNK = 1 << 18  # bytes of an answer that are sent at once
NESTED = (dict, list, tuple, np.ndarray)


class Loose(BaseModel):
    """A request of a dialect that ignores unknown keys."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    async def respond(self, service: ModelService) -> Any:
        """Return the answer to the request, in its dialect."""
        raise NotImplementedError


class Body(Loose):
    """A request of the server's own routes: unknown keys are an error."""

    model_config = ConfigDict(extra="forbid")


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
                    value = await endpoint(**request.path_params)
                else:
                    body = await request.body()
                    shape = _shape(path, body)
                    parsed = adapter.validate_json(body)
                    if (model := ADDRESSED.get()) is not None:
                        parsed.model = model
                    value = await _attended(request, endpoint(parsed), usage)
                return value if isinstance(value, Response) else await encoded(value)
            except ServeError as error:
                return failure(error, shape)
            except ValidationError as error:
                return failure(invalid(error, models), shape)
            except BertsmithError as error:
                return failure(ServeError(422, str(error)), shape)
            except ClientDisconnect:
                return Response(status_code=499)

        return handle


def by_score(scores: Sequence[float]) -> list[int]:
    """The numbers of scores, highest first."""
    return sorted(range(len(scores)), key=lambda number: -scores[number])


def routes(tag: str, service: ModelService, bodies: Mapping[str, Any]) -> APIRouter:
    """Return a router that answers these paths, each with its kind of body."""
    router = APIRouter(route_class=JsonRoute, tags=[tag])
    for path, body in bodies.items():
        post(router, service, path, body)
    return router


def post(
    router: APIRouter, service: ModelService, path: str, body: Any, response_model: Any = None
) -> None:
    """Add a route that is answered by the `respond` of its body."""

    async def endpoint(body: Any) -> Any:
        return await body.respond(service)

    endpoint.__annotations__ = {"body": body, "return": Any}
    *_, (_, own) = members(body).items()
    router.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        name=path.strip("/") or "any task",
        description=own.__doc__,
        response_model=response_model,
    )


def either(is_first: Callable[[Container[str]], bool], first: Any, second: Any) -> Any:
    """A body of two types: the first if `is_first` says so of the keys that were sent."""

    def kind(value: Any) -> str:
        keys = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        return "first" if is_first(keys) else "second"

    both = Annotated[first, Tag("first")] | Annotated[second, Tag("second")]
    return Annotated[both, Discriminator(kind)]


async def _attended(request: Request, call: Coroutine[Any, Any, Any], usage: Usage) -> Any:
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
        async with asyncio.timeout_at(usage.until):
            return await call
    except TimeoutError:
        message = f"the request took more than {usage.seconds:g} s and was cancelled"
        raise ServeError(503, message, kind="Timeout", headers={"Retry-After": "1"}) from None
    except asyncio.CancelledError:
        if left:
            current.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watch.remove_done_callback(leave)
        watch.cancel()


async def encoded(value: Any) -> Response:
    """Return a value as JSON; a thread encodes all but the beginning of a large one."""
    pieces = json_pieces(value)
    try:
        first = [*islice(pieces, INLINE)]
        if len(first) < INLINE:
            return Response(b"".join(first), media_type="application/json")
        chunks = [b"".join(first), *await asyncio.to_thread(_chunks, pieces)]
    except ValueError as error:
        raise ServeError(424, "the model's output is not a number") from error

    async def sent() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield bytes(chunk)
            await asyncio.sleep(0)

    length = {"content-length": str(sum(map(len, chunks)))}
    return StreamingResponse(sent(), headers=length, media_type="application/json")


def _chunks(pieces: Iterator[bytes]) -> list[bytearray]:
    chunks = [bytearray()]
    for piece in pieces:
        if len(chunks[-1]) >= CHUNK:
            chunks.append(bytearray())
        chunks[-1] += piece
    return chunks


def json_pieces(value: Any) -> Iterator[bytes]:
    """JSON of a value in small pieces, between which other threads can run; NaN is an error."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        if not np.isfinite(value).all():
            raise ValueError("not a number")
        yield to_json(value.tolist())
    elif isinstance(value, dict) and any(isinstance(entry, NESTED) for entry in value.values()):
        for number, (key, entry) in enumerate(value.items()):
            yield (b"," if number else b"{") + to_json(str(key)) + b":"
            yield from json_pieces(entry)
        yield b"}"
    elif isinstance(value, NESTED) and not isinstance(value, dict) and len(value):
        plain = not isinstance(value, np.ndarray) and not isinstance(value[0], NESTED)
        step = 256 if plain else 1
        for start in range(0, len(value), step):
            yield b"," if start else b"["
            if plain:
                yield _plain(value[start : start + step])[1:-1]
            else:
                yield from json_pieces(value[start])
        yield b"]"
    else:
        yield _plain(value.tolist() if isinstance(value, np.ndarray) else value)


def _plain(value: Any) -> bytes:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return content.encode()


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a small value as JSON."""
    return Response(_plain(value), status, headers, media_type="application/json")


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
