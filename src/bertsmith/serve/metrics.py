"""Prometheus metrics, under the names of TEI where it has them."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # folder shared by several processes


class Metrics:
    """The metrics of one server process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        route = ("route", "model")
        self.requests = Counter(
            "te_request_count", "Requests", ("route", "status"), registry=registry
        )
        self.duration = Histogram(
            "te_request_duration",
            "Seconds of a request",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self.tokenise = Histogram(
            "te_request_tokenization_duration",
            "Seconds of tokenization",
            route,
            buckets=SECONDS,
            registry=registry,
        )
        self.wait = Histogram(
            "te_request_queue_duration",
            "Seconds in the queue",
            route,
            buckets=SECONDS,
            registry=registry,
        )
        self.compute = Histogram(
            "te_request_inference_duration",
            "Seconds in batches",
            route,
            buckets=SECONDS,
            registry=registry,
        )
        self.tokens = Counter("te_tokens_count", "Tokens encoded", route, registry=registry)
        own = ("model",)
        self.batch_size = Histogram(
            "te_batch_next_size", "Requests in a batch", own, buckets=SIZES, registry=registry
        )
        self.batch_tokens = Histogram(
            "te_batch_next_tokens", "Tokens in a batch", own, buckets=TOKENS, registry=registry
        )
        self.batch_seconds = Histogram(
            "bertsmith_batch_duration",
            "Seconds of a batch",
            own,
            buckets=SECONDS,
            registry=registry,
        )
        self.fill = Gauge(
            "bertsmith_batch_tokens",
            "Tokens of the last batch",
            own,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.budget = Gauge(
            "bertsmith_batch_budget",
            "Tokens that fit into a batch",
            own,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.size = Gauge(
            "te_queue_size",
            "Requests in the queue",
            own,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.waiting = Gauge(
            "bertsmith_queue_tokens",
            "Tokens in the queue",
            own,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.queues: list[tuple[str, Any]] = []

    def queue(self, name: str, batcher: Any) -> None:
        """Report the queue of a model whenever metrics are read."""
        self.queues.append((name, batcher))
        self.budget.labels(name).set(batcher.budget)

    def text(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and the content type."""
        for name, batcher in self.queues:
            self.size.labels(name).set(len(batcher.jobs))
            self.waiting.labels(name).set(batcher.waiting + batcher.waiting_large)
        registry = self.registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST
