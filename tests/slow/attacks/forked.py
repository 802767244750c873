"""The program in a forked process with limits on time, memory and file sizes; how it ended."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

GOOD = {"ok", "refused"}
PIPE = 1 << 20  # bytes of standard error
IMPORTED = [
    "bertsmith.bert",
    "bertsmith.cli.app",
    "bertsmith.tasks.check",
    "bertsmith.finetune",
    "bertsmith.tasks.stream",
    "huggingface_hub",
    "pyarrow.parquet",
    "rich.console",
    "rich.table",
    "safetensors.torch",
    "torch._dynamo",
]


class Limits(NamedTuple):
    """What a process may use."""

    seconds: float = 60.0  # of processor time; the wall clock is given five times as many
    memory: int = 2 << 30  # bytes beyond those of an idle process
    file_bytes: int | None = None  # stands for a full disk


NORMAL = Limits()


class Outcome(NamedTuple):
    """How a run ended."""

    kind: str  # "ok", "refused", or what must not happen
    seconds: float
    megabytes: float
    error: str  # the end of standard error

    @property
    def bad(self) -> bool:
        """Did something happen that must not?"""
        return self.kind not in GOOD


@dataclass
class Tally:
    """The counts of one section of the attack."""

    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    slowest: float = 0.0
    largest: float = 0.0

    def add(self, case: str, outcome: Outcome) -> None:
        """Count a run, and print it if it went wrong."""
        self.outcomes[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.megabytes)
        if outcome.bad:
            self.bad.append({"case": case, **outcome._asdict()})
            print(f"{outcome.kind}: {case[:100]}: {outcome.error[-300:]!r}", flush=True)

    def content(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "cases": self.outcomes.total(),
            "outcomes": dict(sorted(self.outcomes.items())),
            "slowest_seconds": round(self.slowest, 1),
            "largest_megabytes": round(self.largest),
            "bad": self.bad,
        }


def import_everything() -> None:
    """Import once what every forked process needs."""
    import torch

    torch.set_num_threads(1)
    for name in IMPORTED:
        import_module(name)


def run(
    words: list[str],
    home: Path,
    limits: Limits = NORMAL,
    *,
    allowed: tuple[int, ...] = (0, 2),
    one_line: bool = False,
) -> Outcome:
    """Run `bertsmith WORDS` in a process of its own.

    With `one_line`, standard error may hold nothing but notes and the one line of an error.
    """
    # Standard error is a pipe, which no limit on file sizes closes.
    output, (reader, writer) = home.parent / "out.txt", os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(words, home, output, writer, limits)
    os.close(writer)
    status, usage, late = _wait(child, 5 * limits.seconds)
    err, out = (
        os.read(reader, PIPE).decode("utf-8", "replace"),
        output.read_text("utf-8", "replace"),
    )
    os.close(reader)
    kind = _kind(status, late, out, err, allowed, one_line)
    if kind in GOOD and usage.ru_maxrss * 1024 > _idle() + limits.memory:
        kind = "memory"
    return Outcome(kind, time.monotonic() - began, usage.ru_maxrss / 1024, err.strip()[-600:])


def _become(words: list[str], home: Path, output: Path, errors: int, limits: Limits) -> None:
    """Be the program, with limits; never returns."""
    status = 70
    try:
        os.chdir(home)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(errors, 2)
        os.close(errors)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        seconds = int(limits.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 4 * limits.memory,) * 2)
        if limits.file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes,) * 2)
        sys.argv = ["bertsmith", *words]
        from bertsmith.cli.app import main

        main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:  # noqa: BLE001 - this is what is looked for
        traceback.print_exc()
        status = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _wait(child: int, seconds: float) -> tuple[int, Any, bool]:
    """Wait for a process, and end it where it takes too long."""
    end = time.monotonic() + seconds
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return status, usage, False
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return status, usage, True
        time.sleep(0.005)


def _kind(
    status: int, late: bool, out: str, err: str, allowed: tuple[int, ...], one_line: bool
) -> str:
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return "timeout"
    if os.WIFSIGNALED(status):
        return "signal"
    if "MemoryError" in err:
        return "memory"
    if "Traceback" in err or "panicked" in err:
        return "traceback"
    code = os.WEXITSTATUS(status)
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    if any(not char.isprintable() for line in lines for char in line):
        return "escape codes"
    if code not in allowed:
        return f"status {code}"
    if code == 2:
        if not lines or not lines[-1].startswith("bertsmith: "):
            return "no line that says why"
        if len(lines[-1]) > 1000 or (one_line and len(lines) > 1):
            return "more than a line"
        return "refused"
    if one_line and (lines or "NaN" in out or "Infinity" in out):
        return "odd output"
    return "ok"


def _idle() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
