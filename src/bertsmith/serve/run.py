"""A server process: it listens, drains on SIGTERM, and may share its socket with others."""

import asyncio
import json
import logging
import multiprocessing
import multiprocessing.process
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from bertsmith.errors import BertsmithError
from bertsmith.serve.gate import LOG, State
from bertsmith.serve.metrics import FOLDER
from bertsmith.serve.protocol import RefusingProtocol

QUIET = 10  # checks, 0.05 s apart, without a request before a closing server exits
LAST = 5  # seconds that clients then have to read their answers
BACKLOG = 2048  # connections that wait to be accepted
SWITCH = 0.0005  # seconds after which the event loop yields the GIL to the workers
FAILED = 2  # the exit status of a worker that could not start
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none

Build = Callable[[], Any]  # creates the application, in the process that serves it
Files = tuple[str, str] | None  # the certificate and the private key of HTTPS
Process = multiprocessing.process.BaseProcess


class Server(uvicorn.Server):
    """A server that drains on SIGTERM, and on SIGHUP without a configuration file to read again.

    It accepts requests for a moment, while it reports not ready and responses close their
    connections, so that no client sends a request on a connection that is about to be closed. Then
    it answers the requests on open connections and exits. One that is not received in full by then
    gets 408; others have the time limit of a request, whatever their clients do.
    """

    def __init__(self, config: uvicorn.Config, drain: float, listener: socket.socket) -> None:
        super().__init__(config)
        self.drain, self.listener = drain, listener
        app: Any = config.app
        self.serving: State = app.state.admission.state
        self.timeout: float = app.state.admission.settings.timeout
        self.site: Any = getattr(app.state, "site", None)  # reads its configuration again
        self.tasks: list[asyncio.Task[None]] = []  # started by signals

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle SIGHUP as well, unless it would end the server and is ignored (nohup)."""
        with super().capture_signals():
            main = threading.current_thread() is threading.main_thread()
            if main and (self.site is not None or signal.getsignal(HANGUP) == signal.SIG_DFL):
                signal.signal(HANGUP, self.handle_exit)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining, or reload; a second Ctrl-C exits at once."""
        if sig == HANGUP and sig != signal.SIGTERM and self.site is not None:
            if self.started:
                self._start(self._reload())
            return
        if not self.started or (self.serving.draining and sig == signal.SIGINT):
            super().handle_exit(sig, frame)
            return
        if self.serving.draining:  # a signal to the process group, then one from the supervisor
            return
        self.serving.draining = True
        if sig == signal.SIGINT and not self.serving.active:
            self.should_exit = True
            return
        self._start(self._end())

    def _start(self, action: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the event loop, from a signal handler."""
        loop = asyncio.get_event_loop()
        loop.call_soon_threadsafe(lambda: self.tasks.append(loop.create_task(action)))

    async def _reload(self) -> None:
        """Read the certificate and the configuration again; mistakes are logged."""
        with suppress(BertsmithError):  # logged already
            await self.site.reload()
        if self.config.ssl is not None and self.config.ssl_certfile is not None:
            try:
                self.config.ssl.load_cert_chain(self.config.ssl_certfile, self.config.ssl_keyfile)
            except (OSError, ValueError) as error:
                LOG.error("the certificate cannot be read again: %s", error)

    async def _end(self) -> None:
        """Accept requests for a moment, then answer those that are received in full."""
        await asyncio.sleep(self.drain)
        self.listener.listen(0)  # no waiting connection is dropped when the socket closes
        await asyncio.sleep(0.2)
        for server in self.servers:
            server.close()
        self.serving.stop_reading()
        quiet, end = 0, time.monotonic() + self.timeout
        while quiet < QUIET and time.monotonic() < end:
            await asyncio.sleep(0.05)
            quiet = 0 if self.serving.active else quiet + 1
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise a one-line error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it, each answer on a
    # connection that is kept alive waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.set_inheritable(True)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BertsmithError(f"cannot listen on {host}:{port} ({error})") from error
    return listener


def serve(
    build: Build,
    listener: socket.socket,
    *,
    workers: int = 1,
    drain: float = 1.0,
    json_logs: bool = False,
    tls: Files = None,
    reloads: bool = False,
) -> None:
    """Serve until a signal, in several processes; with `reloads`, SIGHUP reads settings again."""
    if reloads:
        signal.signal(HANGUP, lambda *_: None)  # until the configuration is read for the first time
    arguments = (listener, build, drain, json_logs, tls)
    if workers == 1:
        run_process(*arguments)
        return
    log_to_stderr(as_json=json_logs)

    def start() -> Process:
        process = multiprocessing.get_context("spawn").Process(target=run_process, args=arguments)
        process.start()
        return process

    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder  # folder for their combined metrics
        _supervise(start, workers, listener, reloads=reloads)


def _supervise(
    start: Callable[[], Process], count: int, listener: socket.socket, *, reloads: bool = False
) -> None:
    """Keep so many processes running until a signal; each then drains by itself."""
    stop, failed = threading.Event(), False
    processes: list[Process] = []

    def handle(number: int = signal.SIGTERM, _: FrameType | None = None) -> None:
        if not reloads or number != HANGUP:
            stop.set()
            return
        for process in processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, HANGUP):
        if signal.getsignal(number) != signal.SIG_IGN or (reloads and number == HANGUP):
            signal.signal(number, handle)
    processes += [start() for _ in range(count)]
    while not stop.wait(0.5):
        for number, process in enumerate(processes):
            if process.is_alive():
                continue
            if failed := process.exitcode == FAILED:  # it could not start: others would fail too
                stop.set()
                break
            LOG.error("worker %s ended with status %s", process.pid, process.exitcode)
            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
            processes[number] = start()
    listener.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    if failed:
        raise BertsmithError("a worker could not start; its reason is above")


def run_process(
    listener: socket.socket, build: Build, drain: float, json_logs: bool = False, tls: Files = None
) -> None:
    """Run one process: create the application and serve requests."""
    log_to_stderr(as_json=json_logs)
    _open_more_files()
    try:
        app = build()
    except BertsmithError as error:
        if multiprocessing.parent_process() is None:
            raise
        LOG.error("bertsmith: %s", error)
        sys.exit(FAILED)
    sys.setswitchinterval(SWITCH)
    settings = config(app, tls=tls)
    try:
        settings.load()  # reads the certificate
    except (OSError, ValueError) as error:
        files = " and ".join(tls or ())
        raise BertsmithError(f"{files}: no certificate and its key ({error})") from error
    Server(settings, drain, listener).run(sockets=[listener])


class JsonLines(logging.Formatter):
    """Log records as lines of JSON, with what `entry` says about a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry | getattr(record, "entry", {}), ensure_ascii=False)


def log_to_stderr(*, as_json: bool) -> None:
    """Write log lines to standard error: the server's, and warnings of its libraries."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    LOG.setLevel(logging.INFO)


def _open_more_files() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def config(app: Any, log_level: str = "warning", tls: Files = None) -> uvicorn.Config:
    """Return the uvicorn configuration of an application."""
    proxies = app.state.admission.settings.proxies
    return uvicorn.Config(
        app,
        http=RefusingProtocol,
        ws="none",  # a request to upgrade is answered as if it were none
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        log_config=None,  # see log_to_stderr
        log_level=log_level,
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=LAST,
        lifespan="on",
    )
