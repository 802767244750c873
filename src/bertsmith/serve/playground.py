"""The playground page, with a form for each use of the loaded models."""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse

from bertsmith.pages import page
from bertsmith.serve.service import ModelService
from bertsmith.tasks.registry import USES
from bertsmith.tasks.use import Use


def playground_routes(service: ModelService, index: Any) -> APIRouter:
    """The page at /, with what these models can do."""
    router = APIRouter()
    models = [model.describe() for model in service.models]
    uses = [USES[verb] for verb in service.models.can]
    key, names = bool(service.keys), ", ".join(model["id"] for model in models)
    html = page(
        "playground.html",
        "Playground",
        styles=("playground.css",),
        scripts=("elements.js", "playground.js"),
        code=[use.view() for use in uses],
        connects=True,
        about=f"Try {names} in this browser.",
        key=key,
        settings={"models": models, "index": index is not None, "key": key, "forms": forms(uses)},
    )
    add_page(router, html)
    return router


def add_page(router: APIRouter | FastAPI, html: str) -> None:
    """Answer / with a page that other sites cannot embed in a frame."""
    headers = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}

    @router.get("/", include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(html, headers=headers)


def forms(uses: Iterable[Use]) -> list[dict[str, Any]]:
    """Return the forms of uses: the fields that their requests describe; some have none."""
    return [
        {
            "verb": use.verb,
            "method": next(name for name in vars(use.Methods) if not name.startswith("_")),
            "title": use.title,
            "question": use.question,
            "fields": fields,
        }
        for use in uses
        if (fields := list(_fields(use)))
    ]


def _fields(use: Use) -> Iterator[dict[str, Any]]:
    schema = use.Request.model_json_schema()
    for name, entry in schema["properties"].items():
        if "form" in entry:
            kinds = entry.get("anyOf", [entry])
            several = any("items" in kind for kind in kinds)
            listed = several and not any(kind.get("type") == "string" for kind in kinds)
            more = {"required": name in schema.get("required", ()), "list": listed}
            yield {"name": name, **entry["form"], **more}
