"""The limits and options of a server."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # names of this machine


@dataclass(frozen=True)
class Settings:
    """Settings of a server: limits, timeouts and access."""

    max_body: int = 2_000_000  # bytes of a request
    max_inputs: int = 1024  # texts in a request
    max_characters: int = 1_000_000  # of all texts in a request
    max_tokens: int = 131_072  # of all windows of a request, special tokens included
    batch_tokens: int | None = None  # tokens encoded together; None: by device
    queue_batches: float | None = None  # full batches that may wait; None: by device
    timeout: float = 60.0  # seconds to receive a request, and then to answer it
    long: str = "window"  # texts beyond the model's length: "window" or "refuse"
    exact: bool = False  # encode windows one by one: bitwise equal results at any load
    api_key: str | None = None
    hosts: tuple[str, ...] = ()  # accepted values of the Host header; (): all
    json_logs: bool = False
    drain: float = 1.0  # seconds between SIGTERM and closing the socket
