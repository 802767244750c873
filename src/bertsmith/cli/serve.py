"""`bertsmith serve`: models over HTTP, with a playground."""

import os
import signal
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.settings.serving import LOOPBACK, Listening, ServingSettings

KEY = "BERTSMITH_API_KEY"


def serve(
    models: list[str] | None = argument(None, "Models, each as MODEL or NAME=MODEL."),
    config: Path | None = option(
        None, "TOML file with models, aliases, limits and keys; read again on SIGHUP."
    ),
    listening: Any = options_of(Listening),
    limits: Any = options_of(ServingSettings),
    loading: Any = shared.LOADING,
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
    paths = shared.named_paths(models or [])
    factory = AppFactory(paths, config, listening, limits, loading, as_json)
    place, plan = factory.read()
    protected = plan.keys or plan.settings.api_key or place.without_key
    if not _local(place.host) and not protected:
        raise BertsmithError(
            f"everyone who can reach {place.host} could use this server: add --api-key-file FILE or"
            " keys in --config FILE, listen on 127.0.0.1 only, or allow it with --without-key"
        )
    if bool(place.tls_certificate) != bool(place.tls_key):
        raise BertsmithError("HTTPS needs both --tls-certificate FILE and --tls-key FILE")
    tls = None
    if place.tls_certificate and place.tls_key:
        tls = str(place.tls_certificate), str(place.tls_key)
    listener = listen(place.host, place.port)
    address = address_of(listener, place.host, "https" if tls else "http")
    run(
        replace(factory, place=place, address=address),
        listener,
        workers=place.workers,
        drain=plan.settings.drain,
        json_logs=plan.settings.json_logs,
        tls=tls,
        reloads=config is not None,
    )


@dataclass(frozen=True)
class AppFactory:
    """Reads the configuration, and creates the application in the process that serves it."""

    paths: dict[str, str]  # of models, by name
    config: Path | None
    listening: dict[str, Any]
    limits: dict[str, Any]
    loading: dict[str, Any]  # device, dtype and family
    as_json: bool
    place: Listening = field(default_factory=Listening)  # as it was when the server started
    address: str = ""
    parent: int = field(default_factory=os.getpid)

    def read(self) -> tuple[Listening, Any]:
        """Return where the server listens, and the plan of what it serves, as they are now."""
        from bertsmith.serve.config import overridden, plan_of, read_configuration

        content = read_configuration(self.config)
        folder = Path() if self.config is None else self.config.parent
        place = Listening(**overridden(content.server, self.listening, Listening))
        limits = overridden(content.limits, self.limits, ServingSettings)
        if limits["long"] not in ("window", "refuse"):
            raise BertsmithError(f"--long must be window or refuse, not {limits['long']!r}")
        settings = ServingSettings(
            **limits,
            api_key=_key(place.api_key_file),
            hosts=_hosts(place.host, place.allow_host),
            origins=tuple(place.allow_origin or ()),
            proxies=tuple(place.trust_proxy or ()),
        )
        return place, plan_of(content, folder, settings, self.paths, self.loading)

    def __call__(self) -> Any:
        """Load all models and say where they are."""
        import torch

        from bertsmith.serve.reload import Site

        threads, workers = self.place.threads, self.place.workers
        if threads is None and workers > 1:
            threads = max(1, (os.cpu_count() or 1) // workers)
        if threads:
            torch.set_num_threads(threads)
        index = None
        if self.place.index is not None:
            from bertsmith.search import Index

            index = Index.open(self.place.index)
        site = Site(lambda: self.read()[1], _open, index)
        app = site.app
        if self.config is not None:
            app.state.site = site
            app.state.admission.reload = site.reload if workers == 1 else self._reload_all
        models = [model.name for model in app.state.service.models]
        if self.as_json:
            shared.print_json([{"url": self.address, "models": models, "pid": os.getpid()}])
        else:
            typer.echo(f"{', '.join(models)} on {self.address} (playground), {self.address}/docs")
        return app

    async def _reload_all(self) -> dict[str, Any]:
        """Let all processes read the configuration again; mistakes are reported by this one."""
        self.read()
        os.kill(self.parent, signal.SIGHUP)
        return {"reloading": self.place.workers}


def _open(place: Any) -> Any:
    return shared.open_model(place.path, place.device, place.dtype, place.family)


def address_of(listener: socket.socket, host: str, scheme: str = "http") -> str:
    """The URL of a server."""
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{listener.getsockname()[1]}"


def access(host: str, key_file: Path | None, allowed: list[str] | None) -> ServingSettings:
    """The settings of a server without models: who may ask it."""
    settings = ServingSettings(api_key=_key(key_file), hosts=_hosts(host, allowed))
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
    """Host names that are answered. A server for this machine alone answers to no other name.

    Otherwise a web page could read answers through a domain that resolves to this machine.
    """
    names = (*(allowed or ()), *(LOOPBACK if _local(host) else ()))
    return () if "*" in names else names


def _local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    return host in ("localhost", "::1") or host.startswith("127.")
