"""`bertsmith serve` as a process: it says where it listens and drains on SIGTERM."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from bertsmith.cli.serve import serve
from bertsmith.errors import BertsmithError
from serve.live import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    tiny(("masked_lm", "classify")).save(path)
    return path


def run(*options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bertsmith.cli", "serve", *map(str, options)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


def test_a_process_serves_and_drains(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    options = ["--port", 0, "--json", "--drain", 0.3, "--json-logs", "--api-key-file", key]
    process = run(f"a={folder}", *options)
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["models"] == ["a"]
    headers = {"Authorization": "Bearer secret"}
    body = {"inputs": ["some words"] * 100}
    statuses: list[Any] = []

    def ask() -> None:
        with httpx.Client(base_url=ready["url"], timeout=60) as client:
            while True:
                try:
                    response = client.post("/embed", json=body, headers=headers)
                except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                    return  # a connection that was never accepted
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
    logs = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert len(logs) == len(statuses)
    assert logs[0]["path"] == "/embed"


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (["a=x", "a=y"], {}, "two models are named a"),
        (["="], {}, "is no model"),
        (["x"], {"long": "cut"}, "--long is window or refuse"),
        (["x"], {"host": "256.1.1.1"}, "cannot listen"),
        (["x"], {"api_key_file": Path("/nowhere")}, "the API key cannot be read"),
        (["/nowhere/at/all"], {}, "nowhere"),
    ],
)
def test_mistakes_are_one_line(models: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(BertsmithError, match=message) as error:
        serve(models, **{"port": 0, **options})
    assert "\n" not in str(error.value)
