"""Base addresses of models: all routes are also below /models/NAME, for this model."""

import re
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

# As sent: a slash in a name is written %2F. GET /models/NAME itself describes the model.
OWN = re.compile(r"/models/([^/]+)(/.*|)", re.DOTALL)

ADDRESSED: ContextVar[str | None] = ContextVar("addressed", default=None)  # a model


def within(path: str) -> str:
    """Return the route of a path: /v1/embeddings of /models/NAME/v1/embeddings."""
    below = OWN.fullmatch(path)
    return path if below is None else below[2] or "/"


class BaseAddresses:
    """ASGI middleware: strips /models/NAME from a path and stores the name in `ADDRESSED`.

    It goes before the `model` of a request, where clients send names of other services.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope["path"].startswith("/models/"):
            sent = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")
            below = OWN.fullmatch(sent.partition("?")[0])
            if below is not None and (below[2] or scope["method"] == "POST"):
                ADDRESSED.set(unquote(below[1]))
                path = below[2] or "/"
                scope = {**scope, "path": unquote(path), "raw_path": path.encode()}
        await self.app(scope, receive, send)
