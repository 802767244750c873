"""The load on a server that benchmarks/serve.py measures, in a process of its own.

python benchmarks/serve_load.py closed|open PORT '{"seconds": 15, "connections": 64}'
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from statistics import fmean, quantiles
from typing import Any

WORDS = [
    *("the", "of", "and", "in", "to", "a", "is", "was", "for", "on", "as", "by", "with", "he"),
    *("that", "from", "at", "his", "it", "an", "were", "are", "which", "this", "be", "river"),
    *("mountain", "music", "history", "science", "city", "government", "language", "education"),
    *("building", "species", "station", "album", "football", "season", "railway", "village"),
    *("population", "university", "company"),
]


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of mixed lengths: half have fewer than 20 words, some have 300."""
    draw = random.Random(seed)
    lengths = [min(300, max(2, int(draw.lognormvariate(3.0, 0.9)))) for _ in range(count)]
    return [" ".join(draw.choices(WORDS, k=length)) for length in lengths]


class Connection(asyncio.Protocol):
    """A connection that sends one request at a time; lean, as it shares the machine's cores."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.waiter: asyncio.Future[tuple[int, float]] | None = None
        self.buffer, self.size, self.start = b"", 0, 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, float]]:
        """Send a request; (status, seconds) until the whole response has arrived."""
        self.waiter = asyncio.get_running_loop().create_future()
        self.buffer, self.size, self.start = b"", 0, time.perf_counter()
        self.transport.write(request)
        return self.waiter

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.size:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            length = head.split(b"content-length:")[1].split(b"\r\n")[0]
            self.size = end + 4 + int(length)
        if len(self.buffer) >= self.size and self.waiter is not None:
            took = time.perf_counter() - self.start
            self.waiter.set_result((int(self.buffer[9:12]), took))
            self.waiter = None

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiter is not None:
            self.waiter.set_exception(error or ConnectionError("closed"))


async def connected(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(Connection, "127.0.0.1", port))[1]


def short_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 3 to 12 words, such as queries."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(count)]


TEXTS = {"mixed": texts, "short": short_texts}


def requests(
    seed: int = 0, lengths: str = "mixed", path: str = "/embed", model: str | None = None
) -> list[bytes]:
    """Requests with a text each; with a model, as OpenAI's clients send them."""
    return [as_request(one, path, model) for one in TEXTS[lengths](4000, seed)]


def as_request(inputs: Any, path: str = "/embed", model: str | None = None) -> bytes:
    """One request as bytes."""
    content = {"inputs": inputs} if model is None else {"input": inputs, "model": model}
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def closed_loop(
    port: int,
    seconds: float,
    connections: int,
    large: int = 0,
    count: int | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """So many clients that each ask again as soon as they are answered.

    With `large`, one more client asks for so many texts at once, all the time. With `count`, the
    clients stop after so many requests.
    """
    many = requests(**asked)
    done: list[float] = []
    refused = 0
    statuses: dict[int, int] = {}
    whole: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal refused
        connection = await connected(port)
        place = number * 37
        while time.perf_counter() < end and (count is None or len(done) < count):
            status, took = await connection.ask(many[place % len(many)])
            place += 1
            if status == 200:
                done.append(took)
            else:
                refused += 1
                statuses[status] = statuses.get(status, 0) + 1
                await asyncio.sleep(0.05)
        connection.transport.close()

    async def large_client() -> None:
        inputs = TEXTS[asked.get("lengths", "mixed")](large, 5)
        request = as_request(inputs, asked.get("path", "/embed"), asked.get("model"))
        connection = await connected(port)
        while time.perf_counter() < end:
            whole.append((await connection.ask(request))[1])

    start = time.perf_counter()
    clients = [client(number) for number in range(connections)]
    await asyncio.gather(*clients, *([large_client()] if large else []))
    took = time.perf_counter() - start
    rate = round(len(done) / took, 2)
    return {
        "requests": len(done),
        "requests_per_second": rate,
        "refused": refused,
        **({"statuses": statuses} if refused else {}),
        **spread(done),
        **({"large_requests_s": [round(one, 2) for one in whole]} if large else {}),
    }


async def open_loop(port: int, seconds: float, rate: float) -> dict[str, Any]:
    """Requests at random moments, `rate` a second on average, whatever the server does."""
    many, draw = requests(seed=1), random.Random(2)
    admitted: list[float] = []
    refusals: list[float] = []
    lost = 0
    idle: list[Connection] = []

    async def client(request: bytes) -> None:
        nonlocal lost
        try:
            connection = idle.pop() if idle else await connected(port)
            status, took = await connection.ask(request)
            idle.append(connection)
        except OSError:
            lost += 1
            return
        (admitted if status == 200 else refusals).append(took)

    tasks, start, due, number = [], time.perf_counter(), 0.0, 0
    while due < seconds:
        wait = start + due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(client(many[number % len(many)])))
        number += 1
        due += draw.expovariate(rate)
    behind = time.perf_counter() - start - seconds
    await asyncio.gather(*tasks)
    return {
        "asked_per_second": round(number / seconds, 2),
        "admitted": {"count": len(admitted), **spread(admitted)},
        "refused": {"count": len(refusals), **spread(refusals)},
        "lost": lost,
        "seconds_behind": round(behind, 2),
    }


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile and mean in milliseconds, and the share below 50 ms."""
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=100)
    named = {"p50_ms": cuts[49], "p99_ms": cuts[98], "mean_ms": fmean(seconds)}
    result = {name: round(1000 * value, 2) for name, value in named.items()}
    return {**result, "below_50_ms": round(fmean(one < 0.05 for one in seconds), 4)}


def main() -> None:
    kind, port, options = sys.argv[1:]
    loop = {"closed": closed_loop, "open": open_loop}[kind]
    print(json.dumps(asyncio.run(loop(int(port), **json.loads(options)))))


if __name__ == "__main__":
    main()
