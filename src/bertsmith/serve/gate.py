"""The gate before all routes: authentication, limits and admission."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any
from uuid import uuid4

from starlette.responses import Response

from bertsmith.serve.errors import ServeError, shape_of
from bertsmith.serve.route import failure
from bertsmith.serve.work import USAGE, Usage, Work
from bertsmith.settings.serving import LOOPBACK, Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# No key is needed to GET these.
OPEN = {"/", "/health", "/live", "/ready", "/ping", "/metrics", "/docs", "/openapi.json"}
READING = ("GET", "HEAD", "OPTIONS")  # methods that ask for no work
REQUEST_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)
GRACE = 0.5  # seconds for the rest of a request after a server has stopped to accept others
LOG = logging.getLogger("bertsmith.serve")


class State:
    """The mutable state of a server."""

    def __init__(self) -> None:
        self.draining = False
        self.active = 0  # requests that are being answered
        self._reading: set[asyncio.Timeout] = set()  # time limits of requests being received
        self._end = math.inf  # of the event loop's clock: nothing is received any more

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
    """Authentication, limits and admission; metrics and logs of every request."""

    def __init__(self, work: Work, settings: Settings, state: State) -> None:
        self.work, self.settings, self.state = work, settings, state
        key = settings.api_key
        self.key = None if key is None else hashlib.sha256(b"Bearer " + key.encode()).digest()
        self.hosts = {host.lower().encode() for host in settings.hosts}
        self.sites = self.hosts - {host.encode() for host in LOOPBACK}  # whose pages may ask
        self.routes: set[str] = set()  # paths that metrics name

    def refusal(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> ServeError | None:
        """Return the error of a request that is refused before its body is read, if any."""
        host = headers.get(b"host", b"").lower()
        if self.hosts and _name(host) not in self.hosts:
            return ServeError(403, "this host name is not served here: see serve --allow-host")
        if method == "OPTIONS" or (method in READING and path in OPEN):
            return None
        if method not in READING and not self._own_page(headers.get(b"origin"), host):
            return ServeError(403, "pages of other sites are refused: see serve --allow-host")
        if self.key is not None:
            given = hashlib.sha256(headers.get(b"authorization", b"")).digest()
            if not hmac.compare_digest(given, self.key):
                more = {"WWW-Authenticate": "Bearer"}
                return ServeError(401, "the API key is missing or wrong", headers=more)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 15 or int(length) > self.settings.max_body):
            return self.too_large()
        if method == "POST" and self.work.models.full:
            return next(iter(self.work.models)).batcher.overloaded()
        return None

    def _own_page(self, origin: bytes | None, host: bytes) -> bool:
        """Whether a request is no browser's, or from a page of this server.

        A browser lets a page of any site send text/plain to any server, without asking it first.
        """
        site = None if origin is None else origin.lower().partition(b"://")[2]
        return site is None or site == host or _name(site) in self.sites

    def too_large(self) -> ServeError:
        """Return the error for a body that exceeds the limit."""
        most = self.settings.max_body
        return ServeError(413, f"the request has more than {most:,} bytes: send less at once")

    def note(
        self, method: str, path: str, usage: Usage, status: int, seconds: float, number: bytes
    ) -> None:
        """Count and log a finished request."""
        metrics = self.work.metrics
        route = usage.route or (path if path in self.routes else "other")
        metrics.requests.labels(route, str(status)).inc()
        metrics.duration.labels(route).observe(seconds)
        if usage.model:
            metrics.tokenise.labels(route, usage.model).observe(usage.tokenise)
            metrics.wait.labels(route, usage.model).observe(usage.wait)
            metrics.compute.labels(route, usage.model).observe(usage.compute)
            metrics.tokens.labels(route, usage.model).inc(usage.tokens)
        if self.settings.json_logs:
            entry = {
                "request_id": number.decode(),
                "method": method,
                "path": path[:200],
                "status": status,
                "model": usage.model or None,
                "tokens": usage.tokens,
                "total_ms": round(1000 * seconds, 2),
                "tokenization_ms": round(1000 * usage.tokenise, 2),
                "queue_ms": round(1000 * usage.wait, 2),
                "inference_ms": round(1000 * usage.compute, 2),
            }
            LOG.info(json.dumps(entry))


class Gate:
    """ASGI middleware: refuses what is not admitted; request ids and headers of answers."""

    def __init__(self, app: Any, admission: Admission) -> None:
        self.app, self.admission = app, admission
        self.settings, self.state = admission.settings, admission.state

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, headers = perf_counter(), dict(scope["headers"])
        usage = Usage(seconds=self.settings.timeout)
        USAGE.set(usage)
        number = request_id(headers)
        status = 500
        size, whole = 0, False
        until = asyncio.get_running_loop().time() + self.settings.timeout

        async def counted() -> Message:
            nonlocal size, whole
            message = await (receive() if whole else self.state.read(receive, until))
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
                size += len(message.get("body", b""))
                if size > self.settings.max_body:
                    raise self.admission.too_large()
            return message

        async def labelled(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", number), *_usage_headers(usage, start)]
                if self.state.draining:
                    more.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *more]
            await send(message)

        self.state.active += 1
        try:
            refused = self.admission.refusal(scope["method"], scope["path"], headers)
            if refused is not None:
                response = failure(refused, shape_of(scope["path"]))
                await response(scope, counted, labelled)
            else:
                await self._answered(scope, counted, labelled)
        finally:
            self.state.active -= 1
            seconds = perf_counter() - start
            self.admission.note(scope["method"], scope["path"], usage, status, seconds, number)

    async def _answered(self, scope: Any, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        response: Response
        try:
            await self.app(scope, receive, watched)
            return
        except ServeError as error:
            response = failure(error, shape_of(scope["path"]))
        except Exception:  # only the request that caused it fails
            LOG.exception("a request failed: %s", scope["path"])
            response = failure(ServeError(500, "the server failed"), shape_of(scope["path"]))
        if not started:
            await response(scope, receive, send)


def _name(host: bytes) -> bytes:
    """A host without its port."""
    return host[: host.rfind(b"]") + 1] or host.split(b":")[0]


def request_id(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the id of a request from its header, or a new one."""
    own = headers.get(b"x-request-id", b"")
    return own if REQUEST_ID.fullmatch(own) else uuid4().hex.encode()


def _usage_headers(usage: Usage, start: float) -> list[tuple[bytes, bytes]]:
    def milliseconds(seconds: float) -> bytes:
        return str(round(1000 * seconds)).encode()

    total = (b"x-total-time", milliseconds(perf_counter() - start))
    if not usage.model:
        return [total]
    return [
        total,
        (b"x-compute-tokens", str(usage.tokens).encode()),
        (b"x-tokenization-time", milliseconds(usage.tokenise)),
        (b"x-queue-time", milliseconds(usage.wait)),
        (b"x-inference-time", milliseconds(usage.compute)),
    ]
