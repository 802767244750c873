"""`bertsmith serve`: models over HTTP, with a playground."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli.declare import argument, option, options_of, takes
from bertsmith.errors import BertsmithError
from bertsmith.settings.serving import LOOPBACK, Settings

KEY = "BERTSMITH_API_KEY"


@takes(options_of(Settings), "limits")
@takes(shared.LOADING, "loading")
def serve(
    models: list[str] = argument(..., "Models, each as MODEL or NAME=MODEL."),
    index: Path | None = option(None, "Folder of a search index, served at /search."),
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for all."),
    port: int = option(8080, "Port to listen on.", min=0, max=65535),
    workers: int = option(1, "Number of processes.", min=1, max=256),
    limits: Any = None,
    api_key_file: Path | None = option(
        None, f"File with the API key that clients must send; or set {KEY}."
    ),
    allow_host: list[str] | None = option(
        None, "Accept requests for this host name, and from its pages; * for any; repeatable."
    ),
    threads: int | None = option(
        None, "CPU threads of each process; default: the number of cores.", min=1
    ),
    loading: Any = None,
    as_json: shared.Json = False,
) -> None:
    """Serve models over HTTP, with a playground.

    The playground is at /, the API documentation at /docs. There is a route for each task that a
    model has a head for; the routes of text-embeddings-inference, OpenAI, Cohere, Jina and vLLM
    are there too.
    """
    if limits["long"] not in ("window", "refuse"):
        raise BertsmithError(f"--long must be window or refuse, not {limits['long']!r}")
    try:
        from bertsmith.serve.models import named
        from bertsmith.serve.run import listen
        from bertsmith.serve.run import serve as run
    except ImportError as error:
        raise BertsmithError(f"serve needs {error.name}: pip install 'bertsmith[serve]'") from error
    hosts = _hosts(host, allow_host)
    settings = Settings(**limits, api_key=_key(api_key_file), hosts=hosts)
    places = named(models)
    listener = listen(host, port)
    if settings.api_key is None and not _local(host):
        typer.echo(
            f"warning: no API key is set, so everyone who can reach {host} can use this server: "
            "add --api-key-file FILE, or listen on 127.0.0.1 only",
            err=True,
        )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    share = threads or (max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None)
    build = Build(places, loading, settings, index, share, address, as_json)
    run(build, listener, workers=workers, drain=settings.drain)


@dataclass(frozen=True)
class Build:
    """Makes the application in the process that serves it."""

    places: dict[str, str]
    loading: dict[str, Any]  # device, dtype and family
    settings: Settings
    index: Path | None
    threads: int | None
    address: str
    as_json: bool

    def __call__(self, state: Any) -> Any:
        """Load all models and say where they are."""
        import torch

        from bertsmith.serve.app import create_app

        if self.threads:
            torch.set_num_threads(self.threads)
        models = {
            name: shared.open_model(place, **self.loading) for name, place in self.places.items()
        }
        app = create_app(models, self.settings, index=self._index(), state=state)
        if self.as_json:
            shared.print_json([{"url": self.address, "models": list(models), "pid": os.getpid()}])
        else:
            typer.echo(f"{', '.join(models)} on {self.address} (playground), {self.address}/docs")
        return app

    def _index(self) -> Any:
        if self.index is None:
            return None
        import bertsmith

        return bertsmith.Index.open(self.index)


def _key(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(KEY) or None
    from bertsmith.files import cause

    try:
        key = path.read_text("utf-8").strip() if path.stat().st_size < 10_000 else ""
    except (OSError, ValueError) as error:
        raise BertsmithError(f"{path}: the API key cannot be read ({cause(error)})") from error
    if not key or not key.isascii() or not key.isprintable():
        raise BertsmithError(f"{path}: an API key is one line of printable ASCII")
    return key


def _hosts(host: str, allowed: list[str] | None) -> tuple[str, ...]:
    """Host names that are answered. A server for this machine alone answers no other name.

    Otherwise a web page could read answers by having its own name point to this machine.
    """
    names = (*(allowed or ()), *(LOOPBACK if _local(host) else ()))
    return () if "*" in names else names


def _local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    return host in ("localhost", "::1") or host.startswith("127.")
