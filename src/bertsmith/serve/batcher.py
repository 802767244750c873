"""Windows of all requests in one queue; batches by token budget; one worker thread per model."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch

from bertsmith.serve.errors import Overloaded, ServeError
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.run import EncoderPass, encode
from bertsmith.tasks.windows import Window

# Tokens in a batch. On a CPU larger batches are hardly faster (7% at four times the size, MiniLM),
# and every request waits for the current batch.
BUDGETS = {"cpu": 512, "cuda": 65536}
SLACK = 0.5  # factor by which the last window may exceed a batch instead of waiting
RESERVED = 0.25  # share of a batch that is reserved for the oldest job, to avoid starvation


@dataclass(eq=False)
class Job:
    """A request's windows, or a call that has the model to itself."""

    future: asyncio.Future[Any]
    tokens: int
    windows: Sequence[Window] = ()
    needed: EncoderPass | None = None
    call: Callable[[], Any] | None = None
    arrived: float = field(default_factory=perf_counter)
    started: float = 0.0
    compute: float = 0.0  # seconds in batches that it was part of
    taken: int = 0  # windows that are in a batch or done
    done: int = 0
    left: int = 0  # tokens that are not in a batch yet
    results: list[Any] = field(default_factory=list)
    cancelled: bool = False


class Place(NamedTuple):
    """One window of a job."""

    job: Job
    number: int

    @property
    def window(self) -> Window:
        """The window itself."""
        return self.job.windows[self.number]


class Batch(NamedTuple):
    """What a batch was, for metrics."""

    requests: int
    tokens: int
    seconds: float


class NotFinite(RuntimeError):  # noqa: N818 - the name of the condition
    """The hidden states of a batch have NaN or infinite values."""


