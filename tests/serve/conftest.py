"""One server with one tiny model for all tests that need nothing special."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bertsmith import Bert
from bertsmith.serve.ids import cl100k
from serve.live import serving, tiny


@pytest.fixture(autouse=True)
def without_tiktoken_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whatever this machine has, cl100k_base is not there (litellm sets this variable)."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    cl100k.cache_clear()
    yield
    cl100k.cache_clear()


@pytest.fixture(autouse=True)
def clients_are_closed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Close what clients of other projects leave open; litellm keeps its clients for later."""
    made: list[httpx.Client] = []
    begin = httpx.Client.__init__

    def noted(self: httpx.Client, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        made.append(self)

    if not {"litellm", "tiktoken_file"} & {*request.fixturenames}:
        monkeypatch.setattr(httpx.Client, "__init__", noted)
    yield
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def bert() -> Bert:
    return tiny()


@pytest.fixture(scope="session")
def http(bert: Bert) -> Iterator[httpx.Client]:
    reranker = tiny(("classify",), seed=1, id2label={"0": "score"})
    with serving({"tiny": bert, "reranker": reranker}) as client:
        yield client
