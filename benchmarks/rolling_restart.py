"""Two replicas behind nginx, restarted and reloaded in turns under load: is a request lost?

    python benchmarks/rolling_restart.py [--requests 100000] [--clients 32] [--minutes 60]

While requests are sent, one replica is restarted with SIGTERM, then the other one gets another
model and reads its configuration again (SIGHUP), and so on. Each step waits until the former is
done. The run ends after so many requests or minutes.
Every answer is compared with those of both models in this process. nginx runs
docs/serve/nginx.conf with free ports. Counts are written to
benchmarks/results/rolling_restart.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # without benchmarks/serve.py
RESULTS = ROOT / "benchmarks" / "results" / "rolling_restart.json"
TEXTS = [f"text {number} with a few words about rivers and bees" for number in range(64)]
MODELS = ("first", "second")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def got(port: int, path: str) -> Any:
    """The answer to a GET request; None if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return json.load(response)
    except OSError:
        return None


class Replica:
    """A server process that can be restarted, and given another model."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, self.number = port, 0
        self.file = folder / f"{port}.toml"
        self.words = [sys.executable, "-m", "bertsmith", "serve", "--config", str(self.file)]
        self.words += ["--port", str(port), "--threads", "1", "--json"]
        self.write()
        self.start()

    def write(self) -> None:
        self.file.write_text(f"[models]\nmodel = '{MODELS[self.number % 2]}'\n")

    def start(self) -> None:
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL)
        while got(self.port, "/ready") is None:
            time.sleep(0.2)

    def restart(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=120)
        self.start()
        return status

    def reload(self) -> None:
        """Serve the other model, whose files have another sum."""
        before = got(self.port, "/models")
        self.number += 1
        self.write()
        self.process.send_signal(signal.SIGHUP)
        while got(self.port, "/models") in (before, None):
            time.sleep(0.2)


class Load:
    """Clients that each keep one connection and check every answer."""

    def __init__(self, port: int, expected: list[Any], requests: int, minutes: float) -> None:
        self.port, self.expected, self.left = port, expected, requests
        self.end = time.monotonic() + 60 * minutes
        self.counts, self.seconds = Counter[str](), list[float]()
        self.requests = []
        for text in TEXTS:
            body = json.dumps({"inputs": text}).encode()
            head = f"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            self.requests.append(head.encode() + body)

    async def client(self) -> None:
        streams = None
        while self.left > 0 and time.monotonic() < self.end:
            self.left -= 1
            which = self.left % len(TEXTS)
            start = time.perf_counter()
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", self.port)
                streams[1].write(self.requests[which])
                head = (await streams[0].readuntil(b"\r\n\r\n")).lower()
                size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                what = self.checked(head, await streams[0].readexactly(size), which)
                closed = b"connection: close" in head
            except (OSError, EOFError, ValueError) as error:
                what, closed = type(error).__name__, True
            if closed and streams is not None:
                streams[1].close()
                streams = None
            self.counts[what] += 1
            self.seconds.append(time.perf_counter() - start)

    def checked(self, head: bytes, content: bytes, which: int) -> str:
        """Which model an answer is of; another status or vector is named."""
        if head[9:12] != b"200":
            return head[9:12].decode()
        (vector,) = json.loads(content)
        for name, vectors in zip(MODELS, self.expected, strict=True):
            if np.abs(vectors[which] - vector).max() < 1e-4:
                return name
        return "wrong answer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    from serve.live import tiny

    with tempfile.TemporaryDirectory() as temporary:
        folder, expected = Path(temporary), []
        for seed, name in enumerate(MODELS):
            bert = tiny((), seed=seed)
            bert.save(folder / name)
            expected.append(bert.embed(TEXTS, normalise=True))
        front, *ports = free_ports(3)
        conf = (ROOT / "docs/serve/nginx.conf").read_text("utf-8")
        for old, new in zip((8080, 8081, 8082), (front, *ports), strict=True):
            conf = conf.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        (folder / "nginx.conf").write_text(conf, "utf-8")
        replicas = [Replica(folder, port) for port in ports]
        words = ["nginx", "-p", temporary, "-c", "nginx.conf", "-g", "daemon off;"]
        subprocess.run([*words[:5], "-t"], check=True)
        nginx = subprocess.Popen(words)
        while got(front, "/ready") is None:
            time.sleep(0.05)
        try:
            load = Load(front, expected, options.requests, options.minutes)
            result = asyncio.run(measured(load, replicas, options.clients))
        finally:
            for replica in replicas:
                replica.process.terminate()
                replica.process.wait(timeout=120)
            nginx.send_signal(signal.SIGQUIT)
            nginx.wait(timeout=30)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))


async def measured(load: Load, replicas: list[Replica], clients: int) -> dict[str, Any]:
    start, steps, statuses = time.perf_counter(), 0, Counter[str]()
    asking = asyncio.gather(*(load.client() for _ in range(clients)))
    while not asking.done():
        one, other = replicas[steps % 2], replicas[1 - steps % 2]
        statuses[str(await asyncio.to_thread(one.restart))] += 1
        await asyncio.to_thread(other.reload)
        steps += 1
        await asyncio.sleep(1)
    await asking
    seconds = sorted(load.seconds)
    answered = {name: load.counts.pop(name, 0) for name in MODELS}
    return {
        "requests": len(seconds),
        "right": sum(answered.values()),
        "by_model": answered,
        "lost": dict(load.counts),
        "restarts": steps,
        "reloads": steps,
        "exit_statuses": dict(statuses),
        "clients": clients,
        "seconds": round(time.perf_counter() - start, 1),
        "p50_ms": round(1000 * seconds[len(seconds) // 2], 1),
        "p99_ms": round(1000 * seconds[int(len(seconds) * 0.99)], 1),
        "longest_ms": round(1000 * seconds[-1], 1),
        "load_average_at_the_end": [round(one, 1) for one in os.getloadavg()],
    }


if __name__ == "__main__":
    main()
