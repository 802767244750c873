"""Processes of Python that start at once: forks of one in which torch is imported already.

A new Python takes seconds to import torch and most rooms of bertsmith. Where a test needs a real
process, but not its first seconds, it takes `python(...)` in place of `subprocess.Popen(...)`, or
`ran(...)` in place of `subprocess.run(...)`. The words after `sys.executable` are the same, and so
are the process's own descriptors, folder, environment, signals and end.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

# What programs of the tests import; the rest they import themselves.
IMPORTED = (
    "torch._dynamo",  # the first step of an optimizer would import it
    "bertsmith.bert",
    "bertsmith.bulk",
    "bertsmith.cli.app",
    "bertsmith.corpus.worker",
    "bertsmith.distilling",
    "bertsmith.finetuning",
    "bertsmith.serve.run",
    "bertsmith.train",
    "torch.distributed.fsdp",
)
ENVIRONMENT = dict(os.environ)  # as it is before any test changes it
CLOSED = -9  # a standard stream that is closed, as by `>&-` in a shell
NAMES = ("stdin", "stdout", "stderr")

Word = str | Path


class Process:
    """A process as `subprocess.Popen` gives it, with what tests use of that."""

    def __init__(self, order: dict[str, Any], streams: Sequence[int], pipes: dict[str, Any]):
        self.args = order["words"]
        self.stdin: IO[Any] | None = pipes.get("stdin")
        self.stdout: IO[Any] | None = pipes.get("stdout")
        self.stderr: IO[Any] | None = pipes.get("stderr")
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        with theirs:
            line = json.dumps(order).encode() + b"\n"
            server = _server()
            sent = socket.send_fds(server, [line], [theirs.fileno(), *streams])
            server.sendall(line[sent:])
        self.pid = int(self._told())

    def _told(self) -> str:
        line = self._status.recv(32)
        if not line:
            raise RuntimeError("the process that forks has ended")
        return line.decode()

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit status."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._told())
            self._status.close()
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write its input, read what it writes, and wait for its end."""
        outputs: dict[str, Any] = {}

        def read(name: str, stream: IO[Any]) -> None:
            outputs[name] = stream.read()
            stream.close()

        named = (("out", self.stdout), ("err", self.stderr))
        readers = [threading.Thread(target=read, args=(n, s), daemon=True) for n, s in named if s]
        for reader in readers:
            reader.start()
        if self.stdin:
            with suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return outputs.get("out"), outputs.get("err")

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """End it by SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()


def python(
    *words: Word,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    text: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    start_new_session: bool = False,
) -> Process:
    """Start `sys.executable` with these words; the settings are those of `subprocess.Popen`."""
    settings = tuple(zip(NAMES, (stdin, stdout, stderr), strict=True))
    order = {
        "words": list(map(str, words)),
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "session": start_new_session,
        "closed": [name for name, stream in settings if stream == CLOSED],
    }
    ours: dict[str, Any] = {}
    streams, opened = [], []
    for number, (name, stream) in enumerate(settings):
        if stream == subprocess.PIPE:
            ends = os.pipe()
            stream, mine = ends if name == "stdin" else ends[::-1]
            mode = ("w" if name == "stdin" else "r") + ("" if text else "b")
            ours[name] = os.fdopen(mine, mode, **({"encoding": "utf-8"} if text else {}))
            opened.append(stream)
        elif stream == subprocess.DEVNULL:
            stream = os.open(os.devnull, os.O_RDWR)
            opened.append(stream)
        elif stream in (None, CLOSED):
            stream = number
        streams.append(stream if isinstance(stream, int) else stream.fileno())
    try:
        return Process(order, streams, ours)
    finally:
        for handle in opened:
            os.close(handle)


def ran(*words: Word, input: str | None = None, **settings: Any) -> Any:
    """Run `sys.executable` with these words; its outputs are text."""
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    if input is not None:
        pipes["stdin"] = subprocess.PIPE
    with python(*words, text=True, **pipes, **settings) as process:
        out, err = process.communicate(input)
    return subprocess.CompletedProcess(process.args, process.returncode or 0, out, err)


@cache
def _server() -> socket.socket:
    """The connection to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            env=ENVIRONMENT,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


# ------------------------------------------------------------------ the process that forks


def serve(orders: socket.socket) -> dict[str, Any]:
    """Fork for each order, and tell how each fork ends. Returns in a fork, with its order."""
    children: dict[int, socket.socket] = {}
    while True:
        if select.select([orders], [], [], 0.005 if children else None)[0]:
            line, handles, _, _ = socket.recv_fds(orders, 1 << 16, 4)
            if not line:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            while not line.endswith(b"\n"):
                line += orders.recv(1 << 16)
            status = socket.socket(fileno=handles[0])
            pid = os.fork()
            if pid == 0:
                for one in (orders, status, *children.values()):
                    one.close()
                return take_over(json.loads(line), handles[1:])
            for handle in handles[1:]:
                os.close(handle)
            status.send(b"%d" % pid)
            children[pid] = status
        for pid in list(children):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError), children.pop(pid) as status:
                    status.send(b"%d" % os.waitstatus_to_exitcode(code))


def take_over(order: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    """Be a process of its own: session, folder, environment, signals and standard streams."""
    if order["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    places = filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [place for place in places if place not in sys.path]
    for number, (name, handle) in enumerate(zip(NAMES, handles, strict=True)):
        os.dup2(handle, number)
        os.close(handle)
        if name in order["closed"]:
            os.close(number)
            setattr(sys, name, None)
            continue
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = os.fdopen(
            number,
            "w" if number else "r",
            encoding="utf-8",
            errors=errors,
            closefd=False,
            buffering=1 if name == "stderr" or os.isatty(number) else -1,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return order


def run(words: list[str]) -> None:
    """Do what Python does with these words of its command line."""
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words
        sys.path[0] = str(Path(kind).parent)
        runpy.run_path(kind, run_name="__main__")


def ended(words: list[str]) -> int:
    """Run a program, and end as Python does; returns the exit status."""
    status: Any = 0
    try:
        run(words)
    except SystemExit as stop:
        status = stop.code
        if not isinstance(status, int | None):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:  # noqa: BLE001 - Python would end as well
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return int(status or 0)


def main() -> NoReturn:
    """Import, then fork; each fork runs a program."""
    del sys.path[0]  # this file's folder, whose names are not those of programs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in IMPORTED:
        import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # what is not looked at is not copied
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path.insert(0, order["cwd"])
    status = 1
    try:
        status = ended(order["words"])
    finally:
        os._exit(status)  # taking apart what was imported would take seconds


if __name__ == "__main__":
    main()
