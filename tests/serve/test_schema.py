"""Requests that schemathesis makes from the OpenAPI schema: never a server error."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertsmith import Bert

schemathesis = pytest.importorskip("schemathesis")


@pytest.mark.slow
def test_requests_of_the_schema(http: httpx.Client) -> None:
    schema = schemathesis.openapi.from_url(f"{http.base_url}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) > 20

    @settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=st.one_of([one.as_strategy() for one in operations]))
    def run(case: Any) -> None:
        response = case.call()
        assert response.status_code < 500, (case, response.text)

    run()


def test_the_schema_names_every_route(http: httpx.Client, bert: Bert) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    for path in (
        "/fill-mask",
        "/tag",
        "/answer",
        "/embed",
        "/v1/embeddings",
        "/v2/rerank",
        "/score",
    ):
        assert path in paths
    assert http.get("/docs").status_code == 200
