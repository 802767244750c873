"""Limits, keys, health and malformed requests: always a status of the dialect, never a 500."""

import json
import socket
import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from bertsmith import Bert
from bertsmith.serve import ServingSettings, route
from serve.live import batcher_of, full_queue, serving, until

BAD: list[tuple[str, bytes, int]] = [
    ("/embed", b"", 422),
    ("/embed", b"{", 422),
    ("/embed", b"[]", 422),
    ("/embed", b"null", 422),
    ("/embed", b'{"inputs": "\\ud800"}', 422),
    ("/embed", b'{"inputs": "\xff"}', 422),
    ("/embed", b'{"inputs": NaN}', 422),
    ("/embed", b'{"inputs": [1e400]}', 422),
    ("/embed", b'{"inputs": [' + b"9" * 5000 + b"]}", 422),
    ("/embed", b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422),
    ("/embed", b'{"inputs": []}', 400),
    ("/embed", b'{"inputs": ["a", 1]}', 422),
    ("/embed", b'{"inputs": [-1]}', 422),
    ("/embed", b'{"inputs": [999999]}', 422),
    ("/embed", b'{"inputs": [true]}', 422),
    ("/embed", b'{"inputs": "a", "dimensions": 0}', 422),
    ("/embed", b'{"inputs": "a", "dimensions": 100000}', 422),
    ("/embed", b'{"inputs": "a", "truncate": "yes"}', 422),
    ("/embed", b'{"inputs": "a", "prompt_name": "x"}', 422),
    ("/decode", b'{"ids": [-1]}', 422),
    ("/decode", b'{"ids": [1e3]}', 422),
    ("/decode", b'{"ids": [99999999999999999999]}', 422),
    ("/fill-mask", b'{"inputs": "no mask"}', 422),
    ("/fill-mask", b'{"inputs": "[MASK]", "top": 0}', 422),
    ("/fill-mask", b'{"inputs": "[MASK]", "top": 1e99}', 422),
    ("/fill-mask", b'{"inputs": "[MASK]", "tpo": 1}', 422),
    ("/answer", b'{"question": "a", "passage": "b", "longest": 100000}', 422),
    ("/choose", b'{"prompt": "a", "choices": []}', 400),
    ("/follows", b'{"first": ["a"], "second": ["b", "c"]}', 422),
    ("/attention", b'{"text": "a", "layers": [99]}', 422),
    ("/states", b'{"inputs": "a", "depths": [-1]}', 422),
    ("/predict", b'{"inputs": [["a", "b", "c"]]}', 422),
    ("/v1/embeddings", b'{"input": "a"}', 400),
    ("/v1/embeddings", b'{"input": [], "model": "tiny"}', 400),
    ("/v1/embeddings", b'{"input": "a", "model": "tiny", "encoding_format": "hex"}', 400),
    ("/v1/embeddings", b'{"input": "a", "model": 5}', 400),
    ("/v1/rerank", b'{"query": "a", "documents": []}', 400),
    ("/v1/rerank", b'{"query": "a", "documents": [1]}', 400),
    ("/rerank", b'{"query": "a", "documents": 5}', 400),
    ("/score", b'{"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}', 400),
    ("/nothing", b"{}", 404),
    ("/v1/nothing", b"{}", 404),
]


@pytest.mark.parametrize(("path", "body", "status"), BAD)
def test_malformed_requests(http: httpx.Client, path: str, body: bytes, status: int) -> None:
    response = http.post(path, content=body)
    assert response.status_code == status, response.text
    error = response.json()
    if path in ("/v1/rerank",) or b'"documents"' in body:
        assert isinstance(error["message"], str)
    elif path.startswith("/v1/") or path == "/score":
        assert {*error["error"]} == {"message", "type", "param", "code"}
    else:
        assert {*error} == {"error", "error_type"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda some: (
        st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=8), some, max_size=4)
    ),
    max_leaves=12,
)
KEYS = ["inputs", "input", "model", "top", "truncate", "query", "texts", "documents", "ids"]
KEYS += ["first", "second", "text_1", "text_2", "question", "passage", "choices", "prompt"]
KEYS += ["layers", "depths"]
PATHS = ["/", "/embed", "/embed_all", "/predict", "/rerank", "/similarity", "/tokenize", "/decode"]
PATHS += ["/fill-mask", "/classify", "/tag", "/answer", "/choose", "/follows", "/states"]
PATHS += ["/attention", "/v1/embeddings", "/v1/rerank", "/score"]


@settings(max_examples=25)
@given(path=st.sampled_from(PATHS), body=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))
def test_no_body_breaks_the_server(http: httpx.Client, path: str, body: Any) -> None:
    response = http.post(path, content=json.dumps(body).encode("utf-8", "surrogatepass"))
    assert response.status_code in (200, 400, 404, 413, 422, 424), (body, response.text)


