"""The search route, for a server with an index."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from bertsmith.errors import BertsmithError
from bertsmith.serve.errors import ServeError
from bertsmith.serve.route import Body, JsonRoute
from bertsmith.serve.service import USAGE, ModelService

MOST = 4  # queries that are answered at once


class Readers:
    """Handles of a `bertsmith.search.Index`: as many queries run at once as there are cores."""

    def __init__(self, index: Any) -> None:
        count = min(MOST, os.cpu_count() or 1)
        self.index = index
        self.idle: SimpleQueue[Any] = SimpleQueue()
        for handle in [index, *(index.reader() for _ in range(1, count))]:
            self.idle.put(handle)
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="search")

    async def problem(self) -> str | None:
        """Why the index cannot be searched now; None if it can."""
        return await asyncio.to_thread(self.index.problem)

    async def search(self, query: str, top: int) -> list[dict[str, Any]]:
        """The best passages for a query."""

        def run() -> list[dict[str, Any]]:
            handle = self.idle.get()
            try:
                return [hit.to_dict() for hit in handle.search(query, top=top)]
            finally:
                self.idle.put(handle)

        return await asyncio.get_running_loop().run_in_executor(self.threads, run)


class SearchBody(Body):
    """A query."""

    query: Annotated[str, Field(min_length=1)]
    top: Annotated[int, Field(ge=1, le=100)] = 10


def search_routes(service: ModelService, readers: Readers | None) -> APIRouter:
    """/search, where there is an index."""
    router = APIRouter(route_class=JsonRoute, tags=["bertsmith"])
    if readers is None:
        return router

    @router.post("/search")
    async def search(body: SearchBody) -> dict[str, Any]:
        """The best passages of the indexed documents."""
        service.check([body.query])
        try:
            hits = await readers.search(body.query, body.top)
        except BertsmithError as error:
            if await readers.problem():
                raise ServeError(503, str(error)) from error
            raise
        USAGE.get().model = "index"
        return {"results": hits}

    return router
