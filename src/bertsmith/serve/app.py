"""The server as one ASGI application: models → routes behind the gate."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from bertsmith import __version__
from bertsmith.errors import BertsmithError
from bertsmith.serve.address import BaseAddresses
from bertsmith.serve.cohere import cohere_routes
from bertsmith.serve.errors import ServeError, shape_of
from bertsmith.serve.gate import Admission, Gate
from bertsmith.serve.hub import hub_routes
from bertsmith.serve.openai import VllmClassify, openai_routes, vllm_routes
from bertsmith.serve.own import Dialects, Readers, own_routes, search_routes
from bertsmith.serve.playground import playground_routes
from bertsmith.serve.route import answer, failure
from bertsmith.serve.service import ModelService
from bertsmith.serve.tei import TeiEmbed, tei_routes
from bertsmith.serve.traces import Traces


def host(service: ModelService, index: Readers | None) -> FastAPI:
    """Return the application with its gate, which a reload gives another set of routes."""
    admission = Admission()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        admission.service.close()
        if admission.traces is not None:
            admission.traces.close()

    app = application(service, admission, index, lifespan=lifespan)
    app.state.service, app.state.admission = service, admission
    if service.settings.traces:
        admission.traces = Traces()
    admission.serve(service, app)
    app.add_middleware(Gate, admission=admission)
    app.add_middleware(BaseAddresses)  # before the gate, which knows what routes need
    if service.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type", "X-Request-Id", "traceparent"),
            expose_headers=("X-Request-Id", "Retry-After"),
        )
    return app


def application(
    service: ModelService, admission: Admission, index: Readers | None, lifespan: Any = None
) -> FastAPI:
    """Return the routes to some models, without the gate."""
    app = FastAPI(
        title="bertsmith",
        version=__version__,
        summary="Encoder models over HTTP: every task, and the dialects of other servers.",
        lifespan=lifespan,
        # The button "Authorize" of /docs; the gate is what asks for the key.
        dependencies=[Security(HTTPBearer(auto_error=False))] if service.keys else [],
    )
    shared: Dialects = {
        "classify": (lambda keys: "input" in keys, VllmClassify),
        # our own requests say whether vectors are normalised
        "embed": (lambda keys: "normalise" not in keys, TeiEmbed),
    }
    routers = (
        own_routes(service, shared),
        hub_routes(service),
        tei_routes(service),
        openai_routes(service),
        cohere_routes(service),
        vllm_routes(service),
        search_routes(service, index),
        playground_routes(service, index),
    )
    for router in routers:
        app.include_router(router)
    _health_routes(app, service, admission, index)
    app.state.paths = {
        getattr(route, "path", "") for router in (app, *routers) for route in router.routes
    }
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    return app


def _health_routes(
    app: FastAPI, service: ModelService, admission: Admission, index: Readers | None
) -> None:
    def alive() -> bool:
        return all(model.batcher.alive for model in service.models)

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
        problem = await index.problem() if index is not None else None
        if not alive() or admission.state.draining:
            problem = "the server is shutting down"
        if problem is None:
            return answer({"status": "ready"})
        return failure(ServeError(503, problem), shape_of("/ready"))

    @app.post("/admin/reload", tags=["health"])
    async def reload() -> Any:
        """Read the configuration file again, load what is new, and serve it."""
        if admission.reload is None:
            raise ServeError(409, "this server has no configuration file: see the setting config")
        try:
            return answer(await admission.reload())
        except BertsmithError as error:
            return failure(ServeError(422, str(error)), shape_of("/admin/reload"))


async def _http_error(request: Request, error: Exception) -> Response:
    shape = shape_of(request.url.path)
    if isinstance(error, HTTPException):
        message = f"{error.detail}: {request.method} {request.url.path[:200]}; see /docs"
        return failure(ServeError(error.status_code, message, headers=error.headers), shape)
    return failure(ServeError(422, "the request is not understood"), shape)
