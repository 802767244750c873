"""The gate before all routes: authentication, limits and admission."""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Send

from bertsmith.serve.access import SCOPES, Access, Caller, Scope
from bertsmith.serve.errors import Overloaded, ServeError, shape_of
from bertsmith.serve.route import failure
from bertsmith.serve.service import USAGE, ModelService, Usage
from bertsmith.serve.traces import Traces
from bertsmith.settings.serving import LOOPBACK, ServingSettings

LOG = logging.getLogger("bertsmith.serve")
# No key is needed to GET these.
OPEN = {"/", "/health", "/live", "/ready", "/ping", "/metrics", "/docs", "/openapi.json"}
READING = ("GET", "HEAD", "OPTIONS")  # methods that run no model
REQUEST_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)
GRACE = 0.5  # seconds for the rest of a request after a server has stopped accepting others
BODIES = 32  # times the largest body: the most bytes that all requests together may hold


class State:
    """The mutable state of a server."""

    def __init__(self) -> None:
        self.draining = False
        self.requests: set[Usage] = set()  # those that are being answered
        self.received = 0  # bytes of their bodies
        self._reading: set[asyncio.Timeout] = set()  # time limits of requests being received
        self._end = math.inf  # of the event loop's clock: nothing is received any more

    @property
    def active(self) -> int:
        """How many requests are being answered."""
        return len(self.requests)

    async def finished(self) -> None:
        """Wait until all requests that are being answered now are finished."""
        present = set(self.requests)
        while present & self.requests:
            await asyncio.sleep(0.02)

    async def read(self, receive: Receive, until: float) -> Message:
        """Return the next part of a request; one that does not arrive in time is an error."""
        try:
            async with asyncio.timeout_at(min(until, self._end)) as limit:
                self._reading.add(limit)
                return await receive()
        except TimeoutError:
            more = {"Connection": "close"}
            raise ServeError(408, "the request did not arrive in time", headers=more) from None
        finally:
            self._reading.discard(limit)

    def stop_reading(self) -> None:
        """Give requests that are not received in full a last moment."""
        self._end = asyncio.get_running_loop().time() + GRACE
        for limit in self._reading:
            if not limit.expired():
                limit.reschedule(min(limit.when() or self._end, self._end))


