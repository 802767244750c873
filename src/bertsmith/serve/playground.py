"""The playground: one page that tries what the loaded models can do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from bertsmith.serve.work import Work


def playground_routes(work: Work, index: Any) -> APIRouter:
    """The page at /."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse("bertsmith")

    return router