def test_limits(bert: Bert) -> None:
    small = ServingSettings(max_body=5000, max_inputs=3, max_characters=500, max_tokens=100)
    with serving({"tiny": bert}, small) as http:
        for body in ("x" * 6000, ["a"] * 4, "bees " * 101, ["bees " * 30] * 4, "b " * 120):
            response = http.post("/embed", json={"inputs": body})
            assert response.status_code == 413, body
            assert response.json()["error_type"] == "Validation"
        chunks = iter([b'{"inputs": "'] + [b"x" * 1000] * 10 + [b'"}'])
        assert http.post("/embed", content=chunks).status_code == 413
        assert http.post("/embed", json={"inputs": "still there"}).is_success


def test_answers_are_bounded(http: httpx.Client) -> None:
    long = "bees " * 20_000
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/fill-mask", {"inputs": long + "[MASK]", "top": 1000}),
        ("/fill-mask", {"inputs": "[MASK] " * 100}),
        ("/choose", {"prompt": long, "choices": ["a"] * 500}),
        ("/states", {"inputs": long, "depths": [0, 1, 2] * 20}),
        ("/embed_all", {"inputs": [long] * 6}),
        ("/attention", {"text": long}),
    ]
    for path, body in bodies:
        assert http.post(path, json=body).status_code in (413, 422), path
    assert http.post("/embed", json={"inputs": "still there"}).is_success


def test_a_key(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(api_key="secret")) as http:
        for path in ("/health", "/live", "/ready", "/ping", "/metrics", "/"):
            assert http.get(path).status_code == 200
        for key in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            refused = http.post("/v1/embeddings", json={"input": "a", "model": "tiny"}, headers=key)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "key" in refused.json()["error"]["message"]
        good = {"Authorization": "Bearer secret"}
        assert http.post("/embed", json={"inputs": "a"}, headers=good).is_success


def test_other_host_names_are_not_answered(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(hosts=("127.0.0.1", "localhost"))) as http:
        assert http.get("/info").is_success
        assert http.get("/info", headers={"Host": "evil.example:80"}).status_code == 403


def test_a_full_queue_is_429_at_once_with_retry_after(bert: Bert) -> None:
    limits = ServingSettings(batch_tokens=16, queue_batches=1)
    with serving({"tiny": bert}, limits) as http, full_queue(http):
        start = time.perf_counter()
        response = http.post("/v1/embeddings", json={"input": "a", "model": "tiny"})
        assert time.perf_counter() - start < 1
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert http.get("/health").is_success


def test_timeouts_and_clients_that_leave(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(timeout=0.2)) as http:
        batcher = batcher_of(http)
        with batcher._turn:
            late = http.post("/embed", json={"inputs": "a"})
            assert (late.status_code, late.json()["error_type"]) == (503, "Timeout")
    with serving({"tiny": bert}) as http:
        batcher = batcher_of(http)
        admitted: list[Any] = []
        submit = batcher.submit
        batcher.submit = lambda *given: admitted.append(submit(*given)) or admitted[-1]
        with batcher._turn:
            address = (http.base_url.host, http.base_url.port)
            body = json.dumps({"inputs": ["text"] * 50}).encode()
            head = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            for number in (1, 2):
                with socket.create_connection(address) as client:
                    client.sendall(head.encode() + body)
                    until(lambda number=number: len(admitted) == number)
            until(lambda: all(job.cancelled for job in admitted))
            assert (len(batcher.jobs), batcher.waiting) == (0, 0)
        assert http.post("/embed", json={"inputs": "a"}).is_success


def test_output_that_is_no_number_is_an_error(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = bert.model.encoder.forward

    def failing(batch: Any, trace: Any = None) -> Any:
        hidden = forward(batch, trace)
        return hidden._replace(last=hidden.last * float("nan"))

    with serving({"tiny": bert}) as http:
        monkeypatch.setattr(bert.model.encoder, "forward", failing)
        response = http.post("/embed", json={"inputs": "a"})
        assert (response.status_code, response.json()["error_type"]) == (424, "Backend")
        monkeypatch.undo()
        assert http.post("/embed", json={"inputs": "a"}).is_success


def test_metrics_and_request_ids(http: httpx.Client) -> None:
    response = http.post("/embed", json={"inputs": "a"}, headers={"X-Request-ID": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"
    assert {"x-total-time", "x-queue-time", "x-inference-time"} <= {*response.headers}
    assert http.get("/live", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"
    for upgrade in ("websocket", "h2c"):  # as Java's client asks: ignored
        upgrading = {"Connection": "Upgrade", "Upgrade": upgrade}
        assert http.post("/embed", json={"inputs": "a"}, headers=upgrading).is_success
    for path in ("/ready", "/metrics", "/"):  # as balancers ask
        head = http.head(path)
        assert (head.status_code, head.content) == (200, b"")
    text = http.get("/metrics").text
    assert 'te_request_count_total{model="tiny",route="/embed",status="200"}' in text
    assert 'te_request_inference_duration_count{model="tiny",route="/embed"}' in text
    assert 'te_queue_size{model="tiny"} 0.0' in text
    assert 'te_batch_next_tokens_count{model="tiny"}' in text


HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD[:30], HEAD, HEAD + b"{"])
def test_requests_that_do_not_arrive_are_given_up(bert: Bert, sent: bytes) -> None:
    with serving({"tiny": bert}, ServingSettings(timeout=0.3)) as http:
        address = (http.base_url.host, http.base_url.port)
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(sent)
            answer = client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 408") if sent.startswith(HEAD) else not answer
            while answer:
                answer = client.recv(1000)  # to the end: the connection is closed
        assert http.post("/embed", json={"inputs": "a"}).is_success


def test_a_request_that_trickles_in_is_given_up(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(timeout=0.5)) as http:
        address = (http.base_url.host, http.base_url.port)
        with socket.create_connection(address, timeout=20) as client:
            end = time.monotonic() + 20
            for letter in HEAD[:30] * 1000:
                try:
                    client.sendall(bytes([letter]))
                except OSError:
                    break
                assert time.monotonic() < end, "it is still read"
                time.sleep(0.02)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/html"])
def test_pages_of_other_sites_are_refused(http: httpx.Client, kind: str) -> None:
    def status(origin: str | None) -> int:
        headers = {"Content-Type": kind} | ({} if origin is None else {"Origin": origin})
        return http.post("/embed", content=b'{"inputs": "a"}', headers=headers).status_code

    own = f"http://127.0.0.1:{http.base_url.port}"
    assert [status(None), status(own)] == [200, 200]
    assert {status(one) for one in ("http://evil.example", "null", "http://127.0.0.1:1")} == {403}


def test_pages_of_named_sites_are_answered(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(hosts=("127.0.0.1", "good.example"))) as http:
        for origin, status in (("https://good.example", 200), ("https://bad.example", 403)):
            response = http.post("/embed", json={"inputs": "a"}, headers={"Origin": origin})
            assert response.status_code == status


def test_the_documentation_is_open_and_asks_for_the_key(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(api_key="secret")) as http:
        assert "swagger" in http.get("/docs").text
        schema = http.get("/openapi.json").json()
        assert schema["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
        assert schema["paths"]["/embed"]["post"]["security"]
        assert http.get("/models").status_code == 401
        assert http.post("/embed", json={"inputs": "a"}).status_code == 401
        assert http.get("/live").is_success
        refused = 'te_request_count_total{model="",route="/embed",status="401"} 1.0'
        assert refused in http.get("/metrics").text


def test_refusals_are_counted_by_route(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(batch_tokens=16, queue_batches=1)) as http:
        with full_queue(http):
            body = {"input": "a", "model": "tiny"}
            for headers in ({}, {"Expect": "nothing"}):  # before and after HTTP is parsed
                refused = http.post("/v1/embeddings", json=body, headers=headers)
                assert refused.status_code == 429
            assert http.post("/nothing", json=body).status_code == 429
        text = http.get("/metrics").text
        assert 'te_request_count_total{model="",route="/v1/embeddings",status="429"} 2.0' in text
        assert 'te_request_count_total{model="",route="other",status="429"} 1.0' in text


def test_large_answers_are_encoded_beside_the_event_loop(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def recorded(value: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return to_json(value)

    monkeypatch.setattr(route, "to_json", recorded)
    texts = ["bees " * 50] * 50
    for path in ("/embed_all", "/states"):
        threads.clear()
        answer = http.post(path, json={"inputs": texts, "model": "tiny"}).json()
        assert len(answer if path == "/embed_all" else answer["results"]) == 50
        inline = [name for name in threads if not name.startswith("asyncio_")]
        assert len(inline) <= route.INLINE < len(threads)
    tokens = http.post("/tokenize", json={"inputs": "bees " * 3000}).json()[0]
    assert len(tokens) > 3000


@given(JSON)
def test_pieces_are_json(value: Any) -> None:
    try:
        expected = json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(ValueError, match="JSON compliant"):
            b"".join(route.json_pieces(value))
    else:
        assert json.loads(b"".join(route.json_pieces(value))) == json.loads(expected)


def test_arrays_are_json() -> None:
    arrays = {"a": np.zeros((2, 0, 3)), "b": [np.ones((2, 2)), (1, 2)], "c": np.arange(3)}
    expected = {"a": [[], []], "b": [[[1, 1], [1, 1]], [1, 2]], "c": [0, 1, 2]}
    assert json.loads(b"".join(route.json_pieces(arrays))) == expected
    with pytest.raises(ValueError, match="not a number"):
        b"".join(route.json_pieces([np.asarray([np.nan])]))