class Admission:
    """Authentication, limits and admission; metrics and logs of every request.

    `serve` replaces all models at once; running requests finish with the old ones.
    """

    service: ModelService
    app: ASGIApp | None = None  # what answers, after a reload
    settings: ServingSettings

    def __init__(self) -> None:
        self.state = State()
        self.traces: Traces | None = None
        # reads the configuration again, where there is one
        self.reload: Callable[[], Awaitable[dict[str, Any]]] | None = None

    def serve(self, service: ModelService, app: FastAPI) -> None:
        """Admit requests for these models from now on."""
        settings = service.settings
        self.access = Access(service.keys)
        self.hosts = {host.lower().encode() for host in settings.hosts}
        self.sites = self.hosts - {host.encode() for host in LOOPBACK}  # whose pages may ask
        self.origins = {origin.lower().encode() for origin in settings.origins}
        self.open = OPEN - ({"/metrics"} if self.access.metrics_closed else set())
        self.routes: set[str] = app.state.paths  # that metrics name
        self.service, self.settings = service, settings
        for model in service.models:
            service.metrics.served(model, 1)

    def caller(
        self, method: str, path: str, headers: Mapping[bytes, bytes], address: str
    ) -> Caller:
        """Return who sends a request; one that is refused before its body is read is an error."""
        host = headers.get(b"host", b"").lower()
        if self.hosts and _name(host) not in self.hosts:
            raise ServeError(403, "this host name is not served here: see the setting allow_host")
        if method == "OPTIONS" or (method in READING and path in self.open):
            return Caller(address)
        if method not in READING and not self._own_page(headers.get(b"origin"), host):
            raise ServeError(403, "pages of other sites are refused: see the setting allow_origin")
        scope: Scope = "admin" if path.startswith("/admin/") else SCOPES.get(path, "use")
        caller = self.access.caller(headers, address, scope)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 15 or int(length) > self.settings.max_body):
            raise self.too_large()
        if method == "POST" and scope == "use" and self.service.models.full(caller.name):
            raise next(iter(self.service.models)).batcher.overloaded()
        return caller

    def _own_page(self, origin: bytes | None, host: bytes) -> bool:
        """Whether a request is no browser's, or from a page of this server.

        A browser lets a page of any site send text/plain to any server, without asking it first.
        """
        if origin is None or origin.lower() in self.origins:
            return True
        site = origin.lower().partition(b"://")[2]
        return site == host or _name(site) in self.sites

    def too_large(self) -> ServeError:
        """Return the error for a body that exceeds the limit."""
        most = self.settings.max_body
        return ServeError(413, f"the request has more than {most:,} bytes: send less at once")

    def note(self, usage: Usage, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Count, trace and log a finished request."""
        metrics, seconds = self.service.metrics, perf_counter() - usage.start
        route = usage.route or (usage.path if usage.path in self.routes else "other")
        metrics.requests.labels(route, usage.model, str(status)).inc()
        metrics.duration.labels(route, usage.model).observe(seconds)
        if usage.model:
            metrics.tokenise.labels(route, usage.model).observe(usage.tokenise)
            metrics.wait.labels(route, usage.model).observe(usage.wait)
            metrics.compute.labels(route, usage.model).observe(usage.compute)
            metrics.tokens.labels(route, usage.model).inc(usage.tokens)
        if not self.settings.json_logs and self.traces is None:
            return
        entry: dict[str, Any] = {
            "request_id": usage.number,
            "client": usage.caller.name,
            "method": usage.method,
            "path": usage.path[:200],
            "status": status,
            "model": usage.model or None,
            "model_sha": usage.sha,
            "tokens": usage.tokens,
            "total_ms": round(1000 * seconds, 2),
            "tokenization_ms": round(1000 * usage.tokenise, 2),
            "queue_ms": round(1000 * usage.wait, 2),
            "inference_ms": round(1000 * usage.compute, 2),
        }
        if self.traces is not None:
            entry["trace_id"] = self.traces.write(usage, entry, headers)
        if self.settings.log_texts:
            entry["texts"] = usage.texts
        if self.settings.json_logs:
            level = logging.ERROR if status >= 500 else logging.INFO
            LOG.log(level, "request", extra={"entry": entry})


class Gate:
    """ASGI middleware: refuses what is not admitted; request ids and headers of answers."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self.app, self.admission, self.state = app, admission, admission.state

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, admission = dict(scope["headers"]), self.admission
        method, path, timeout = scope["method"], scope["path"], admission.settings.timeout
        if method == "HEAD":  # the answer to GET, whose body the protocol leaves out
            scope = {**scope, "method": "GET"}
        address = (scope["client"] or ("",))[0]
        usage = Usage(Caller(address), method, path, request_id(headers), seconds=timeout)
        usage.until = asyncio.get_running_loop().time() + timeout
        USAGE.set(usage)
        status, size, complete = 0, 0, False

        async def counted() -> Message:
            nonlocal size, complete
            message = await (receive() if complete else self.state.read(receive, usage.until))
            if message["type"] == "http.request":
                complete = not message.get("more_body", False)
                more = len(message.get("body", b""))
                size += more
                self.state.received += more
                most = admission.settings.max_body
                if self.state.received > BODIES * most:
                    raise Overloaded(1.0)
                if size > most:
                    raise admission.too_large()
            return message

        async def labelled(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_headers(usage)]
                if self.state.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        self.state.requests.add(usage)
        error: ServeError | None = None
        try:
            try:
                usage.caller = admission.caller(method, path, headers, address)
                usage.caller.spend("requests", 1)
                await (admission.app or self.app)(scope, counted, labelled)
            except ServeError as refusal:
                error = refusal
            except Exception:  # only the request that caused it fails
                LOG.exception("a request failed: %s", path)
                error = ServeError(500, "the server failed")
            if error is not None and not status:
                await failure(error, shape_of(path))(scope, counted, labelled)
        finally:
            self.state.requests.discard(usage)
            self.state.received -= size
            admission.note(usage, status or 500, headers)


def _name(host: bytes) -> bytes:
    """A host without its port."""
    return host[: host.rfind(b"]") + 1] or host.split(b":")[0]


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of a request from its header, or a new one."""
    own = headers.get(b"x-request-id", b"")
    return own.decode() if REQUEST_ID.fullmatch(own) else uuid4().hex


def _headers(usage: Usage) -> list[tuple[bytes, bytes]]:
    values: dict[bytes, Any] = {b"x-request-id": usage.number}
    values[b"x-total-time"] = round(1000 * (perf_counter() - usage.start))
    if usage.model:
        values[b"x-compute-tokens"] = usage.tokens
        values[b"x-tokenization-time"] = round(1000 * usage.tokenise)
        values[b"x-queue-time"] = round(1000 * usage.wait)
        values[b"x-inference-time"] = round(1000 * usage.compute)
    return [(name, str(value).encode()) for name, value in values.items()]
