"""HTTP connections that refuse requests at once while all queues are full."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bertsmith.serve.access import Caller
from bertsmith.serve.errors import Overloaded, ServeError, shape_of
from bertsmith.serve.gate import Admission, request_id
from bertsmith.serve.route import failure
from bertsmith.serve.service import Usage

SLOW = {b"connection", b"expect", b"transfer-encoding", b"upgrade"}  # need the full parser


class RefusingProtocol(H11Protocol):
    """A connection that refuses requests early, and is closed if its client is too slow.

    A request that full queues refuse is answered before HTTP is parsed in full and a task is
    started: under overload that leaves the event loop to the admitted requests. An unusual request
    takes the normal path, through `Gate`, with the same outcome. The timeout of a request limits
    the time to send it, and to read each piece of its answer.
    """

    admission: Admission
    late: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.admission = self.config.app.state.admission  # type: ignore[union-attr]
        transport.set_write_buffer_limits(high=1, low=0)  # what is not sent at once is watched
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        for timer in filter(None, (self.late, self.unread)):
            timer.cancel()

    def pause_writing(self) -> None:
        """Start the clock when the client does not take what is sent."""
        super().pause_writing()
        if self.unread is None:
            timeout = self.admission.settings.timeout
            self.unread = self.loop.call_later(timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the clock."""
        super().resume_writing()
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def data_received(self, data: bytes) -> None:
        """Refuse a complete request if the queues are full; else pass the bytes on."""
        response = self._refusal(data) if self.admission.service.models.full() else None
        if response is None:
            super().data_received(data)
        else:
            self._unset_keepalive_if_required()
            self.transport.write(response)
        self._watch()

    def _watch(self) -> None:
        """Start the clock when a request is expected, stop it when it is received in full."""
        state = self.conn.their_state
        idle = state is h11.IDLE and not self.conn.trailing_data[0]
        waiting = state in (h11.IDLE, h11.SEND_BODY)
        if self.late is not None and (idle or not waiting):
            self.late.cancel()
            self.late = None
        if waiting and self.late is None:
            self.late = self.loop.call_later(self.admission.settings.timeout, self._close_late)

    def _close_late(self) -> None:
        # While a request is being answered, the gate waits for the rest of it.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        self.late = None

    def _refusal(self, data: bytes) -> bytes | None:
        """Return the response to a request that is certainly refused; else None."""
        between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        admission = self.admission
        plain = between and not admission.state.draining and not admission.settings.proxies
        request = parse(data) if plain else None
        if request is None:
            return None
        (path, headers), address = request, (self.client or ("",))[0]
        try:
            admission.caller("POST", path, headers, address)
        except Overloaded as error:
            usage = Usage(Caller(address), "POST", path, request_id(headers))
            admission.note(usage, error.status, headers)
            answer = failure(error, shape_of(path))
            answer.headers["x-request-id"] = usage.number
            lines = [name + b": " + value for name, value in answer.raw_headers]
            head = b"\r\n".join([b"HTTP/1.1 429 Too Many Requests", *lines])
            return head + b"\r\n\r\n" + bytes(answer.body)
        except ServeError:
            pass
        return None


def parse(data: bytes) -> tuple[str, dict[bytes, bytes]] | None:
    """The path and headers of one complete, plain POST request; None if it is anything else."""
    head, separator, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if not separator or len(words) != 3 or words[0] != b"POST" or words[2] != b"HTTP/1.1":
        return None
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if not colon or name in headers or (name in SLOW and value.lower() != b"keep-alive"):
            return None
        headers[name] = value
    length = headers.get(b"content-length", b"")
    target = words[1].partition(b"?")[0]
    if not length.isdigit() or int(length[:12]) != len(body) or not target.isascii():
        return None
    return target.decode("ascii"), headers
