"""What an operations team needs: logs, traces, CORS, slow readers, HTTPS, proxies, reloads."""

import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from bertsmith import Bert
from bertsmith.serve import ServingSettings
from bertsmith.serve.run import JsonLines, listen
from bertsmith.serve.traces import Traces
from serve.live import serving, tiny, until


@contextmanager
def lines() -> Iterator[list[dict[str, Any]]]:
    """The JSON lines that a server writes."""
    written: list[dict[str, Any]] = []
    log, handler = logging.getLogger("bertsmith.serve"), logging.Handler()
    handler.emit = lambda record: written.append(json.loads(JsonLines().format(record)))  # type: ignore[method-assign]
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        yield written
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def test_log_lines(bert: Bert) -> None:
    body = {"inputs": "a private text"}
    with lines() as written, serving({"tiny@2": bert}, ServingSettings(json_logs=True)) as http:
        http.post("/embed", json=body, headers={"X-Request-Id": "mine"})
        http.post("/embed", json={"inputs": 5})
        until(lambda: len(written) == 2)
    good, bad = written
    assert (good["request_id"], good["client"], good["model"]) == ("mine", "127.0.0.1", "tiny@2")
    assert (good["status"], good["level"], good["path"]) == (200, "info", "/embed")
    assert good["tokens"] == 9
    assert good["total_ms"] >= good["inference_ms"] > 0
    assert good["time"].startswith("20")
    assert good["time"].endswith("+00:00")
    assert (bad["status"], bad["model"]) == (422, None)
    assert "private" not in json.dumps(written)


def test_texts_are_logged_if_told(bert: Bert) -> None:
    settings = ServingSettings(json_logs=True, log_texts=True)
    with lines() as written, serving({"tiny": bert}, settings) as http:
        http.post("/embed", json={"inputs": ["one", "two"]})
        until(lambda: len(written) == 1)
    assert written[0]["texts"] == ["one", "two"]


def test_errors_of_the_server_are_lines_too() -> None:
    with lines() as written:
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("bertsmith.serve").exception("a request failed")
    assert (written[0]["level"], written[0]["message"]) == ("error", "a request failed")
    assert "ValueError: broken" in written[0]["exception"]


def test_traces(bert: Bert) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with lines() as written, serving({"tiny": bert}, ServingSettings(json_logs=True)) as http:
        http.app.state.admission.traces = Traces(provider)  # type: ignore[attr-defined]
        http.post("/embed", json={"inputs": "a"}, headers={"traceparent": parent})
        until(lambda: len(written) == 1)
    named = {span.name: span for span in spans.get_finished_spans()}
    assert {*named} == {"tokenize", "queue", "inference", "POST /embed"}
    whole = named["POST /embed"]
    assert f"{whole.context.trace_id:032x}" == parent[3:35] == written[0]["trace_id"]
    assert whole.parent.span_id == int(parent[36:52], 16)
    assert whole.attributes["http.response.status_code"] == 200
    assert whole.attributes["bertsmith.model"] == "tiny"
    for name in ("tokenize", "queue", "inference"):
        assert named[name].parent.span_id == whole.context.span_id
        assert whole.start_time <= named[name].start_time <= named[name].end_time
        assert named[name].end_time <= whole.end_time
    assert abs(whole.end_time / 1e9 - time.time()) < 60


def test_the_end_does_not_wait_for_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.serve.traces.LAST", 0.05)
    stopped = threading.Event()

    class Provider:  # whose collector does not answer
        def get_tracer(self, *_: object) -> None:
            return None

        def shutdown(self) -> None:
            stopped.wait(30)

    start = time.monotonic()
    Traces(Provider()).close()
    assert time.monotonic() - start < 10
    stopped.set()


def test_pages_of_named_origins_read_answers(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(origins=("https://app.example",))) as http:
        ask = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        ask["Access-Control-Request-Headers"] = "authorization,content-type"
        before = http.options("/embed", headers=ask)
        assert before.status_code == 200
        assert before.headers["access-control-allow-origin"] == "https://app.example"
        answer = http.post("/embed", json={"inputs": "a"}, headers={"Origin": ask["Origin"]})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        other = http.post(
            "/embed", json={"inputs": "a"}, headers={"Origin": "https://evil.example"}
        )
        assert other.status_code == 403
        assert "access-control-allow-origin" not in other.headers


