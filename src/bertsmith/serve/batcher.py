"""Windows of all requests in one queue; batches by token budget; one worker thread per model.

Clients share the queue. A full one still admits a client that has less than its share of what
waits, and small jobs of all clients take turns, so that one client delays only itself.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F

from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import Compute, InferencePass, encode
from bertsmith.infer.windows import Window
from bertsmith.serve.errors import Overloaded, ServeError
from bertsmith.settings.serving import ServingSettings

# Tokens in a batch. On a CPU larger batches are hardly faster (7% at four times the size, MiniLM),
# and every request waits for the current batch.
BUDGETS = {"cpu": 512, "cuda": 65536}
QUEUES = {"cpu": 16.0}  # full batches of small requests that may wait; 1 on other devices
MOST_WAITING = 2  # times the queue's length: its limit for clients with few requests in it
SLACK = 0.5  # factor by which the last window may exceed a batch instead of waiting
RESERVED = 0.25  # share of a batch that is reserved for large jobs, to avoid starvation
Result = TypeVar("Result")


@dataclass(eq=False)
class Job:
    """A request's windows, or a call that has the model to itself for each of its steps."""

    future: asyncio.Future[Any]
    tokens: int
    large: bool  # it does not fit into one batch
    client: str = ""  # whose request it is
    windows: Sequence[Window] = ()
    compute: Compute[Any] | None = None  # makes the results of windows
    key: Hashable = None  # jobs with the same key have the same `compute`
    steps: Generator[None, None, Any] | None = None
    arrived: float = field(default_factory=perf_counter)
    started: float = 0.0
    seconds: float = 0.0  # in batches that it was part of
    taken: int = 0  # windows that are in a batch or done
    done: int = 0
    left: int = 0  # tokens that are not in a batch yet
    turn: int = 0  # when it was last part of a batch
    results: list[Any] = field(default_factory=list)
    cancelled: bool = False


class QueuedWindow(NamedTuple):
    """One window of a job."""

    job: Job
    number: int
    window: Any = None  # none of a call


Finished = dict[Job, BaseException | None]  # with the error that ended a job, if one did


class Canary:
    """Encodes one request in `every` in float32 too, and reports how far the int8 result is."""

    def __init__(self, original: LoadedModel, every: int, report: Callable[[float], Any]) -> None:
        self.original, self.every, self.report = original, every, report
        self.requests = 0

    def watch(self, batch: Sequence[QueuedWindow], states: Sequence[torch.Tensor]) -> None:
        """Report 1 - cosine of the mean states of some windows that begin a request."""
        for item, int8 in zip(batch, states, strict=False):
            self.requests += not item.number
            if item.number == 0 and self.requests % self.every == 0:
                hidden, _ = encode(self.original.model, [item.window], self.original.device)
                cosine = F.cosine_similarity(int8.mean(0), hidden.last.mean(0), dim=0)
                self.report(float(1 - cosine))


