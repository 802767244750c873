"""The labelling page and its routes, behind the same gate as models."""

from asyncio import to_thread
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from pydantic import Field

from bertsmith import __version__
from bertsmith.label.session import LONGEST_NAME, Conflict, Session
from bertsmith.pages import page
from bertsmith.serve.errors import ServeError
from bertsmith.serve.gate import Admission, Gate
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Models
from bertsmith.serve.playground import add_page
from bertsmith.serve.route import Body, JsonRoute
from bertsmith.serve.service import ModelService
from bertsmith.settings.serving import ServingSettings

ABOUT = ("asks", "named", "several", "overlap", "at")  # what the page knows of a form


class Event(Body):
    """What a person asks for or does in a tab; `id` makes it safe to send it again."""

    by: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    tab: Annotated[str, Field(max_length=100)] = "-"
    id: Annotated[str, Field(max_length=100)] = ""


class AnswerEvent(Event):
    """An answer to a text: see `Session.answer`."""

    id: Annotated[str, Field(min_length=1, max_length=100)]
    name: str
    answer: Any = None
    seen: str | None = None
    skip: bool = False
    final: bool = False


class Guidelines(Event):
    """What people should agree on."""

    text: Annotated[str, Field(max_length=20_000)]


def labelling_app(session: Session, settings: ServingSettings) -> FastAPI:
    """Return the page of a session as an ASGI application."""
    app = FastAPI(title="bertsmith label", version=__version__, docs_url=None, redoc_url=None)
    app.state.admission = Admission()
    add_page(app, _page(session, settings.api_key is not None))
    app.include_router(events := _events(session))
    app.state.paths = {getattr(route, "path", "") for route in (*app.routes, *events.routes)}
    app.state.admission.serve(ModelService(Models(()), settings, Metrics()), app)
    app.add_middleware(Gate, admission=app.state.admission)
    return app


def _page(session: Session, key: bool) -> str:
    form = {name: getattr(session.form, name) for name in ABOUT}
    more = {"labels": session.labels, "blind": session.settings.blind, "key": key}
    return page(
        "label.html",
        f"Label: {session.file.path.name}",
        styles=("playground.css", "label.css"),
        scripts=("elements.js", "label.js"),
        connects=True,
        key=key,
        asks=session.form.asks,
        settings=form | more,
    )


def _events(session: Session) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    async def state(body: Event, name: str | None = None) -> dict[str, Any]:
        return await to_thread(session.state, body.by, body.tab, name)

    @router.post("/next")
    async def following(body: Event) -> dict[str, Any]:
        """The next text of a person."""
        return await state(body)

    @router.post("/answer")
    async def answer(body: AnswerEvent) -> dict[str, Any]:
        """Store an answer, and return it with the next text."""
        fields = body.model_dump(exclude={"id", "tab"})
        try:
            stored = await to_thread(session.answer, body.id, **fields)
        except Conflict as error:
            raise ServeError(409, str(error)) from error
        return {"stored": stored, "next": await state(body)}

    @router.post("/undo")
    async def undo(body: Event) -> dict[str, Any]:
        """Take back the last answer, and return its text."""
        return await state(body, await to_thread(session.undo, body.id, body.by))

    @router.post("/guidelines")
    async def guidelines(body: Guidelines) -> dict[str, Any]:
        """Store the guidelines."""
        await to_thread(session.write_guidelines, body.id, body.by, body.text)
        return {}

    @router.post("/agreement")
    async def agreement(body: Event) -> dict[str, Any]:
        """Agreement, and the texts on which people disagree."""
        return await to_thread(session.disagreements)

    return router
