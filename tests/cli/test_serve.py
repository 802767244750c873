"""`bertsmith serve` as a process: it says where it listens and drains on SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from bertsmith.cli.serve import _hosts
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from processes import Process, python
from serve.live import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    tiny(("masked_lm", "classify")).save(path)
    return path


def run(*options: Any) -> Process:
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return python("-m", "bertsmith.cli", "serve", *map(str, options), text=True, **pipes)


def test_a_process_serves_and_drains(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    options = ["--port", 0, "--json", "--drain", 0.3, "--json-logs", "--api-key-file", key]
    process = run(f"a={folder}", *options)
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["models"] == ["a"]
    with socket.create_connection(("127.0.0.1", int(ready["url"].split(":")[-1]))) as other:
        other.sendall(b"no HTTP\r\n\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 400")
    headers = {"Authorization": "Bearer secret"}
    body = {"inputs": ["some words"] * 100}
    statuses: list[Any] = []

    def ask() -> None:
        with httpx.Client(base_url=ready["url"], timeout=60) as client:
            while True:
                try:
                    response = client.post("/embed", json=body, headers=headers)
                except httpx.TransportError:
                    return  # never accepted, or refused and closed while the body was sent
                statuses.append(response.status_code)
                if len(statuses) == 6:
                    process.send_signal(signal.SIGTERM)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert {*statuses} <= {200, 429}
    lines = [json.loads(line) for line in errors.splitlines()]  # also those of libraries
    assert lines[0]["message"] == "Invalid HTTP request received."
    logs = [line for line in lines if line["message"] == "request"]
    served = [row for row in logs if row["status"] == 200]
    assert len(served) == statuses.count(200)  # whatever was admitted was also answered
    assert len(statuses) <= len(logs) <= len(statuses) + len(threads)
    assert logs[0]["path"] == "/embed"


@pytest.mark.slow
def test_several_processes_share_a_port(folder: Path) -> None:
    process = run(f"a={folder}", "--port", 0, "--json", "--workers", 2, "--drain", 0.3)
    assert process.stdout is not None
    ready = [json.loads(process.stdout.readline()) for _ in range(2)]
    one, two = (row["pid"] for row in ready)
    assert one != two
    url = ready[0]["url"]
    for _ in range(40):  # a connection each: whichever process is free takes it
        assert httpx.post(f"{url}/embed", json={"inputs": "a"}, timeout=60).is_success
    assert 'te_request_count_total{model="a",route="/embed",status="200"} 40.0' in _metrics(url)
    os.kill(one, signal.SIGKILL)
    third = json.loads(process.stdout.readline())["pid"]  # another takes its place
    assert third not in (one, two)
    assert httpx.post(f"{url}/embed", json={"inputs": "a"}, timeout=60).is_success
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=60).text


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_server() -> None:
    process = run("/nowhere/at/all", "--port", 0, "--workers", 2)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "nowhere" in errors
    assert "Traceback" not in errors


class Worker:
    """Stands for a worker process."""

    def __init__(self, exitcode: int | None) -> None:
        self.pid, self.exitcode, self.ended = 0, exitcode, False

    def is_alive(self) -> bool:
        return self.exitcode is None

    def terminate(self) -> None:
        self.ended = True

    def join(self) -> None:
        assert self.ended


def test_workers_are_replaced_unless_none_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.serve import run as module

    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(module, "mark_process_dead", lambda _: None)
    processes = [Worker(None), Worker(-9), Worker(module.FAILED)]
    waiting = iter(processes)
    with socket.socket() as listener, pytest.raises(BertsmithError, match="could not start"):
        module._supervise(lambda: next(waiting), 2, listener)  # type: ignore[arg-type,return-value]
    assert all(process.ended for process in (processes[0], processes[2]))


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (["a=x", "a=y"], [], "two models are named a"),
        (["="], [], "is not a model"),
        (["x"], ["--long", "cut"], "--long must be window or refuse"),
        (["x"], ["--host", "256.1.1.1", "--without-key"], "cannot listen"),
        (["x"], ["--api-key-file", "/nowhere"], "the API key cannot be read"),
        (["/nowhere/at/all"], [], "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    models: list[str], options: list[str], message: str, run: Run
) -> None:
    with pytest.raises(BertsmithError, match=message) as error:
        run("serve", *models, "--port", "0", *options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("host", "more", "refused"),
    [
        ("0.0.0.0", [], True),
        ("0.0.0.0", ["--without-key"], False),
        ("0.0.0.0", ["--api-key-file", "key"], False),
        ("127.0.0.1", [], False),
    ],
)
def test_a_server_that_everyone_can_use_has_a_key(
    host: str,
    more: list[str],
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    began: list[str] = []

    def start(build: Any, listener: Any, **_: Any) -> None:
        began.append(host)
        listener.close()

    monkeypatch.setattr("bertsmith.serve.run.serve", start)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("secret")
    words = ["serve", "x", "--host", host, "--port", "0", *more]
    if refused:
        with pytest.raises(BertsmithError, match=r"everyone who can reach 0\.0\.0\.0"):
            run(*words)
    else:
        run(*words)
    assert bool(began) is not refused


def test_named_hosts_are_added_to_those_of_this_machine() -> None:
    assert _hosts("127.0.0.1", None) == ("127.0.0.1", "localhost", "[::1]")
    assert {"a.example", "localhost"} <= {*_hosts("127.0.0.1", ["a.example"])}
    assert _hosts("0.0.0.0", ["a.example"]) == ("a.example",)
    assert _hosts("0.0.0.0", None) == _hosts("127.0.0.1", ["*"]) == ()
