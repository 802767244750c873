"""The server as one ASGI application: models → routes behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bertsmith import __version__
from bertsmith.infer.loaded import LoadedModel
from bertsmith.serve.cohere import cohere_routes
from bertsmith.serve.errors import ServeError, shape_of
from bertsmith.serve.gate import Admission, Gate, State
from bertsmith.serve.hub import hub_routes
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Models
from bertsmith.serve.openai import openai_routes
from bertsmith.serve.own import own_routes
from bertsmith.serve.playground import playground_routes
from bertsmith.serve.route import answer, failure
from bertsmith.serve.search import Index, search_routes
from bertsmith.serve.tei import TEI_EMBED, tei_routes
from bertsmith.serve.vllm import VLLM_CLASSIFY, vllm_routes
from bertsmith.serve.work import Work
from bertsmith.settings.serving import Settings


def create_app(
    models: Mapping[str, LoadedModel],
    settings: Settings | None = None,
    *,
    index: Index | None = None,
    state: State | None = None,
) -> FastAPI:
    """Return an ASGI application that serves these models by name."""
    chosen, state = settings or Settings(), state or State()
    metrics = Metrics()
    work = Work(Models(models, chosen, metrics), chosen, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        work.models.close()
        work.threads.shutdown()

    app = FastAPI(
        title="bertsmith",
        version=__version__,
        summary="Encoder models over HTTP: every task, and the dialects of other servers.",
        lifespan=lifespan,
        # The button "Authorize" of /docs; the gate is what asks for the key.
        dependencies=[Security(HTTPBearer(auto_error=False))] if chosen.api_key else [],
    )
    app.state.work, app.state.admission = work, Admission(work, chosen, state)
    routers = (
        own_routes(work, {"classify": VLLM_CLASSIFY, "embed": TEI_EMBED}),
        hub_routes(work),
        tei_routes(work),
        openai_routes(work),
        cohere_routes(work),
        vllm_routes(work),
        search_routes(work, index),
        playground_routes(work, index),
    )
    for router in routers:
        app.include_router(router)
    _health_routes(app, work, state, index)
    paths = {getattr(one, "path", "") for some in (app, *routers) for one in some.routes}
    app.state.admission.routes = paths
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    app.add_middleware(Gate, admission=app.state.admission)
    return app


def _health_routes(app: FastAPI, work: Work, state: State, index: Index | None) -> None:
    """Routes for liveness (the workers run) and readiness (requests are accepted)."""

    def alive() -> bool:
        return all(one.batcher.alive for one in work.models)

    @app.get("/live", tags=["health"])
    async def live() -> Any:
        """200 while the workers of all models run."""
        if alive():
            return answer({"status": "alive"})
        return failure(ServeError(503, "a worker has ended"), shape_of("/live"))

    @app.get("/ready", tags=["health"])
    @app.get("/health", tags=["health"])
    @app.get("/ping", tags=["health"])
    async def ready() -> Any:
        """200 while requests are accepted; 503 during shutdown, or if the index fails."""
        problem = await asyncio.to_thread(index.problem) if index is not None else None
        if not alive() or state.draining:
            problem = "the server is shutting down"
        if problem is None:
            return answer({"status": "ready"})
        return failure(ServeError(503, problem), shape_of("/ready"))


async def _http_error(request: Request, error: Exception) -> Response:
    """Return errors for unknown paths and methods in the format of the dialect."""
    shape = shape_of(request.url.path)
    if isinstance(error, HTTPException):
        message = f"{error.detail}: {request.method} {request.url.path[:200]}; see /docs"
        return failure(ServeError(error.status_code, message, headers=error.headers), shape)
    return failure(ServeError(422, "the request is not understood"), shape)
