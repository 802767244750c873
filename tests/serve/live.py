"""A server in a thread of the test's own process, and tiny models that can do everything."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from bertsmith import Bert, create
from bertsmith.serve import ServingSettings
from bertsmith.serve.access import Key
from bertsmith.serve.app import host
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Launcher, Models, Shares
from bertsmith.serve.own import Readers
from bertsmith.serve.run import config, listen
from bertsmith.serve.service import ModelService
from tasks.words import tokenizer

ALL = ("masked_lm", "next_sentence", "classify", "tag", "answer", "choose")
LABELS = {"0": "O", "1": "B-PER", "2": "I-PER"}


def tiny(heads: tuple[str, ...] = ALL, seed: int = 0, **settings: Any) -> Bert:
    """A BERT of two small layers with random weights, large enough to tell texts apart."""
    words = tokenizer("bert")
    changes = {
        "vocab_size": words.size,
        "max_position_embeddings": 64,
        "id2label": LABELS,
        "initializer_range": 0.3,
        **settings,
    }
    checkpoint = create("bert-tiny", heads=heads, seed=seed, **changes)
    return Bert(checkpoint, words)


def create_app(
    models: Mapping[str, Bert],
    settings: ServingSettings | None = None,
    *,
    index: Any = None,
    originals: Mapping[str, Bert] | None = None,
    aliases: Mapping[str, Shares] | None = None,
    keys: Sequence[Key] = (),
) -> FastAPI:
    """A server's application for models that are loaded already.

    `originals` are float32 models beside those in int8, for `settings.canary`.
    """
    chosen, launcher = settings or ServingSettings(), Launcher(Metrics())
    served = [
        launcher.launch(name, bert, chosen, (originals or {}).get(name))
        for name, bert in models.items()
    ]
    known = Models(served, aliases, any_name=chosen.any_model_name)
    readers = None if index is None else Readers(index)
    return host(ModelService(known, chosen, launcher.metrics, keys), readers)


@contextmanager
def serving(
    models: dict[str, Bert], settings: ServingSettings | None = None, **more: Any
) -> Iterator[httpx.Client]:
    """A client of a server on a free port of this machine."""
    app = create_app(models, settings, **more)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(config(app, "error"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=address, timeout=30) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client
    finally:
        server.should_exit = True
        thread.join()


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


def batcher_of(http: httpx.Client) -> Any:
    """The queue of a server's first model."""
    return next(iter(http.app.state.service.models)).batcher  # type: ignore[attr-defined]


@contextmanager
def full_queue(http: httpx.Client) -> Iterator[None]:
    """Have a server refuse requests."""
    batcher = batcher_of(http)
    batcher.waiting += 10**6
    try:
        yield
    finally:
        batcher.waiting -= 10**6


def until(holds: Any, seconds: float = 60) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
