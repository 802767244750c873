"""One server with one tiny model for all tests that need nothing special."""

from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def bert() -> Bert:
    return tiny()


@pytest.fixture(scope="session")
def http(bert: Bert) -> Iterator[httpx.Client]:
    reranker = tiny(("classify",), seed=1, id2label={"0": "score"})
    with serving({"tiny": bert, "reranker": reranker}) as client:
        yield client
