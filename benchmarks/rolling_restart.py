"""Two replicas behind nginx, restarted one after the other under load: is a request lost?

    python benchmarks/rolling_restart.py [--requests 20000] [--clients 16]

Every answer is compared with that of the model in this process. nginx runs docs/serve/nginx.conf
with free ports. The replicas are restarted in turns with SIGTERM, as long as requests are sent; the
next one waits until the former is ready. Counts are written to
benchmarks/results/rolling_restart.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # without benchmarks/serve.py
RESULTS = ROOT / "benchmarks" / "results" / "rolling_restart.json"
TEXTS = [f"text {number} with a few words about rivers and bees" for number in range(64)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)


class Replica:
    """A server process that can be restarted."""

    def __init__(self, model: Path, port: int) -> None:
        self.port = port
        self.words = [sys.executable, "-m", "bertsmith", "serve", f"model={model}"]
        self.words += ["--port", str(port), "--threads", "1", "--json"]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()  # written when it is ready
        while True:
            try:
                connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


class Load:
    """Clients that each keep one connection and check every answer."""

    def __init__(self, port: int, expected: list[list[float]], requests: int) -> None:
        self.port, self.expected, self.left = port, expected, requests
        self.lock, self.counts = threading.Lock(), Counter[str]()
        self.seconds: list[float] = []

    def take(self) -> int | None:
        with self.lock:
            self.left -= 1
            return self.left if self.left >= 0 else None

    def client(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=90)
        while (number := self.take()) is not None:
            which = number % len(TEXTS)
            body = json.dumps({"inputs": TEXTS[which]})
            start = time.perf_counter()
            try:
                connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                content = response.read()
                what = str(response.status)
                if response.status == 200:
                    near = zip(json.loads(content)[0], self.expected[which], strict=True)
                    right = all(abs(one - other) < 1e-4 for one, other in near)
                    what = "right" if right else "wrong answer"
            except (OSError, HTTPException) as error:
                what = type(error).__name__
                connection.close()
            with self.lock:
                self.counts[what] += 1
                self.seconds.append(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    from serve.live import tiny

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bert = tiny(())
        bert.save(folder / "model")
        expected = bert.embed(TEXTS, normalise=True).tolist()
        front, *ports = free_ports(3)
        conf = (ROOT / "docs/serve/nginx.conf").read_text("utf-8")
        for old, new in zip((8080, 8081, 8082), (front, *ports), strict=True):
            conf = conf.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        (folder / "nginx.conf").write_text(conf, "utf-8")
        replicas = [Replica(folder / "model", port) for port in ports]
        words = ["nginx", "-p", temporary, "-c", "nginx.conf", "-g", "daemon off;"]
        subprocess.run([*words[:5], "-t"], check=True)
        nginx = subprocess.Popen(words)
        wait_for(front)
        try:
            result = measured(Load(front, expected, options.requests), replicas, options.clients)
        finally:
            for replica in replicas:
                replica.stop()
            nginx.send_signal(signal.SIGQUIT)
            nginx.wait(timeout=30)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))


def measured(load: Load, replicas: list[Replica], clients: int) -> dict[str, Any]:
    threads = [threading.Thread(target=load.client) for _ in range(clients)]
    start, restarts, statuses = time.perf_counter(), 0, Counter[str]()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        replica = replicas[restarts % 2]
        statuses[str(replica.stop())] += 1
        replica.start()
        restarts += 1
        time.sleep(1)
    seconds = sorted(load.seconds)
    answered = load.counts.pop("right", 0)
    return {
        "requests": len(seconds),
        "right": answered,
        "lost": dict(load.counts),
        "restarts": restarts,
        "exit_statuses": dict(statuses),
        "clients": clients,
        "seconds": round(time.perf_counter() - start, 1),
        "p50_ms": round(1000 * seconds[len(seconds) // 2], 1),
        "p99_ms": round(1000 * seconds[int(len(seconds) * 0.99)], 1),
        "longest_ms": round(1000 * seconds[-1], 1),
    }


if __name__ == "__main__":
    main()
