"""The limits and options of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertsmith.settings import setting

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # names of this machine


@dataclass(frozen=True)
class ServingSettings:
    """Settings of a server: limits, timeouts and access."""

    # bitwise equal results at any load: windows are encoded one by one
    exact: bool = setting(False, "Make results independent of other requests, to the bit; slower.")
    long: str = setting("window", "Long texts are read in windows (window) or refused (refuse).")
    batch_tokens: int | None = setting(None, "Tokens in a batch; default: by device.", ge=1)
    queue_batches: float | None = setting(
        None, "Full batches that may wait before 429; default: by device.", ge=0.1
    )
    max_body: int = setting(8_000_000, "Largest request body, in bytes.", ge=1)
    max_inputs: int = setting(2048, "Maximum number of texts in a request.", ge=1)
    max_characters: int = setting(2_000_000, "Maximum number of characters in a request.", ge=1)
    # of all windows, special tokens included
    max_tokens: int = setting(300_000, "Maximum number of tokens in a request.", ge=1)
    timeout: float = setting(60.0, "Seconds to receive and answer a request.", ge=0.1)
    drain: float = setting(
        1.0, "Seconds for which requests are accepted after SIGTERM or SIGHUP.", ge=0
    )
    any_model_name: bool = setting(
        False, "Answer requests for unknown model names with the model that suits the task."
    )
    json_logs: bool = setting(False, "Log every request, and every message, as a line of JSON.")
    log_texts: bool = setting(False, "Add the texts of requests to their lines in the log.")
    traces: bool = setting(
        False, "Send OpenTelemetry traces, as the OTEL_... environment variables say."
    )
    canary: int = setting(
        0,
        "With int8: also compute one request in this many in float32, and report the drift in "
        "/metrics; 0: none. Needs the memory of the float32 model.",
        ge=0,
    )
    drift_limit: float = setting(
        0.25, "Report change of inputs or predictions above this, in /drift and /metrics.", ge=0
    )
    drift_examples: int = setting(
        0, "Keep this many texts with uncertain predictions for /drift; 0: none.", ge=0, le=1000
    )
    api_key: str | None = None
    hosts: tuple[str, ...] = ()  # accepted values of the Host header; (): all
    origins: tuple[str, ...] = ()  # web pages that browsers let read answers (CORS)
    proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-For says who the client is


@dataclass(frozen=True)
class Listening:
    """Where a server listens, with what, and who may ask it."""

    index: Path | None = setting(None, "Folder of a search index, served at /search.")
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
    port: int = setting(8080, "Port to listen on.", ge=0, le=65535)
    workers: int = setting(1, "Number of processes.", ge=1, le=256)
    threads: int | None = setting(
        None, "CPU threads of each process; default: the number of cores.", ge=1
    )
    api_key_file: Path | None = setting(
        None, "File with the API key that clients must send; or set BERTSMITH_API_KEY."
    )
    without_key: bool = setting(
        False, "Serve everyone who can reach an address of other machines, without a key."
    )
    allow_host: list[str] | None = setting(
        None, "Accept requests for this host name, and from its pages; * for any; repeatable."
    )
    allow_origin: list[str] | None = setting(
        None, "Let pages of this origin read answers (CORS), as https://NAME; repeatable."
    )
    trust_proxy: list[str] | None = setting(
        None, "Address of a reverse proxy whose X-Forwarded-For is believed; repeatable."
    )
    tls_certificate: Path | None = setting(None, "Certificate chain (PEM) for HTTPS.")
    tls_key: Path | None = setting(None, "Private key (PEM) of the certificate.")
