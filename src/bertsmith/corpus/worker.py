"""A worker process that computes pieces of work, and its connection to the parent.

Messages go through pipes: a line of JSON, then the bytes that it announces. A process started
this way does not copy its parent's memory, and scripts need no `__main__` guard.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, Protocol

from bertsmith.corpus.pieces import Piece, PiecePart
from bertsmith.corpus.workshop import TextJob
from bertsmith.errors import BertsmithError
from bertsmith.settings.corpus import CorpusSettings

Message = tuple[dict[str, Any], list[bytes]]
Compute = Callable[[Any], bytes]  # a piece of work → its outcome
# Ends a process whose parent was killed, also in the middle of a piece or of its imports.
WATCH = """
import os, sys, threading, time
def watch():
    while os.getppid() == int(sys.argv[1]):
        time.sleep(0.1)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
"""


class WorkerJob(Protocol):
    """What workers compute: a dataclass of plain values, which is copied to each worker."""

    @property
    def main(self) -> str:
        """The Python code of a worker process; it calls `serve`."""

    def start(self) -> Compute:
        """Prepare a worker; returns what it does with each piece."""

    def packed(self, piece: Any) -> Message:
        """A piece as a message."""

    def environment(self, number: int) -> Mapping[str, str]:
        """Environment variables of the worker process with this number."""

    def needs(self, free: Mapping[str, float]) -> dict[str, float]:
        """The CPUs and GPUs of a worker in a Ray cluster with these free resources."""


class WorkerProcess:
    """The parent's side: one process that does one piece at a time."""

    def __init__(self, job: WorkerJob, number: int = 0) -> None:
        self.job = job
        self.process = subprocess.Popen(
            [sys.executable, "-c", WATCH + job.main, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **job.environment(number)},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.to, self.back = self.process.stdin, self.process.stdout
        self.unsent = [{"job": asdict(job)}]  # type: ignore[call-overload]

    def do(self, piece: Any) -> bytes:
        """Process a piece of work; returns its outcome as bytes."""
        message = self.job.packed(piece)
        try:
            while self.unsent:
                send(self.to, self.unsent.pop(), [])
            send(self.to, *message)
            answer, outcome = receive(self.back)
        except (OSError, EOFError) as error:
            status = self.process.wait()
            raise BertsmithError(
                f"a worker process died (status {status}), possibly out of memory:"
                " run the same command again to continue, with fewer workers if it happens again"
            ) from error
        if "mistake" in answer:
            raise BertsmithError(answer["mistake"])
        if "failure" in answer:
            raise RuntimeError(f"a worker failed:\n{answer['failure']}")
        return outcome[0]

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.back.close()
        with suppress(OSError):  # it may have unwritten data for the ended process
            self.to.close()


def send(stream: IO[bytes], head: dict[str, Any], blobs: list[bytes]) -> None:
    """Write a message."""
    stream.write(json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode() + b"\n")
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: IO[bytes]) -> Message:
    """Read a message; EOFError if there is none, or an incomplete one."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("no message")
    head = json.loads(line)
    sizes = head.pop("sizes")
    blobs = [stream.read(size) for size in sizes]
    if list(map(len, blobs)) != sizes:
        raise EOFError("half of a message")
    return head, blobs


def main() -> None:
    """Prepare text: the process of a `Job`."""
    serve(lambda job: TextJob(**{**job, "settings": CorpusSettings(**job["settings"])}), _piece)


def serve(read_job: Callable[[Any], WorkerJob], read_piece: Callable[[Any, Any], Any]) -> None:
    """Do pieces of work from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    source = sys.stdin.buffer
    # Output of libraries must not mix with the messages.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        job, compute = read_job(receive(source)[0]["job"]), None
        while True:
            head, data = receive(source)
            try:
                compute = compute or job.start()  # here, where its errors are reported
                send(answers, {}, [compute(read_piece(head, data))])
            except BertsmithError as error:
                send(answers, {"mistake": error.message}, [])
            except Exception:  # noqa: BLE001 - the parent shows it
                send(answers, {"failure": traceback.format_exc()}, [])
    except (EOFError, BrokenPipeError):
        return


def _piece(head: dict[str, Any], data: list[bytes]) -> Piece:
    pairs = zip(head["parts"], data, strict=True)
    parts = ({**part, "data": blob, "lengths": tuple(part["lengths"])} for part, blob in pairs)
    return Piece(head["number"], tuple(PiecePart(**part) for part in parts), 0)
