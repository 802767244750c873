"""`bertsmith mcp`: indexes and models as tools for assistants."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option
from bertsmith.errors import BertsmithError


def mcp(
    indexes: list[Path] = argument(None, "Folders that bertsmith index wrote.", metavar="INDEX..."),
    model: list[str] | None = option(
        None, "A model as a tool, MODEL or NAME=MODEL; repeatable.", "--model", "-m"
    ),
    http: int | None = option(
        None,
        "Listen on this port of this machine (0: any), instead of standard input.",
        min=0,
        max=65535,
    ),
    loading: Any = shared.LOADING,
) -> None:
    """Give assistants tools to search documents and to ask models.

    The assistant starts this command and talks to it over standard input and output (Model
    Context Protocol). With --http it runs by itself, at http://127.0.0.1:PORT/mcp. Every tool only
    reads.
    """
    if not indexes and not model:
        raise BertsmithError("no tools: name at least one INDEX, or --model NAME=MODEL")
    try:
        import anyio

        from bertsmith.search.mcp import create_server, over_stdio
    except ImportError as error:
        raise BertsmithError(f"mcp needs {error.name}: pip install 'bertsmith[mcp]'") from error
    from bertsmith.search import Index

    folders = shared.named_paths([str(index.resolve()) for index in indexes or ()])
    models = shared.named_paths(model or ())
    with ExitStack() as stack:
        server = create_server(
            {name: stack.enter_context(Index.open(path)) for name, path in folders.items()},
            {name: shared.open_model(path, **loading) for name, path in models.items()},
        )
        if http is None:
            anyio.run(over_stdio, server)
            return
        import uvicorn

        with socket.create_server(("127.0.0.1", http)) as listener:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            typer.echo(f"tools at {address}, until Ctrl-C", err=True)
            app = server.streamable_http_app(stateless_http=True, json_response=True)
            config = uvicorn.Config(app, log_level="warning")
            uvicorn.Server(config).run(sockets=[listener])
