"""`bertsmith serve`: models over HTTP, with a playground."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli.declare import argument, option, options_of, takes
from bertsmith.errors import BertsmithError
from bertsmith.settings.serving import LOOPBACK, Listening, Settings

KEY = "BERTSMITH_API_KEY"


@takes(options_of(Listening), "listening")
@takes(options_of(Settings), "limits")
@takes(shared.LOADING, "loading")
def serve(
    models: list[str] | None = argument(None, "Models, each as MODEL or NAME=MODEL."),
    config: Path | None = option(
        None, "TOML file with models, aliases, limits and keys; read again on SIGHUP."
    ),
    listening: Any = None,
    limits: Any = None,
    loading: Any = None,
    as_json: shared.Json = False,
) -> None:
    """Serve models over HTTP, with a playground.

    The playground is at /, the API documentation at /docs. There is a route for each task that a
    model has a head for; the routes of text-embeddings-inference, OpenAI, Cohere, Jina and vLLM
    are there too.
    """
    try:
        from bertsmith.serve.run import listen
        from bertsmith.serve.run import serve as run
    except ImportError as error:
        raise BertsmithError(f"serve needs {error.name}: pip install 'bertsmith[serve]'") from error
    if not models and config is None:
        raise BertsmithError("which models? name them, or a file with --config")
    source = ServerConfiguration(shared.named(models or []), config, listening, limits, loading)
    own, plan = source.read()
    if not _local(own.host) and not plan.keys and not plan.settings.api_key and not own.without_key:
        raise BertsmithError(
            f"everyone who can reach {own.host} could use this server: add --api-key-file FILE or"
            " keys in --config FILE, listen on 127.0.0.1 only, or allow it with --without-key"
        )
    if bool(own.tls_certificate) != bool(own.tls_key):
        raise BertsmithError("HTTPS needs both --tls-certificate FILE and --tls-key FILE")
    tls = None
    if own.tls_certificate and own.tls_key:
        tls = str(own.tls_certificate), str(own.tls_key)
    listener = listen(own.host, own.port)
    shown = f"[{own.host}]" if ":" in own.host else own.host
    address = f"http{'s' if tls else ''}://{shown}:{listener.getsockname()[1]}"
    build = AppFactory(source, own, address, as_json)
    run(
        build,
        listener,
        workers=own.workers,
        drain=plan.settings.drain,
        json_logs=plan.settings.json_logs,
        tls=tls,
        reloads=config is not None,
    )


@dataclass(frozen=True)
class ServerConfiguration:
    """Where a server's configuration comes from: the command line, and a file."""

    places: dict[str, str]
    config: Path | None
    listening: dict[str, Any]
    limits: dict[str, Any]
    loading: dict[str, Any]  # device, dtype and family

    def read(self) -> tuple[Listening, Any]:
        """Return where the server listens, and the plan of what it serves, as of now."""
        from bertsmith.serve.config import overridden, plan_of, read_configuration

        content = read_configuration(self.config)
        folder = Path() if self.config is None else self.config.parent
        own = Listening(**overridden(content.server, self.listening, Listening))
        limits = overridden(content.limits, self.limits, Settings)
        if limits["long"] not in ("window", "refuse"):
            raise BertsmithError(f"--long must be window or refuse, not {limits['long']!r}")
        settings = Settings(
            **limits,
            api_key=_key(own.api_key_file),
            hosts=_hosts(own.host, own.allow_host),
            origins=tuple(own.allow_origin or ()),
            proxies=tuple(own.trust_proxy or ()),
        )
        return own, plan_of(content, folder, settings, self.places, self.loading)

    def plan(self) -> Any:
        """Return the plan of what the server serves, as of now."""
        return self.read()[1]


@dataclass(frozen=True)
class AppFactory:
    """Makes the application in the process that serves it."""

    source: ServerConfiguration
    listening: Listening
    address: str
    as_json: bool
    parent: int = field(default_factory=os.getpid)

    def __call__(self, state: Any) -> Any:
        """Load all models and say where they are."""
        import torch

        from bertsmith.serve.reload import Site

        threads, workers = self.listening.threads, self.listening.workers
        if threads is None and workers > 1:
            threads = max(1, (os.cpu_count() or 1) // workers)
        if threads:
            torch.set_num_threads(threads)
        site = Site(self.source.plan, _open, self._index(), state)
        app = site.app
        if self.source.config is not None:
            app.state.site = site
            app.state.admission.reload = site.reload if workers == 1 else self._reload_all
        models = [one.name for one in app.state.service.models]
        if self.as_json:
            shared.print_json([{"url": self.address, "models": models, "pid": os.getpid()}])
        else:
            typer.echo(f"{', '.join(models)} on {self.address} (playground), {self.address}/docs")
        return app

    async def _reload_all(self) -> dict[str, Any]:
        """Have all processes read the configuration again; a mistake is an error here already."""
        self.source.plan()
        os.kill(self.parent, signal.SIGHUP)
        return {"reloading": self.listening.workers}

    def _index(self) -> Any:
        if self.listening.index is None:
            return None
        import bertsmith

        return bertsmith.Index.open(self.listening.index)


def _open(place: Any) -> Any:
    return shared.open_model(place.path, place.device, place.dtype, place.family)


def access(host: str, key_file: Path | None, allowed: list[str] | None) -> Settings:
    """The settings of a server without models: who may ask it."""
    settings = Settings(api_key=_key(key_file), hosts=_hosts(host, allowed))
    if settings.api_key is None and not _local(host):
        raise BertsmithError(f"everyone who can reach {host} could use it: add --api-key-file FILE")
    return settings


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
