"""Base addresses of models: all routes are also below /models/NAME, for this model."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

# As sent: a slash in a name is written %2F. GET /models/NAME itself describes the model.
OWN = re.compile(r"/models/([^/]+)(/.*|)", re.DOTALL)

NAMED: ContextVar[str | None] = ContextVar("named", default=None)  # by the address of a request


def within(path: str) -> str:
    """Return the route of a path: /v1/embeddings of /models/NAME/v1/embeddings."""
    below = OWN.fullmatch(path)
    return path if below is None else below[2] or "/"


class BaseAddresses:
    """ASGI middleware: a path below /models/NAME is that of a route, and the name is in `NAMED`.

    The name decides, whatever `model` a request has: clients send names of other services there.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope["path"].startswith("/models/"):
            sent = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")
            below = OWN.fullmatch(sent.partition("?")[0])
            if below is not None and (below[2] or scope["method"] == "POST"):
                NAMED.set(unquote(below[1]))
                path = below[2] or "/"
                scope = {**scope, "path": unquote(path), "raw_path": path.encode()}
        await self.app(scope, receive, send)