def test_a_client_that_does_not_read_its_answer_is_given_up(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(timeout=1.0)) as http:
        state = http.app.state.admission.state  # type: ignore[attr-defined]
        body = json.dumps({"inputs": "bees " * 20_000}).encode()  # 30 MB of vectors
        head = f"POST /embed_all HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((http.base_url.host, http.base_url.port))
            client.sendall(head.encode() + body)
            until(lambda: state.active == 1)
            until(lambda: http.post("/embed", json={"inputs": "a"}).is_success)
            until(lambda: state.active == 0)
        until(lambda: http.post("/embed", json={"inputs": "a"}).is_success)


def test_bodies_together_are_bounded(bert: Bert) -> None:
    with serving({"tiny": bert}, ServingSettings(max_body=1000)) as http:
        state = http.app.state.admission.state  # type: ignore[attr-defined]
        state.received = 32_000
        assert http.post("/embed", json={"inputs": "a"}).status_code == 429
        until(lambda: state.received == 32_000)  # the request is over
        state.received = 0
        assert http.post("/embed", json={"inputs": "a"}).is_success
        until(lambda: state.received == 0)


def test_as_many_inputs_as_openai_takes(bert: Bert) -> None:
    with serving({"tiny": bert}) as http:
        body = {"input": ["a text"] * 2048, "model": "tiny"}
        assert len(http.post("/v1/embeddings", json=body).json()["data"]) == 2048
        body["input"].append("one more")  # type: ignore[attr-defined]
        assert http.post("/v1/embeddings", json=body).status_code == 413


# ------------------------------------------------------------------ processes