class Batcher:
    """The queue and the worker thread of one model."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        budget: int | None = None,
        queue_batches: float = 1.0,
        exact: bool = False,
        turn: threading.Lock | None = None,
        watch: Callable[[Batch], None] | None = None,
    ) -> None:
        self.model, self.exact, self.watch = model, exact, watch
        self._turn = turn or threading.Lock()  # models of one device compute in turns
        self.budget = budget or model.budget or BUDGETS.get(model.device.type, 512)
        self.most = int(self.budget * queue_batches)  # tokens that may wait
        self.jobs: deque[Job] = deque()
        self.waiting = 0  # tokens that are not in a batch yet
        self.speed = 0.0  # tokens per second of recent batches
        self._skipped = False  # the last batch had nothing of the oldest job
        self._closed = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="encoder", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the event loop's side

    @property
    def alive(self) -> bool:
        """Whether the worker thread is running."""
        return self._thread.is_alive()

    @property
    def full(self) -> bool:
        """Whether a new request would be refused."""
        return self.waiting >= self.most

    def overloaded(self) -> Overloaded:
        """Return the error for a full queue, with the estimated time until it is empty."""
        return Overloaded(self.waiting / self.speed if self.speed else 1.0)

    def submit(self, needed: EncoderPass) -> Job:
        """Queue the windows of a request; its future receives a result for each."""
        tokens = sum(len(window.ids) for window in needed.windows)
        future = asyncio.get_running_loop().create_future()
        job = Job(future, tokens, needed.windows, needed)
        job.left, job.results = tokens, [None] * len(needed.windows)
        if not job.windows:
            future.set_result([])
            return job
        return self._add(job)

    def submit_call(self, call: Callable[[], Any], tokens: int) -> Job:
        """Queue a call for the worker thread, for example one that returns attention maps."""
        job = Job(asyncio.get_running_loop().create_future(), tokens, call=call)
        job.left = tokens
        return self._add(job)

    def cancel(self, job: Job) -> None:
        """Remove the remaining windows of a job."""
        with self._ready:
            job.cancelled = True
            if job in self.jobs:
                self.jobs.remove(job)
                self.waiting -= job.left
                job.left = 0

    def close(self) -> None:
        """Stop the worker when the queue is empty."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join()

    def _add(self, job: Job) -> Job:
        with self._ready:
            if self._closed:
                raise ServeError(503, "the server is shutting down")
            if self.full:
                raise self.overloaded()
            self.jobs.append(job)
            self.waiting += job.left
            self._ready.notify()
        return job

    # ------------------------------------------------------------------ the worker's side

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self.jobs:
                    if self._closed:
                        return
                    self._ready.wait()
                batch = self._pick()
            self._run(batch)

    def _pick(self) -> list[Place]:
        """The next batch: a share for the oldest job, then small jobs by arrival, then large ones.

        A job is large if it does not fit into one batch. It delays a small job by at most the
        batch that is running when the small job arrives.
        """
        oldest = self.jobs[0]
        ordered = sorted(self.jobs, key=lambda job: job.left > self.budget)  # each by arrival
        batch: list[Place] = []
        total = 0

        def take(job: Job, room: int, slack: int = 0) -> int:
            size, tokens = len(job.windows), 0
            while job.taken < size:
                length = len(job.windows[job.taken].ids)
                full = tokens >= room or tokens + length > room + slack
                if full and (batch or room < self.budget):
                    break
                batch.append(Place(job, job.taken))
                job.taken += 1
                tokens += length
            job.left -= tokens
            self.waiting -= tokens
            return tokens

        alone = oldest if self._skipped and oldest.call else ordered[0]
        if alone.call is not None:
            self.waiting -= alone.left
            alone.left = 0
            batch.append(Place(alone, 0))
        elif oldest.call is None:
            total += take(oldest, self.budget if self._skipped else int(self.budget * RESERVED))
        for job in ordered if alone.call is None else ():
            if total >= self.budget:
                break
            total += take(job, self.budget - total, int(self.budget * SLACK))
        self._skipped = all(place.job is not oldest for place in batch)
        chosen = {place.job for place in batch}
        for job in chosen:
            job.started = job.started or perf_counter()
            if job.call is not None or job.taken == len(job.windows):
                self.jobs.remove(job)
        return batch

    def _run(self, batch: list[Place]) -> None:
        batch = [place for place in batch if not place.job.cancelled]
        if not batch:
            return
        start = perf_counter()
        jobs = {place.job for place in batch}
        finished: list[tuple[Job, BaseException | None]] = []
        if batch[0].job.call is not None:
            finished.append((batch[0].job, self._call(batch[0].job)))
            tokens = batch[0].job.tokens
        else:
            batch.sort(key=lambda place: -len(place.window.ids))
            tokens = sum(len(place.window.ids) for place in batch)
            groups = [[place] for place in batch] if self.exact else [batch]
            failures = {job: error for group in groups for job, error in self._encode(group)}
            for job in failures:
                self.cancel(job)
            finished += failures.items()
            finished += [
                (job, None) for job in jobs if job not in failures and job.done == len(job.windows)
            ]
        seconds = perf_counter() - start
        for job in jobs:
            job.compute += seconds
        rate = tokens / max(seconds, 1e-6)
        self.speed = rate if not self.speed else 0.8 * self.speed + 0.2 * rate
        if self.watch is not None:
            self.watch(Batch(len(jobs), tokens, seconds))
        if finished:
            _deliver(finished)

    def _call(self, job: Job) -> BaseException | None:
        try:
            assert job.call is not None
            with self._turn, torch.inference_mode():
                job.results = job.call()
        except Exception as error:  # noqa: BLE001 - the request that caused it shows it
            return error
        return None

    def _encode(self, places: Sequence[Place]) -> Iterator[tuple[Job, BaseException]]:
        """Encode windows; a failing batch is bisected until the faulty windows are isolated."""
        try:
            self._forward(places)
        except Exception as error:  # noqa: BLE001 - the request that caused it shows it
            if len(places) == 1:
                yield places[0].job, error
                return
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
        else:
            return
        middle = len(places) // 2
        yield from self._encode(places[:middle])
        yield from self._encode(places[middle:])

    def _forward(self, places: Sequence[Place]) -> None:
        windows = [place.window for place in places]
        with self._turn, torch.inference_mode():
            hidden, batch = encode(self.model.model, windows, self.model.device)
            if not bool(torch.isfinite(hidden.last).all()):
                raise NotFinite("the model's output is not a number")
            passes = {
                place.job.needed.key: place.job.needed.compute
                for place in places
                if place.job.needed is not None
            }
            # Results are only distributed when all are available: a failed batch runs again.
            outputs = {key: compute(hidden, batch, windows) for key, compute in passes.items()}
        for row, (job, number) in enumerate(places):
            assert job.needed is not None
            job.results[number] = outputs[job.needed.key][row]
            job.done += 1


def _deliver(finished: Sequence[tuple[Job, BaseException | None]]) -> None:
    """Resolve the futures of all finished requests with one call to their event loop."""

    def wake() -> None:
        for job, error in finished:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(job.results)
            else:
                job.future.set_exception(error)

    try:
        finished[0][0].future.get_loop().call_soon_threadsafe(wake)
    except RuntimeError:
        return  # the event loop is closed
