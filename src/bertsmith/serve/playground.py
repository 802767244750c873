"""The playground page, with a form for each task of the loaded models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from bertsmith.pages import page
from bertsmith.serve.work import Work


def playground(work: Work, *, index: bool) -> str:
    """Return the page with the tasks that these models support."""
    models = [one.describe() for one in work.models]
    key = work.settings.api_key is not None
    names = ", ".join(one["id"] for one in models)
    return page(
        "playground.html",
        "Playground",
        styles=("playground.css",),
        scripts=("elements.js", "playground.js"),
        connects=True,
        about=f"Try {names} in this browser.",
        key=key,
        settings={"models": models, "index": index, "key": key},
    )


def playground_routes(work: Work, index: Any) -> APIRouter:
    """The page at /."""
    router = APIRouter()
    html = playground(work, index=index is not None)
    # Do not let other sites embed the page in a frame.
    headers = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}

    @router.get("/", include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(html, headers=headers)

    return router
