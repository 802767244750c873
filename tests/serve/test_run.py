"""A server's sockets and its end: signals, half-sent requests, requests that are being answered."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bertsmith import Bert
from bertsmith.serve import ServingSettings, run
from serve.live import create_app, in_event_loop

BODY = json.dumps({"inputs": "a text"}).encode()
HEAD = f"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()


@in_event_loop
async def test_answers_are_sent_without_delay() -> None:
    """Accepted sockets have TCP_NODELAY."""
    connected = asyncio.get_running_loop().create_future()
    listener = run.listen("127.0.0.1", 0)
    server = await asyncio.start_server(lambda _, w: connected.set_result(w), sock=listener)
    _, writer = await asyncio.open_connection(*listener.getsockname())
    ours = (await connected).get_extra_info("socket")
    option = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    for one in (writer, await connected, server):
        one.close()
        await one.wait_closed()
    assert option == 1


class Live:
    """A server on the event loop of a test."""

    def __init__(self, bert: Bert, drain: float = 0.1) -> None:
        self.app = create_app({"tiny": bert}, ServingSettings(timeout=60))
        self.listener = run.listen("127.0.0.1", 0)
        self.address = self.listener.getsockname()
        config = run.config(self.app, "error")
        self.server = run.Server(config, drain, self.listener)
        self.writers: list[asyncio.StreamWriter] = []  # a writer that is collected closes
        self.ended = asyncio.ensure_future(self.server.serve(sockets=[self.listener]))

    @property
    def batcher(self) -> Any:
        return next(iter(self.app.state.service.models)).batcher

    async def send(self, data: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*self.address)
        self.writers.append(writer)
        writer.write(data)
        await writer.drain()
        return reader


@asynccontextmanager
async def live(bert: Bert) -> AsyncIterator[Live]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    one = Live(bert)
    while not one.server.started:
        await asyncio.sleep(0.01)
    try:
        yield one
    finally:
        for writer in one.writers:
            writer.close()
        one.server.should_exit = one.server.force_exit = True
        await asyncio.wait([one.ended])
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@in_event_loop
async def test_half_sent_requests_do_not_block_the_end(bert: Bert, number: int) -> None:
    async with live(bert) as one:
        half_body = await one.send(HEAD + BODY[:4])
        half_head = await one.send(HEAD[:20])
        nothing = await one.send(b"")
        while not one.server.serving.active:
            await asyncio.sleep(0.01)
        assert signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)
        signal.raise_signal(number)
        await asyncio.wait_for(asyncio.shield(one.ended), 30)  # the time limit is 60
        assert await half_head.read() == await nothing.read() == b""
        answer = await half_body.read()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@in_event_loop
async def test_requests_that_are_being_answered_are_finished(bert: Bert, number: int) -> None:
    async with live(bert) as one:
        with one.batcher._turn:
            reader = await one.send(HEAD + BODY)
            while not one.batcher.speed and not one.server.serving.active:
                await asyncio.sleep(0.01)
            assert signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)
            signal.raise_signal(number)
            signal.raise_signal(number)  # as a supervisor repeats it
            await asyncio.sleep(0.6)
        answer = await reader.read()
        await asyncio.wait_for(asyncio.shield(one.ended), 30)
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_supervisor_passes_reloads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: dict[int, Any] = {}
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # under nohup
    monkeypatch.setattr("os.kill", lambda *told: sent.append(told))
    monkeypatch.setattr(threading.Event, "wait", lambda *_: hang_up_and_end())

    def hang_up_and_end() -> bool:
        handled[signal.SIGHUP](signal.SIGHUP)
        return True

    with socket.socket() as listener:
        run._supervise(Worker, 2, listener, reloads=True)
    assert sent == [(7, signal.SIGHUP)] * 2


def test_a_supervisor_ends_with_the_terminal_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)

    def start() -> Any:
        handled[signal.SIGHUP]()  # arrives before the first worker has started
        return Worker()

    with socket.socket() as listener:
        run._supervise(start, 1, listener)
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} <= {*handled}


class Worker:
    """Stands for a worker process."""

    exitcode, pid = None, 7

    def is_alive(self) -> bool:
        return True

    def terminate(self) -> None:
        pass

    def join(self) -> None:
        pass
