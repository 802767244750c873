"""The limits and options of a server."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.settings import setting

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # names of this machine


@dataclass(frozen=True)
class Settings:
    """Settings of a server: limits, timeouts and access."""

    # bitwise equal results at any load: windows are encoded one by one
    exact: bool = setting(False, "Make results independent of other requests, to the bit; slower.")
    long: str = setting("window", "Long texts are read in windows (window) or refused (refuse).")
    batch_tokens: int | None = setting(None, "Tokens in a batch; default: by device.", ge=1)
    queue_batches: float | None = setting(
        None, "Full batches that may wait before 429; default: by device.", ge=0.1
    )
    max_body: int = setting(2_000_000, "Largest request body, in bytes.", ge=1)
    max_inputs: int = setting(1024, "Maximum number of texts in a request.", ge=1)
    max_characters: int = setting(1_000_000, "Maximum number of characters in a request.", ge=1)
    # of all windows, special tokens included
    max_tokens: int = setting(131_072, "Maximum number of tokens in a request.", ge=1)
    timeout: float = setting(60.0, "Seconds to receive a request, and to answer it.", ge=0.1)
    drain: float = setting(
        1.0, "Seconds for which requests are accepted after SIGTERM or SIGHUP.", ge=0
    )
    json_logs: bool = setting(False, "Log every request as a line of JSON.")
    api_key: str | None = None
    hosts: tuple[str, ...] = ()  # accepted values of the Host header; (): all
