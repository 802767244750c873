"""The search route, for a server with an index."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Protocol

from fastapi import APIRouter
from pydantic import Field

from bertsmith.errors import BertsmithError
from bertsmith.serve.errors import ServeError
from bertsmith.serve.route import Body, JsonRoute
from bertsmith.serve.work import USAGE, Work


class Index(Protocol):
    """The interface of an index, as implemented by `bertsmith.search.Index`."""

    def search(self, query: str, top: int = ...) -> Any:
        """The best passages for a query."""

    def problem(self) -> str | None:
        """Why the index cannot be searched now; None if it can."""


class SearchBody(Body):
    """A query."""

    query: Annotated[str, Field(min_length=1)]
    top: Annotated[int, Field(ge=1, le=100)] = 10


def search_routes(work: Work, index: Index | None) -> APIRouter:
    """/search, where there is an index."""
    router = APIRouter(route_class=JsonRoute, tags=["bertsmith"])
    if index is None:
        return router
    lock = asyncio.Lock()

    @router.post("/search")
    async def search(body: SearchBody) -> dict[str, Any]:
        """The best passages of the indexed documents."""
        work.check([body.query])
        loop = asyncio.get_running_loop()
        async with lock:
            try:
                hits = await loop.run_in_executor(
                    work.threads, lambda: index.search(body.query, top=body.top)
                )
            except BertsmithError as error:
                if await asyncio.to_thread(index.problem):
                    raise ServeError(503, str(error)) from error
                raise
        USAGE.get().model = "index"
        return {"results": [hit.to_dict() for hit in hits]}

    return router