class Process:
    """`bertsmith serve` in a process of its own."""

    def __init__(self, folder: Path, *options: str, verify: ssl.SSLContext) -> None:
        with listen("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        self.log = folder / "log"
        command = [sys.executable, "-m", "bertsmith.cli", "serve", "--port", str(port), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("BERTSMITH_API_KEY", None)
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                # as nohup starts it
                ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command],
                stderr=log,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
        self.http = httpx.Client(base_url=f"https://127.0.0.1:{port}", timeout=60, verify=verify)
        self.port = port
        try:
            until(self._ready, 300)  # the machine may be busy
        except AssertionError:
            self.http.close()
            self.child.kill()
            self.child.wait()
            raise

    def _ready(self) -> bool:
        assert self.child.poll() is None, self.log.read_text()
        try:
            return self.http.get("/ready").is_success
        except httpx.TransportError:
            return False

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.child.terminate()
        assert self.child.wait(60) == 0, self.log.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    tiny(("tag",)).save(path / "first")
    tiny(("tag",), seed=4).save(path / "second")
    return path


def certificate(folder: Path) -> list[str]:
    """A self-signed certificate for this machine: the files of the key and of the certificate."""
    files = [str(folder / "key.pem"), str(folder / "certificate.pem")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-keyout", files[0], "-out", files[1], "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True)
    return files


def trusting(file: str | Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file)


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sighup_reads_the_file_again(folder: Path, tmp_path: Path, workers: int) -> None:
    """So it does with the certificate."""
    file, (key, own) = tmp_path / "site.toml", certificate(tmp_path)
    tls = f"tls_key = '{key}'\ntls_certificate = '{own}'\n"
    file.write_text(f"[models]\ntiny = '{folder}/first'\n[server]\nworkers = {workers}\n{tls}")
    trusted = trusting(own)
    with Process(tmp_path, "--config", str(file), verify=trusted) as server:
        answer = server.http.post("/embed_all", json={"inputs": "bees " * 3000})
        assert len(answer.json()[0]) >= 3000  # a large answer, in pieces
        vectors = server.http.post("/embed", json={"inputs": "a"}).json()
        certificate(tmp_path)
        trusted.load_verify_locations(own)
        file.write_text(file.read_text().replace("first", "second"))
        server.child.send_signal(signal.SIGHUP)

        def changed() -> bool:
            answers = [server.http.post("/embed", json={"inputs": "a"}) for _ in range(8)]
            assert all(one.status_code == 200 for one in answers)
            return all(one.json() != vectors for one in answers)

        until(changed)
        shown = partial(ssl.get_server_certificate, ("127.0.0.1", server.port))
        until(lambda: shown() == Path(own).read_text())
        file.write_text("nonsense")
        server.child.send_signal(signal.SIGHUP)
        until(lambda: "reload failed, nothing has changed" in server.log.read_text())
        assert server.http.post("/embed", json={"inputs": "a"}).is_success
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://127.0.0.1:{server.port}/ready", verify=trusted)


NGINX = Path(__file__).parents[2] / "docs" / "serve" / "nginx-https.conf"
CADDY = NGINX.with_name("Caddyfile")


def proxied(command: list[str], port: int, folder: Path, address: str) -> None:
    """Answers through a proxy that keeps HTTPS, asked from an address of this machine."""
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        trusted = trusting(folder / "certificate.pem")
        own = httpx.HTTPTransport(verify=trusted, local_address=address)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", transport=own, timeout=60) as http:

            def ready() -> bool:
                try:
                    return http.get("/ready").is_success
                except httpx.TransportError:
                    return False

            until(ready)
            many = http.post("/embed_all", json={"inputs": "bees " * 3000}).json()
            assert len(many[0]) >= 3000
            answer = http.post("/embed", json={"inputs": "a"}, headers={"X-Request-Id": "mine"})
            assert answer.headers["x-request-id"] == "mine"
            assert http.get("/metrics").status_code in (403, 404)
    finally:
        proxy.terminate()
        proxy.wait(30)


def behind(name: str, bert: Bert, folder: Path, write: Callable[[int, int], list[str]]) -> None:
    """A proxy before a server: `write` gives its command for its own and the server's port."""
    certificate(folder)
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    trusts = ServingSettings(json_logs=True, proxies=("127.0.0.1",), hosts=("127.0.0.1", name))
    with lines() as written, serving({"tiny": bert}, trusts) as http:
        # On Linux, all of 127.0.0.0/8 is this machine.
        address = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
        proxied(write(port, http.base_url.port or 0), port, folder, address)
        until(lambda: any(one["path"] == "/embed" for one in written))
    asked = [one for one in written if one["path"] == "/embed"]
    assert [(one["client"], one["request_id"]) for one in asked] == [(address, "mine")]


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_behind_nginx(bert: Bert, tmp_path: Path) -> None:
    def write(port: int, server: int) -> list[str]:
        text = NGINX.read_text().replace("443 ssl", f"127.0.0.1:{port} ssl")
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server}")
        text = text.replace("/etc/nginx/tls", str(tmp_path))
        outside = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        file = tmp_path / "nginx.conf"
        file.write_text(f"{outside}http {{ access_log off;\n{text}\n}}")
        return ["nginx", "-c", str(file), "-p", str(tmp_path)]

    behind("localhost", bert, tmp_path, write)


@pytest.mark.skipif(not shutil.which("caddy"), reason="caddy is not installed")
def test_behind_caddy(bert: Bert, tmp_path: Path) -> None:
    def write(port: int, server: int) -> list[str]:
        text = CADDY.read_text().replace("models.example.org", f"https://127.0.0.1:{port}")
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server}")
        inside = f"tls {tmp_path}/certificate.pem {tmp_path}/key.pem\n\treverse_proxy"
        text = text.replace("reverse_proxy", inside, 1)
        file = tmp_path / "Caddyfile"
        file.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text)
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]

    behind("models.example.org", bert, tmp_path, write)


class SlowIndex:
    """An index whose searches wait until two run at the same time."""

    together = threading.Barrier(2, timeout=30)

    def search(self, query: str, top: int = 10) -> list[Any]:
        self.together.wait()
        return []

    def problem(self) -> str | None:
        return None

    def reader(self) -> "SlowIndex":
        return SlowIndex()


def test_queries_are_answered_at_the_same_time(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with serving({"tiny": bert}, index=SlowIndex()) as http, ThreadPoolExecutor(2) as threads:
        ask = partial(http.post, "/search", json={"query": "a"})
        answers = [threads.submit(ask) for _ in range(2)]
        assert [one.result().status_code for one in answers] == [200, 200]
