"""Errors of a server, in the format of each dialect."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from bertsmith.errors import printable
from bertsmith.serve.address import within

TEI_TYPES = {  # by status; of all others: Backend
    **dict.fromkeys((400, 405, 413, 422), "Validation"),
    **dict.fromkeys((408, 504), "Timeout"),
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    429: "Overloaded",
    503: "Unhealthy",
}
COHERE = {"/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed", "/v1/classify"}


class ServeError(Exception):
    """A request that is answered with an error: its status, message and extra headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.kind = status, param, code, kind
        self.message = printable(" ".join(message.split()))[:2000]
        self.headers = dict(headers or {})


class Overloaded(ServeError):  # noqa: N818 - as TEI names it
    """The queue is full."""

    def __init__(self, seconds: float) -> None:
        wait = str(min(60, max(1, math.ceil(seconds))))  # clients ignore longer times
        message = f"the server is busy: try again in {wait} s"
        super().__init__(429, message, code="overloaded", headers={"Retry-After": wait})


Shape = Callable[[ServeError], dict[str, Any]]


def tei_shape(error: ServeError) -> dict[str, Any]:
    """Errors of TEI, and of the server's own routes."""
    kind = error.kind or TEI_TYPES.get(error.status, "Backend")
    return {"error": error.message, "error_type": kind}


def openai_shape(error: ServeError) -> dict[str, Any]:
    """Errors of OpenAI and vLLM."""
    kind = "invalid_request_error" if error.status < 424 else "server_error"
    if error.status == 429:
        kind = "rate_limit_error"
    code = error.code or ("server_error" if error.status >= 500 else None)
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


def cohere_shape(error: ServeError) -> dict[str, Any]:
    """Errors of Cohere; Jina's clients read `detail`."""
    return {"message": error.message, "detail": error.message}


def shape_of(path: str) -> Shape:
    """Return the error format of a path, also before the body is read."""
    path = within(path)
    if path in COHERE:
        return cohere_shape
    if path.startswith(("/v1/", "/infinity/")) or path == "/score":
        return openai_shape
    return tei_shape
