"""Batches: shared by requests, fair, bounded; a failure hits only who caused it."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

from bertsmith import Bert
from bertsmith.batch import Batch as TokenBatch
from bertsmith.infer.run import InferencePass
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model
from bertsmith.serve import ServingSettings
from bertsmith.serve.batcher import Batcher, once
from bertsmith.serve.errors import Overloaded, ServeError
from bertsmith.tasks.embedding import embed
from serve.live import in_event_loop


def lengths_of(
    model: Model, hidden: Hidden, batch: TokenBatch, windows: Sequence[Window]
) -> list[int]:
    return [len(window.ids) for window in windows]


def job(*lengths: int, id: int = 5) -> InferencePass:
    windows = [Window(0, [id] * n, [0] * n, range(n), 0) for n in lengths]
    return InferencePass(windows, lengths_of, "lengths")


class Batch(NamedTuple):
    requests: int
    tokens: int
    seconds: float


@contextmanager
def batching(bert: Bert, **settings: Any) -> Iterator[tuple[Batcher, list[Batch]]]:
    batches: list[Batch] = []
    batcher = Batcher(
        bert, ServingSettings(**settings), watch=lambda *row: batches.append(Batch(*row))
    )
    try:
        yield batcher, batches
    finally:
        batcher.close()


@contextmanager
def held(batcher: Batcher) -> Iterator[None]:
    """Keep the worker from computing, so that jobs gather."""
    with batcher._turn:
        yield


async def taken(batcher: Batcher) -> None:
    """Wait until the worker has taken all jobs."""
    while batcher.jobs:
        await asyncio.sleep(0.001)


@in_event_loop
async def test_requests_share_batches_and_get_their_own_results(bert: Bert) -> None:
    with batching(bert, batch_tokens=2000) as (batcher, batches):
        with held(batcher):
            first = batcher.submit(job(3))  # the worker takes this one alone
            await taken(batcher)
            others = [batcher.submit(job(n, n + 1)) for n in range(1, 20)]
        results = [await one.future for one in (first, *others)]
        assert results == [[3], *([n, n + 1] for n in range(1, 20))]
        assert [batch.requests for batch in batches] == [1, 19]


@in_event_loop
async def test_a_long_job_delays_short_ones_by_one_batch(bert: Bert) -> None:
    order: list[str] = []
    with batching(bert, batch_tokens=240, queue_batches=100) as (batcher, batches):
        with held(batcher):
            long = batcher.submit(job(*[60] * 40))
            while long.taken == 0:
                await asyncio.sleep(0.001)
            shorts = [batcher.submit(job(4)) for _ in range(5)]
        long.future.add_done_callback(lambda _: order.append("long"))
        for short in shorts:
            short.future.add_done_callback(lambda _: order.append("short"))
        await asyncio.gather(long.future, *(short.future for short in shorts))
        assert order == ["short"] * 5 + ["long"]
        # The first batch is the long job's own; the second has all short ones.
        assert batches[1].requests == 6
        assert len(batches) <= 12


@in_event_loop
async def test_a_long_job_is_not_starved_by_short_ones(bert: Bert) -> None:
    with batching(bert, batch_tokens=120, queue_batches=1000) as (batcher, _):
        long = batcher.submit(job(*[60] * 8))
        count = 0
        while not long.future.done():
            await asyncio.gather(*(batcher.submit(job(30)).future for _ in range(8)))
            count += 1
            assert count < 40


@in_event_loop
async def test_windows_beyond_the_budget_alternate_with_short_jobs(bert: Bert) -> None:
    with batching(bert, batch_tokens=32, queue_batches=100) as (batcher, batches):
        long = batcher.submit(job(*[60] * 3))
        short = [batcher.submit(job(5)) for _ in range(3)]
        await asyncio.gather(long.future, *(one.future for one in short))
        assert sum(batch.tokens for batch in batches) == 195


@in_event_loop
async def test_a_full_queue_refuses(bert: Bert) -> None:
    with batching(bert, batch_tokens=64, queue_batches=2) as (batcher, _):
        with held(batcher):
            jobs = [batcher.submit(job(50))]
            await taken(batcher)
            jobs += [batcher.submit(job(50)) for _ in range(3)]
            assert batcher.full()
            with pytest.raises(Overloaded) as refusal:
                batcher.submit(job(1))
            assert int(refusal.value.headers["Retry-After"]) >= 1
        for one in jobs:
            await one.future
        assert batcher.waiting == 0


@in_event_loop
async def test_large_jobs_do_not_close_the_queue_to_small_ones(bert: Bert) -> None:
    with batching(bert, batch_tokens=64, queue_batches=1) as (batcher, _):
        with held(batcher):
            large = [batcher.submit(job(*[60] * 40)) for _ in range(3)]
            while not any(one.taken for one in large):
                await asyncio.sleep(0.001)
            assert not batcher.full()
            small = [batcher.submit(job(4)) for _ in range(10)]
        for one in (*small, *large):
            await one.future
        assert (batcher.waiting, batcher.waiting_large) == (0, 0)


@in_event_loop
async def test_large_jobs_take_turns(bert: Bert) -> None:
    progress: list[tuple[int, int]] = []
    with batching(bert, batch_tokens=240, queue_batches=1) as (batcher, _):
        with held(batcher):
            jobs = [batcher.submit(job(*[60] * 40)) for _ in range(2)]
            batcher.watch = lambda *_: progress.append((jobs[0].taken, jobs[1].taken))
        await asyncio.gather(*(one.future for one in jobs))
    assert all(abs(one - other) <= 8 for one, other in progress)  # at most two batches apart
    assert progress[-1] == (40, 40)


@in_event_loop
async def test_large_jobs_are_refused_when_they_would_time_out(bert: Bert) -> None:
    with batching(bert, batch_tokens=64, timeout=40) as (batcher, _):
        await batcher.submit(job(5)).future
        with held(batcher):
            batcher.speed = 100.0
            first = batcher.submit(job(*[60] * 100))  # one is always accepted
            with pytest.raises(Overloaded) as refusal:
                batcher.submit(job(*[60] * 10))
            assert 1 < int(refusal.value.headers["Retry-After"]) <= 60
            batcher.cancel(first)
            accepted = [batcher.submit(job(*[60] * 10)) for _ in range(4)]
        for one in accepted:
            await one.future


@in_event_loop
async def test_calls_take_turns_with_small_jobs(bert: Bert) -> None:
    order: list[str] = []

    def steps() -> Generator[None, None, str]:
        for _ in range(4):
            order.append("step")
            yield
        return "done"

    with batching(bert, batch_tokens=64) as (batcher, _):
        with held(batcher):
            call = batcher.submit_call(steps(), 500)
            while call.turn < 2:  # the worker waits with its first step
                await asyncio.sleep(0.001)
            small = batcher.submit(job(4))
            batcher.watch = lambda *_: order.append("small")
        await small.future
        assert await call.future == "done"
        assert (batcher.waiting, batcher.waiting_large) == (0, 0)
    assert order.count("step") == 4
    assert order.index("small") <= 2


@in_event_loop
async def test_what_is_cancelled_is_not_computed(bert: Bert) -> None:
    with batching(bert, batch_tokens=64, queue_batches=100) as (batcher, batches):
        with held(batcher):
            first = batcher.submit(job(5))
            await taken(batcher)
            gone = batcher.submit(job(*[60] * 20))
            stays = batcher.submit(job(7))
            batcher.cancel(gone)
        assert await stays.future == [7]
        assert await first.future == [5]
        assert batcher.waiting == 0
        assert sum(batch.tokens for batch in batches) == 12


@pytest.mark.parametrize("kind", ["nan", "memory"])
@in_event_loop
async def test_only_the_guilty_request_fails(
    bert: Bert, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = bert.model.encoder
    forward: Callable[..., Any] = encoder.forward

    def failing(batch: TokenBatch, trace: Any = None) -> Any:
        hidden = forward(batch, trace)
        guilty = batch.ids == 7
        if kind == "memory" and guilty.any():
            raise torch.OutOfMemoryError("no memory is left")
        return hidden._replace(last=hidden.last.masked_fill(guilty[:, None], float("nan")))

    monkeypatch.setattr(encoder, "forward", failing)
    with batching(bert, batch_tokens=1000) as (batcher, _):
        with held(batcher):
            jobs = [batcher.submit(job(3))]
            await taken(batcher)
            jobs += [batcher.submit(job(4, 5, id=7 if n == 3 else 5)) for n in range(8)]
        results = await asyncio.gather(*(one.future for one in jobs), return_exceptions=True)
        wrong = [n for n, one in enumerate(results) if isinstance(one, BaseException)]
        assert wrong == [4]
        assert isinstance(results[4], ServeError if kind == "nan" else torch.OutOfMemoryError)
        assert results[5] == [4, 5]
        assert batcher.alive
        assert batcher.waiting == 0


@in_event_loop
async def test_calls_run_alone_and_are_not_starved(bert: Bert) -> None:
    with batching(bert, batch_tokens=64, queue_batches=1000) as (batcher, _):
        call = batcher.submit_call(once(lambda: threading.current_thread().name), 500)
        count = 0
        while not call.future.done():
            await asyncio.gather(*(batcher.submit(job(5)).future for _ in range(4)))
            count += 1
            assert count < 100
        assert await call.future == "encoder"


@in_event_loop
async def test_exact_gives_the_same_bits_in_any_company(bert: Bert) -> None:
    texts = ["The river flows.", "bees " * 40, "A storm.", *(f"number {n}" for n in range(20))]
    with batching(bert, exact=True) as (batcher, _):

        async def vectors(text: str) -> bytes:
            steps = embed.steps(bert, [text])
            results = await batcher.submit(next(steps)).future
            try:
                steps.send(results)
            except StopIteration as stop:
                return bytes(stop.value.tobytes())
            raise AssertionError

        together = await asyncio.gather(*map(vectors, texts))
        assert together == [await vectors(text) for text in texts]
        assert together[0] == bert.embed([texts[0]]).tobytes()


@in_event_loop
async def test_a_closed_batcher_finishes_what_it_has(bert: Bert) -> None:
    batcher = Batcher(bert, ServingSettings(batch_tokens=20, queue_batches=100))
    jobs = [batcher.submit(job(5)) for _ in range(50)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    assert [await one.future for one in jobs] == [[5]] * 50
    closing.join()
    with pytest.raises(ServeError, match="shutting down"):
        batcher.submit(job(5))


@in_event_loop
async def test_a_client_with_little_is_admitted_to_a_full_queue(bert: Bert) -> None:
    """One client's many requests fill the queue; others still have their share of it."""
    with batching(bert, batch_tokens=64, queue_batches=2) as (batcher, _):
        with held(batcher):
            jobs = [batcher.submit(job(50), "many")]
            await taken(batcher)
            jobs += [batcher.submit(job(50), "many") for _ in range(3)]
            assert batcher.full()
            assert batcher.full("many")
            assert not batcher.full("few")
            with pytest.raises(Overloaded):
                batcher.submit(job(1), "many")
            jobs += [batcher.submit(job(30), "few") for _ in range(3)]
            assert batcher.full("few")  # it has more than its half of 128
            assert not batcher.full("third")
            jobs += [batcher.submit(job(40), "third")]
            assert batcher.full("fourth")  # twice the queue's length waits
        for one in jobs:
            await one.future
        assert (batcher.waiting, batcher.shares) == (0, {})


@in_event_loop
async def test_small_jobs_of_clients_take_turns(bert: Bert) -> None:
    order: list[str] = []
    with batching(bert, batch_tokens=40, queue_batches=100) as (batcher, _):
        with held(batcher):
            first = batcher.submit(job(20), "many")
            await taken(batcher)
            jobs = [batcher.submit(job(20), "many") for _ in range(8)]
            jobs += [batcher.submit(job(20), "few")]
            for name, one in zip("abcdefghF", jobs, strict=True):
                one.future.add_done_callback(lambda _, name=name: order.append(name))
        for one in (first, *jobs):
            await one.future
        await asyncio.sleep(0)
    assert order.index("F") <= 1  # in the first batch, though it came last


@in_event_loop
async def test_a_request_of_400_texts_turns_nobody_away(bert: Bert) -> None:
    with batching(bert, batch_tokens=512, queue_batches=16) as (batcher, _):
        with held(batcher):
            large = batcher.submit(job(*[12] * 400), "one")
            small = [batcher.submit(job(12), "other") for _ in range(250)]
        for one in (large, *small):
            await one.future
