"""Prometheus metrics, under the names of TEI where it has them."""

import os
import platform
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from bertsmith import __version__

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
DRIFTS = (0.0003, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 1)
Labels = tuple[str, ...]
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # folder shared by several processes


class Metrics:
    """The metrics of one server process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        route, own = ("route", "model"), ("model",)
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, labelnames=own, registry=registry, multiprocess_mode="livesum")

        def histogram(name: str, about: str, labels: Labels, buckets: Any = SECONDS) -> Histogram:
            return Histogram(name, about, labels, buckets=buckets, registry=registry)

        self.requests = counter("te_request_count", "Requests", (*route, "status"))
        self.duration = histogram("te_request_duration", "Seconds of a request", route)
        tokenised = ("te_request_tokenization_duration", "Seconds of tokenization")
        self.tokenise = histogram(*tokenised, route)
        self.wait = histogram("te_request_queue_duration", "Seconds in the queue", route)
        self.compute = histogram("te_request_inference_duration", "Seconds in batches", route)
        self.tokens = counter("te_tokens_count", "Tokens encoded", route)
        self.batch_size = histogram("te_batch_next_size", "Requests in a batch", own, SIZES)
        self.batch_tokens = histogram("te_batch_next_tokens", "Tokens in a batch", own, TOKENS)
        self.batch_seconds = histogram("bertsmith_batch_duration", "Seconds of a batch", own)
        self.fill = gauge("bertsmith_batch_tokens", "Tokens of the last batch")
        self.budget = gauge("bertsmith_batch_budget", "Tokens that fit into a batch")
        self.size = gauge("te_queue_size", "Requests in the queue")
        self.waiting = gauge("bertsmith_queue_tokens", "Tokens in the queue")
        drift = "1 - cosine of an int8 result and its float32 canary"
        self.drift = histogram("bertsmith_canary_drift", drift, own, DRIFTS)

        info = partial(Gauge, registry=registry, multiprocess_mode="max")
        build = info("bertsmith_build_info", "Versions", ("version", "python", "torch"))
        build.labels(__version__, platform.python_version(), version("torch")).set(1)
        self.models = info("bertsmith_model_info", "Models", ("model", "version", "sha256"))
        self.reloads = counter("bertsmith_reloads", "Reloads", ("result",))
        if FOLDER not in os.environ:  # of one process; several have no common one
            ProcessCollector(registry=registry)
            GCCollector(registry=registry)
        change = "Change of inputs or predictions since evaluation (stability index)"
        self.change = info("bertsmith_drift", change, ("model", "figure"))
        beyond = "Whether that is above drift_limit"
        self.beyond = info("bertsmith_drift_beyond_limit", beyond, ("model", "figure"))
        self.queues: dict[str, Any] = {}

    def report_drift(self, name: str, changes: Mapping[str, float | None], limit: float) -> None:
        """Report the change of a model's inputs and predictions since its evaluation."""
        for figure, value in changes.items():
            if value is not None:
                self.change.labels(name, figure).set(value)
                self.beyond.labels(name, figure).set(value > limit)

    def served(self, model: Any, now: int) -> None:
        """Say that a model is served now (1), or no more (0)."""
        self.models.labels(model.name, model.version or "", model.sha or "").set(now)

    def queue(self, name: str, batcher: Any) -> None:
        """Report the queue of a model from now on."""
        self.queues[name] = batcher
        self.fill.labels(name).set(0)
        self._measure(name, batcher)

    def forget(self, name: str, batcher: Any) -> None:
        """Report the queue of a model no more, unless another one has its name."""
        if self.queues.get(name) is batcher:
            del self.queues[name]
            for gauge in (self.fill, self.budget, self.size, self.waiting):
                gauge.labels(name).set(0)  # processes that share metrics cannot remove any

    def _measure(self, name: str, batcher: Any) -> None:
        self.budget.labels(name).set(batcher.budget)
        self.size.labels(name).set(len(batcher.jobs))
        self.waiting.labels(name).set(batcher.waiting + batcher.waiting_large)

    def batch(self, name: str, requests: int, tokens: int, seconds: float) -> None:
        """Count a batch of a model."""
        if name not in self.queues:
            return
        self._measure(name, self.queues[name])
        self.batch_size.labels(name).observe(requests)
        self.batch_tokens.labels(name).observe(tokens)
        self.batch_seconds.labels(name).observe(seconds)
        self.fill.labels(name).set(tokens)

    def text(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and the content type."""
        for name, batcher in self.queues.items():
            self._measure(name, batcher)
        registry = self.registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST
