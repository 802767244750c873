"""Requests that are refused before they are parsed: the same answers as by the normal path."""

import socket
from collections.abc import Iterator
from http.client import HTTPResponse

import httpx
import pytest

from bertsmith import Bert
from bertsmith.serve import ServingSettings
from bertsmith.serve.protocol import parse
from serve.live import full_queue, serving

PLAIN = b"POST /embed?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def test_only_plain_complete_requests_are_parsed() -> None:
    assert parse(PLAIN) == ("/embed", {b"host": b"a", b"content-length": b"2"})
    kept = PLAIN.replace(b"Host: a", b"Connection: keep-alive")
    assert parse(kept) is not None
    for data in (
        PLAIN[:-1],
        PLAIN + b"x",
        PLAIN + PLAIN,
        PLAIN[:30],
        b"",
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"Content-Length: 2", b"Content-Length: -2"),
        PLAIN.replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 2"),
        PLAIN.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"Host: a", b"Connection: close"),
        PLAIN.replace(b"Host: a", b"Expect: 100-continue"),
        PLAIN.replace(b"Host: a", b"Upgrade: websocket"),
        PLAIN.replace(b"Host: a", b"no header"),
    ):
        assert parse(data) is None, data


@pytest.fixture(scope="module")
def guarded(bert: Bert) -> Iterator[httpx.Client]:
    with serving({"tiny": bert}, ServingSettings(api_key="secret")) as http:
        http.headers["Authorization"] = "Bearer secret"
        yield http


def test_a_full_server_refuses_and_the_connection_goes_on(guarded: httpx.Client) -> None:
    body = {"input": "a", "model": "tiny"}
    with full_queue(guarded):
        for headers in ({"X-Request-ID": "mine"}, {"X-Request-ID": "mine", "Expect": "nothing"}):
            refused = guarded.post("/v1/embeddings", json=body, headers=headers)
            assert refused.status_code == 429
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-request-id"] == "mine"
        wrong = guarded.post("/embed", json=body, headers={"Authorization": "Bearer x"})
        assert wrong.status_code == 401
        assert guarded.get("/health").is_success
    assert guarded.post("/v1/embeddings", json=body).is_success
    assert 'status="429"' in guarded.get("/metrics").text


def test_requests_in_pieces_are_refused_too(guarded: httpx.Client) -> None:
    address = (guarded.base_url.host, guarded.base_url.port)
    request = PLAIN.replace(b"Host: a", b"Host: a\r\nAuthorization: Bearer secret")
    with full_queue(guarded), socket.create_connection(address, timeout=10) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pieces in ([request], [request[:40], request[40:]], [request]):
            for piece in pieces:
                client.sendall(piece)
            answer = HTTPResponse(client)
            answer.begin()
            assert answer.status == 429
            assert answer.read().startswith(b'{"error":"the server is busy')