class Batcher:
    """The queue and the worker thread of one model."""

    def __init__(
        self,
        model: LoadedModel,
        settings: ServingSettings,
        *,
        turn: "threading.Lock | None" = None,
        watch: Callable[[int, int, float], None] | None = None,  # requests, tokens, seconds
        canary: Canary | None = None,
    ) -> None:
        self.model, self.watch, self.canary = model, watch, canary
        self.limit(settings)
        self._turn = turn or threading.Lock()  # models of one device compute in turns
        self.jobs: deque[Job] = deque()  # by arrival
        self.waiting = 0  # tokens of small jobs that are not in a batch yet
        self.shares = Counter[str]()  # those of each client
        self.waiting_large = 0  # those of large jobs
        self.speed = 0.0  # tokens per second of recent batches
        self._turns = count(1)
        self._skipped = False  # the last batch had nothing of the large job whose turn it was
        self._closed = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="encoder", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the event loop's side

    def limit(self, settings: ServingSettings) -> None:
        """Set the sizes of batches and queues, also of a queue that is in use."""
        kind = self.model.device.type
        self.budget = settings.batch_tokens or self.model.budget or BUDGETS.get(kind, 512)
        # tokens of small jobs that may wait
        self.most = int(self.budget * (settings.queue_batches or QUEUES.get(kind, 1.0)))
        self.patience = 0.75 * settings.timeout  # seconds of compute in large jobs that may wait
        self.exact = settings.exact

    @property
    def alive(self) -> bool:
        """Whether the worker thread is running."""
        return self._thread.is_alive()

    def full(self, client: str | None = None) -> bool:
        """Whether new requests of a client are refused, whatever their size; None: of any client.

        A client that has less than its share of a full queue is admitted. Large jobs do not count:
        they take turns with small ones, and do not delay them.
        """
        if self.waiting < self.most:
            return False
        if client is None or self.waiting >= MOST_WAITING * self.most:
            return True
        own = self.shares[client]
        return own * (len(self.shares) + (not own)) >= self.most

    def overloaded(self, tokens: int | None = None) -> Overloaded:
        """Return the error for a full queue, with the estimated time until it is empty."""
        waiting = self.waiting if tokens is None else tokens
        return Overloaded(waiting / self.speed if self.speed else 1.0)

    def submit(self, needed: InferencePass, client: str = "") -> Job:
        """Queue the windows of a request; its future receives a result for each."""
        tokens = sum(len(window.ids) for window in needed.windows)
        future = asyncio.get_running_loop().create_future()
        job = Job(future, tokens, tokens > self.budget, client, *needed)
        job.results = [None] * len(needed.windows)
        if job.windows:
            return self._add(job)
        future.set_result([])
        return job

    def submit_call(self, steps: Generator[None, None, Any], tokens: int, client: str = "") -> Job:
        """Queue a call for the worker thread; between its steps other requests have their turn."""
        future = asyncio.get_running_loop().create_future()
        return self._add(Job(future, tokens, tokens > self.budget, client, steps=steps))

    def cancel(self, job: Job) -> None:
        """Remove what is left of a job."""
        with self._ready:
            job.cancelled = True
            if job in self.jobs:
                self.jobs.remove(job)
                self._count(job, -job.left)

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
            large = self.waiting_large
            if job.large and large and large + job.tokens > self.speed * self.patience > 0:
                raise self.overloaded(large)
            if not job.large and self.full(job.client):
                raise self.overloaded()
            self.jobs.append(job)
            self._count(job, job.tokens)
            job.turn = next(self._turns)
            self._ready.notify()
        return job

    def _count(self, job: Job, tokens: int) -> None:
        job.left += tokens
        if job.large:
            self.waiting_large += tokens
        else:
            self.waiting += tokens
            self.shares[job.client] += tokens
            if self.shares[job.client] <= 0:
                del self.shares[job.client]

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

    def _pick(self) -> list[QueuedWindow]:
        """The next batch: a share for a large job, then small jobs, then large ones.

        Small jobs of one client are served by arrival, those of several clients in turns. Large
        jobs take turns. They delay a small job by at most the batch that is running when it
        arrives.
        """
        small = self._in_turns([job for job in self.jobs if not job.large])
        large = sorted((job for job in self.jobs if job.large), key=lambda job: job.turn)
        first = large[0] if large else None
        batch: list[QueuedWindow] = []
        total = 0

        def take(job: Job, room: int, slack: int = 0) -> int:
            size, tokens = len(job.windows), 0
            while job.taken < size:
                window = job.windows[job.taken]
                length = len(window.ids)
                full = tokens >= room or tokens + length > room + slack
                if full and (batch or room < self.budget):
                    break
                batch.append(QueuedWindow(job, job.taken, window))
                job.taken += 1
                tokens += length
            self._count(job, -tokens)
            return tokens

        alone = first if first and (self._skipped or not small) else small[0]
        if alone.steps is not None:
            batch.append(QueuedWindow(alone, 0))
            self._count(alone, -min(alone.left, self.budget))
        else:
            if first is not None:
                share = 1 if self._skipped else RESERVED
                total += take(first, int(self.budget * share))
            for job in (*small, *large):
                if total >= self.budget:
                    break
                total += take(job, self.budget - total, int(self.budget * SLACK))
        self._skipped = first is not None and all(item.job is not first for item in batch)
        for job in {item.job for item in batch}:
            job.started = job.started or perf_counter()
            job.turn = next(self._turns)
            if job.steps is None and job.taken == len(job.windows):
                self.jobs.remove(job)
        return batch

    def _in_turns(self, jobs: list[Job]) -> list[Job]:
        """Jobs ordered by how many tokens of the same client are before them in the queue."""
        if len(self.shares) < 2:
            return jobs
        before, ahead = Counter[str](), dict[Job, int]()
        for job in jobs:
            ahead[job] = before[job.client]
            before[job.client] += job.left
        return sorted(jobs, key=ahead.__getitem__)

    def _run(self, batch: list[QueuedWindow]) -> None:
        batch = [item for item in batch if not item.job.cancelled]
        if not batch:
            return
        start = perf_counter()
        jobs = {item.job for item in batch}
        tokens = 0
        if batch[0].job.steps is not None:
            finished = self._step(batch[0].job, batch[0].job.steps)
        else:
            batch.sort(key=lambda item: -len(item.window.ids))
            tokens = sum(len(item.window.ids) for item in batch)
            groups = [[item] for item in batch] if self.exact else [batch]
            finished = {job: error for group in groups for job, error in self._encode(group)}
            for job in finished:
                self.cancel(job)
            for job in jobs - finished.keys():
                if job.done == len(job.windows):
                    finished[job] = None
        seconds = perf_counter() - start
        for job in jobs:
            job.seconds += seconds
        if tokens:
            rate = tokens / max(seconds, 1e-6)
            self.speed = rate if not self.speed else 0.8 * self.speed + 0.2 * rate
            if self.watch is not None:
                self.watch(len(jobs), tokens, seconds)
        if finished:
            _deliver(finished)

    def _step(self, job: Job, steps: Generator[None, None, Any]) -> Finished:
        """Run one step of a call; return the call if it has ended."""
        finished: Finished = {job: None}
        try:
            with self._turn, torch.inference_mode():
                next(steps)
            return {}
        except StopIteration as stop:
            job.results = stop.value
        except Exception as error:  # noqa: BLE001 - the request that caused it shows it
            finished[job] = error
        self.cancel(job)
        return finished

    def _encode(self, items: Sequence[QueuedWindow]) -> Iterator[tuple[Job, BaseException | None]]:
        """Encode windows; a failing batch is bisected until the faulty windows are isolated."""
        try:
            self._forward(items)
            return
        except Exception as error:  # noqa: BLE001 - the request that caused it shows it
            if len(items) == 1:
                yield items[0].job, error
                return
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
        middle = len(items) // 2
        yield from self._encode(items[:middle])
        yield from self._encode(items[middle:])

    def _forward(self, items: Sequence[QueuedWindow]) -> None:
        windows = [item.window for item in items]
        with self._turn, torch.inference_mode():
            model = self.model.model
            hidden, batch = encode(model, windows, self.model.device)
            if not bool(torch.isfinite(hidden.last).all()):
                message = "the model's output is not a number: this request was not answered"
                raise ServeError(424, message)
            passes: dict[Hashable, Any] = {item.job.key: item.job.compute for item in items}
            # Results are only distributed when all are available: a failed batch runs again.
            outputs = {
                key: compute(model, hidden, batch, windows) for key, compute in passes.items()
            }
            if self.canary is not None:
                self.canary.watch(items, batch.layout.split(hidden.last))
        for row, (job, number, _) in enumerate(items):
            job.results[number] = outputs[job.key][row]
            job.done += 1


def once(call: Callable[[], Result]) -> Generator[None, None, Result]:
    """Return a call whose only step needs the model."""
    yield
    return call()


def _deliver(finished: Finished) -> None:
    """Resolve the futures of all finished requests with one call to their event loop."""

    def wake() -> None:
        for job, error in finished.items():
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(job.results)
            else:
                job.future.set_exception(error)

    with suppress(RuntimeError):  # the event loop is closed
        next(iter(finished)).future.get_loop().call_soon_threadsafe(wake)
