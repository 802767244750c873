"""Where the work runs: in this process, in local workers, or on a Ray cluster.

An engine takes pieces, reading a few ahead, and yields each with its outcome, in any
order. The outcome of a piece does not depend on the engine. A `WorkerJob` says what is computed.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from queue import SimpleQueue
from typing import Any

from bertsmith.corpus.worker import Compute, WorkerJob, WorkerProcess
from bertsmith.errors import BertsmithError
from bertsmith.files import import_package

Done = Generator[tuple[Any, bytes]]
MOST_WORKERS = 1024
AHEAD = 2  # pieces that are read ahead
PATIENCE = 60  # seconds that a Ray cluster may take to give the first worker its CPU


def run(pieces: Iterator[Any], job: WorkerJob, engine: str, workers: int | None) -> Done:
    """Process all pieces with an engine; with 0 local workers, in this process."""
    if engine not in ENGINES:
        raise BertsmithError(f"unknown engine {engine!r}; there are {', '.join(ENGINES)}")
    if workers is not None and not 0 <= workers <= MOST_WORKERS:
        raise BertsmithError(f"workers must be from 0 to {MOST_WORKERS:,}, not {workers}")
    return ENGINES[engine](pieces, job, workers)


def local(pieces: Iterator[Any], job: WorkerJob, workers: int | None) -> Done:
    """Process pieces in worker processes on this machine, by default one per core."""
    count = cores() if workers is None else workers
    if count == 0:
        compute = job.start()
        yield from ((piece, compute(piece)) for piece in pieces)
        return
    team: list[WorkerProcess] = []
    idle: SimpleQueue[WorkerProcess] = SimpleQueue()
    threads = ThreadPoolExecutor(count)  # one waits for each worker

    def task(piece: Any) -> tuple[Any, bytes]:
        worker = idle.get()
        try:
            return piece, worker.do(piece)
        finally:
            idle.put(worker)

    pending: set[Future[tuple[Any, bytes]]] = set()
    try:
        for piece in pieces:
            if len(team) < count:
                team.append(WorkerProcess(job, len(team)))
                idle.put(team[-1])
            pending.add(threads.submit(task, piece))
            full = len(pending) >= count + AHEAD
            finished, pending = wait(pending, None if full else 0, FIRST_COMPLETED)
            yield from (future.result() for future in finished)
        yield from (future.result() for future in as_completed(pending))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in team:
            worker.stop()
        threads.shutdown()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_ray(pieces: Iterator[Any], job: WorkerJob, workers: int | None) -> Done:
    """Process pieces on a Ray cluster: that of RAY_ADDRESS, or a local one."""
    ray = import_package("ray", "the engine ray needs ray", "'bertsmith[ray]'")
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        # Others may use the cluster too: an actor without a free CPU would never start.
        free = ray.available_resources()
        needs = job.needs(free)
        shares = [free.get(name[4:-1].upper(), 1) / each for name, each in needs.items()]
        count = workers or max(1, int(min(shares)))
        kind = ray.remote(
            scheduling_strategy="SPREAD", max_restarts=3, max_task_retries=3, **needs
        )(_Actor)
        yield from _feed(ray, pieces, [kind.remote(job) for _ in range(count)])
    finally:
        if started:
            ray.shutdown()


class _Actor:
    """A worker in the cluster; bertsmith must be installed there."""

    def __init__(self, job: WorkerJob) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.job = job
        self.compute: Compute | None = None

    def ready(self) -> None:
        """Return once the actor has its CPU and runs."""

    def do(self, piece: Any) -> bytes | str:
        """Return the outcome of a piece as bytes, or the message of a BertsmithError."""
        try:
            self.compute = self.compute or self.job.start()
            return self.compute(piece)
        except BertsmithError as error:
            return error.message


def _feed(ray: Any, pieces: Iterator[Any], actors: list[Any]) -> Done:
    """Keep every actor that runs busy with one piece, and one waiting."""
    starting = {actor.ready.remote(): actor for actor in actors}
    pending: dict[Any, tuple[Any, Any]] = {}
    free: list[Any] = []

    def collect() -> Done:
        seconds = None if pending else PATIENCE
        done, _ = ray.wait([*starting, *pending], num_returns=1, timeout=seconds)
        if not done:
            fault = f"the Ray cluster had no free CPU for {PATIENCE} seconds"
            raise BertsmithError(
                f"{fault}; finished work is kept: run the same command again later"
            )
        try:
            outcome = ray.get(done[0])
        except ray.exceptions.RayActorError as error:
            advice = "run the same command again to continue"
            raise BertsmithError(f"a Ray worker was lost; {advice}") from error
        if done[0] in starting:
            free.extend([starting.pop(done[0])] * 2)
            return
        piece, actor = pending.pop(done[0])
        free.append(actor)
        if isinstance(outcome, str):
            raise BertsmithError(outcome)
        yield piece, outcome

    for piece in pieces:
        while not free:
            yield from collect()
        actor = free.pop(0)
        pending[actor.do.remote(piece)] = piece, actor
    while pending:
        yield from collect()


ENGINES: dict[str, Callable[..., Done]] = {"local": local, "ray": on_ray}
