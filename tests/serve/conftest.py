"""One server with one tiny model for all tests that need nothing special."""

from collections.abc import Iterator

import httpx
import pytest

from bertsmith import Bert
from serve.live import serving, tiny


@pytest.fixture(scope="session")
def bert() -> Bert:
    return tiny()


@pytest.fixture(scope="session")
def http(bert: Bert) -> Iterator[httpx.Client]:
    reranker = tiny(("classify",), seed=1, id2label={"0": "score"})
    with serving({"tiny": bert, "reranker": reranker}) as client:
        yield client
