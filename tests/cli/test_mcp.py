"""`bertsmith mcp` as an assistant starts it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run
from processes import python
from search.test_mcp import talk

mcp = pytest.importorskip("mcp")


def test_command_over_stdio(search_index: Path) -> None:
    places = {"PYTHONPATH": os.pathsep.join(sys.path)}  # the tree under test, wherever it is
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "bertsmith", "mcp", str(search_index)], env=places
    )

    async def steps(client: Any) -> Any:
        names = [tool.name for tool in (await client.list_tools()).tools]
        return names, await client.call_tool("search", {"query": "sea whales"})

    names, answer = talk(command, steps)
    assert names == ["search", "read"]
    assert answer.structured_content["results"][0]["file"].endswith("whales.md")


def test_command_over_http(search_index: Path) -> None:
    words = ["-m", "bertsmith", "mcp", search_index, "--http", "0"]
    with python(*words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split()[2].rstrip(",")
            steps: Any = lambda client: client.call_tool("search", {"query": "whales"})  # noqa: E731
            answer = talk(address, steps)
            assert answer.structured_content["results"][0]["file"].endswith("whales.md")
            json = {"Content-Type": "application/json", "Accept": "application/json"}
            for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                refused = httpx.post(address, content=b"{}", headers=json | headers)
                assert refused.status_code in (403, 421), headers  # a page of another site
            for body in (b"", b"{", b"[]", b"\xff", b'{"jsonrpc": "2.0", "id": 1, "method": 5}'):
                assert 400 <= httpx.post(address, content=body, headers=json).status_code < 500
            large = b" " * 5_000_000
            assert httpx.post(address, content=large, headers=json).status_code == 413
            assert talk(address, steps).structured_content == answer.structured_content
        finally:
            process.terminate()


def test_mistakes(run: Run, tmp_path: Path) -> None:
    for words, match in {
        ("mcp",): "no tools: name at least one INDEX",
        ("mcp", tmp_path): "no index|not an index|is not",
        ("mcp", "--model", "x="): "is not a model",
    }.items():
        with pytest.raises(BertsmithError, match=match):
            run(*words)
