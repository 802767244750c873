"""The server's own routes: one for each use that a loaded model supports, and the search."""

import asyncio
import os
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from fastapi import APIRouter
from pydantic import Field, create_model
from starlette.responses import HTMLResponse

from bertsmith.analysis.attention import attention
from bertsmith.errors import BertsmithError
from bertsmith.infer.states import TextStates
from bertsmith.serve.batcher import once
from bertsmith.serve.errors import ServeError
from bertsmith.serve.route import Body, JsonRoute, Loose, ModelName, Read, either, post, routes
from bertsmith.serve.service import USAGE, ModelService, Spans
from bertsmith.tasks.embedding import Vectors, unit_vectors
from bertsmith.tasks.registry import USES
from bertsmith.tasks.use import Texts, Use, as_json, listed

Long = Annotated[
    Literal["window", "refuse", "cut"] | None,
    Field(description="Texts beyond the model's length; None: the server's setting."),
]
MOST_PAIRS = 250_000  # of tokens, in a comparison of two texts
MOST_WEIGHTS = 4_000_000  # attention weights in an answer
Dialects = dict[str, tuple[Callable[[Container[str]], bool], type[Loose]]]


class OwnBody(Body):
    """The fields that all routes of the server accept."""

    verb: ClassVar[str]  # of the use
    model: ModelName = None
    long: Long = None
    read: Read = False

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """The answer of a use, as `Bert` gives it."""
        served = service.pick(self.model, self.verb)
        request: Any = self  # `use_body` makes it a request of the use, too
        return result(as_json(await service.ask(served, self.verb, request, self.long)), self.read)


class TokenSimilarity(NamedTuple):
    """The cosine of two texts, and of each token of one with each of the other."""

    model: str
    similarity: float
    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    tokens: Vectors


class TokenSimilarityBody(OwnBody):
    """Two texts to compare token by token."""

    first: str
    second: str

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """The cosine of two texts, and of each token of one with each of the other."""
        served, texts = service.pick(self.model, "embed"), [self.first, self.second]
        vectors = await service.embed(served, texts, normalise=True, long=self.long)
        first, second = await service.states(served, texts, long=self.long)
        if len(first.spans) * len(second.spans) > MOST_PAIRS:
            raise ServeError(422, "the texts have too many tokens to compare one by one")
        cosines = unit_vectors(first.vectors[0]) @ unit_vectors(second.vectors[0]).T
        cosine, words = float(vectors[0] @ vectors[1]), (_token_texts(first), _token_texts(second))
        return TokenSimilarity(served.name, cosine, *words, cosines.round(5))._asdict()


class StatesBody(Body):
    """Hidden states of tokens, words or texts at any depth."""

    model: ModelName = None
    inputs: Texts
    depths: Annotated[list[int], Field(min_length=1, max_length=64)] | None = None
    pool: Literal["words", "mean"] | None = None
    special: bool = False

    async def respond(self, service: ModelService) -> dict[str, Any]:
        """Hidden states, text by text."""
        served, texts = service.pick(self.model, "embed"), listed(self.inputs)
        rows = await service.states(served, texts, self.depths, self.pool, self.special)
        value = [{key: vars(row)[key] for key in vars(row) if key != "text"} for row in rows]
        return result(value, read=False)


class AttentionBody(Body):
    """A text or pair whose attention weights are asked for, or the page that shows them."""

    model: ModelName = None
    text: str
    pair: str | None = None
    layers: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    heads: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    format: Literal["json", "html"] = "json"

    async def respond(self, service: ModelService) -> Any:
        """Attention weights of every layer and head, or the page that shows them."""
        served = service.pick(self.model, "embed")
        bert, name = served.for_request("refuse"), served.name
        chosen: dict[str, Any] = {"name": name, "layers": self.layers, "heads": self.heads}

        def call() -> Any:
            view = attention(bert, self.text, self.pair, **chosen)
            if len(view.layers) * len(view.heads) * len(view) ** 2 > MOST_WEIGHTS:
                message = f"{len(view)} tokens have too many attention weights for one answer"
                raise ServeError(422, f"{message}: name fewer layers or heads")
            if self.format == "html":
                return HTMLResponse(view.page().html())
            tokens = [{"text": t.text, "token": t.token, "source": t.source} for t in view.tokens]
            places = {"layers": list(view.layers), "heads": list(view.heads)}
            return {"model": name, "tokens": tokens, **places, "weights": view.maps().round(5)}

        texts = [self.text] if self.pair is None else [self.text, self.pair]
        return await service.alone(served, texts, once(call))


def own_routes(service: ModelService, dialects: Dialects) -> APIRouter:
    """Return the routes of what at least one model can do.

    Some paths also take requests of another server's dialect, which their keys show.
    """
    router = routes("bertsmith", service, {"/states": StatesBody, "/attention": AttentionBody})
    for verb in service.models.can:
        use, body = USES[verb], use_body(USES[verb])
        answer: Any = create_model(
            body.__name__.replace("Body", "Answer"),
            model=str,
            results=use.Answer,
            tokens=int,
            read=(list[Spans] | None, None),
        )
        accepted: Any = body
        response: Any = answer
        if verb in dialects:
            accepted = either(*dialects[verb], body)
            response = answer | dict[str, Any] | list[list[float]]
        post(router, service, f"/{verb}", accepted, response_model=response)

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models of this server and what each can do."""
        return {"models": [model.describe() for model in service.models]}

    @router.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model. All routes are also at /models/NAME/..., for this model."""
        return service.models.get(name).describe()

    @router.get("/drift")
    async def drift() -> dict[str, Any]:
        """Today's inputs and predictions beside those of each model's evaluation data."""
        may_use = USAGE.get().caller.may_use  # of a model, whose examples are texts of others
        shown = [model for model in service.addressed if may_use(model.base)]
        return {"models": service.drift.describe(shown)}

    return router


def use_body(use: Use) -> type[OwnBody]:
    """The body of the route of a use: its request, with the fields of all routes."""
    title = use.verb.title().replace("-", "")
    create: Any = create_model
    bases, about = (OwnBody, use.Request), type(use).__doc__
    body: type[OwnBody] = create(f"{title}Body", __base__=bases, __doc__=about)
    body.verb = use.verb
    return body


def result(value: Any, read: bool) -> dict[str, Any]:
    """Return a response of the server's own routes, with `read` if it was requested."""
    usage = USAGE.get()
    answer = {"model": usage.model, "results": value, "tokens": usage.tokens}
    return {**answer, "read": usage.read} if read else answer


def _token_texts(states: TextStates) -> list[dict[str, Any]]:
    text = states.text
    return [{"text": text[start:end], "start": start, "end": end} for start, end in states.spans]


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
