"""The server's own routes: one for each use that a loaded model is able to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Generator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from fastapi import APIRouter
from pydantic import BaseModel, Discriminator, Field, Tag, create_model
from starlette.responses import HTMLResponse

from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import all_depths, hidden_state_steps
from bertsmith.serve.address import NAMED
from bertsmith.serve.read import Spans
from bertsmith.serve.route import Body, JsonRoute, ModelName, Read
from bertsmith.serve.work import USAGE, Work
from bertsmith.tasks.registry import USES
from bertsmith.tasks.use import Texts, Use, as_json, listed

Long = Annotated[
    Literal["window", "refuse", "cut"] | None,
    Field(description="Texts beyond the model's length; None: the server's setting."),
]


class OwnBody(Body):
    """The fields that all routes of the server accept."""

    model: ModelName = None
    long: Long = None
    read: Read = False


class StatesBody(Body):
    """Hidden states at some depths."""

    model: ModelName = None
    inputs: Texts
    depths: Annotated[list[int], Field(min_length=1, max_length=64)] | None = None
    pool: Literal["words", "mean"] | None = None
    special: bool = False


class StatesRow(TypedDict):
    """The states of one text, and the characters that each row stands for."""

    spans: Any
    vectors: Any


class AttentionBody(Body):
    """The attention of some layers and heads in a text or pair."""

    model: ModelName = None
    text: str
    pair: str | None = None
    layers: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    heads: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    format: Literal["json", "html"] = "json"


class Dialect(NamedTuple):
    """Another server's request on the path of one of our routes."""

    Body: type[BaseModel]
    meant: Callable[[Container[str]], bool]  # by the keys of a body
    answer: Callable[[Work, Any], Awaitable[Any]]
    Answer: Any


def own_routes(work: Work, dialects: Mapping[str, Dialect]) -> APIRouter:
    """Return the routes of what at least one model can do; some paths are shared with dialects."""
    router = APIRouter(route_class=JsonRoute, tags=["bertsmith"])
    for verb in work.models.can:
        use_route(router, work, USES[verb], dialects.get(verb))
    state_routes(router, work)

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models of this server and what each can do."""
        return {"models": [one.describe() for one in work.models]}

    @router.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model. All routes are also at /models/NAME/..., for this model."""
        return work.models.named(name).describe()

    @router.get("/drift")
    async def drift() -> dict[str, Any]:
        """Today's inputs and predictions beside those of each model's evaluation data."""
        own = [work.models.named(named)] if (named := NAMED.get()) else work.models
        return {"models": work.drift.describe(own)}

    return router


def use_route(router: APIRouter, work: Work, use: Use, dialect: Dialect | None) -> None:
    """Add the route of a use: its request with the fields of all routes, and its answer."""
    name = use.verb.replace("-", "_")
    title = name.title().replace("_", "")
    own = create_model(f"{title}Body", __base__=(OwnBody, use.Request), __doc__=use.Request.__doc__)
    answer: Any = create_model(
        f"{title}Answer", model=str, results=use.Answer, tokens=int, read=(list[Spans] | None, None)
    )

    async def endpoint(body: Any) -> Any:
        if dialect is not None and isinstance(body, dialect.Body):
            return await dialect.answer(work, body)
        served = work.models.pick(body.model, use.verb)
        return result(as_json(await work.ask(served, use.verb, body, body.long)), body.read)

    accepted: Any = own
    if dialect is not None:
        answer |= dialect.Answer
        accepted = Annotated[
            Annotated[own, Tag("own")] | Annotated[dialect.Body, Tag("dialect")],
            kind_by(dialect.meant, "dialect", "own"),
        ]
    endpoint.__annotations__ = {"body": accepted, "return": Any}
    router.add_api_route(
        f"/{use.verb}",
        endpoint,
        methods=["POST"],
        name=name,
        description=type(use).__doc__,
        response_model=answer,
    )


def kind_by(meant: Callable[[Container[str]], bool], one: str, other: str) -> Discriminator:
    """Return what chooses between two kinds of bodies by their keys."""

    def kind(value: Any) -> str:
        keys = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        return one if meant(keys) else other

    return Discriminator(kind)


def state_routes(router: APIRouter, work: Work) -> None:
    """Add the routes of hidden states and attention."""

    @router.post("/states")
    async def states(body: StatesBody) -> dict[str, Any]:
        """Hidden states of tokens, words or texts at any depth."""
        served, texts = work.models.pick(body.model, "embed"), listed(body.inputs)
        depths = body.depths or [all_depths(served.bert)[-1]]

        def steps(bert: LoadedModel) -> Generator[None, None, list[StatesRow]]:
            rows = []
            for one in hidden_state_steps(bert, texts, depths, body.pool, body.special):
                if one is None:
                    yield
                else:
                    rows.append(StatesRow(spans=one.spans, vectors=one.vectors))
            return rows

        return result(await work.alone(served, texts, steps, len(depths)), read=False)

    @router.post("/attention")
    async def attention(body: AttentionBody) -> Any:
        """Attention weights of every layer and head, or the page that shows them."""
        served = work.models.pick(body.model, "embed")
        show = _page if body.format == "html" else _weights
        return await work.attention(served, body.text, body.pair, show, body.layers, body.heads)


def result(value: Any, read: bool) -> dict[str, Any]:
    """Return a response of the server's own routes, with `read` if it was requested."""
    usage = USAGE.get()
    answer = {"model": usage.model, "results": value, "tokens": usage.tokens}
    return {**answer, "read": usage.read} if read else answer


def _page(view: Any) -> HTMLResponse:
    return HTMLResponse(view.page().html())


def _weights(view: Any) -> dict[str, Any]:
    tokens = [{"text": one.text, "token": one.token, "source": one.source} for one in view.tokens]
    return {
        "model": view.name,
        "tokens": tokens,
        "layers": list(view.layers),
        "heads": list(view.heads),
        "weights": view.maps().round(5),
    }
