"""Attack a running server: malformed requests, known answers at scale, SIGTERM under load, reloads
under load, and clients that are slow, silent or broken.

    python tests/slow/attack_server.py [--malformed 50000] [--answers 200000] [--stops 10]
        [--reloads 10] [--requests 100000] [--broken 30] [--minutes 60]

The server is a process of its own with a tiny random model. Counts are written to
benchmarks/results/serve_attacks.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
RESULTS = ROOT / "benchmarks" / "results" / "serve_attacks.json"
HEADS: dict[str, tuple[str, ...]] = {
    "model": ("masked_lm", "next_sentence", "classify", "answer"),
    "tagger": ("tag",),
    "chooser": ("choose",),
}
GOOD: dict[str, Any] = {
    "/": {"inputs": "a text"},
    "/embed": {"inputs": ["a", "b"], "truncate": True, "normalize": False, "dimensions": 128},
    "/embed_all": {"inputs": "a"},
    "/predict": {"inputs": [["a"], ["b", "c"]], "raw_scores": True},
    "/rerank": {"query": "a", "texts": ["b"], "return_text": True},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/tokenize": {"inputs": "a b", "add_special_tokens": False},
    "/decode": {"ids": [[5, 6]], "skip_special_tokens": False},
    "/fill-mask": {"inputs": "a [MASK]", "top": 3, "read": True},
    "/classify": {"inputs": "a", "pairs": "b"},
    "/tag": {"inputs": ["a b"], "words": True},
    "/answer": {"question": "a", "passage": "b c d", "top": 3, "longest": 5, "empty": True},
    "/choose": {"prompt": "a", "choices": ["b", "c"]},
    "/follows": {"first": "a", "second": "b"},
    "/states": {"inputs": "a", "depths": [0, 2], "pool": "mean", "special": True},
    "/attention": {"text": "a b", "layers": [0], "heads": [1]},
    "/v1/embeddings": {"input": ["a"], "model": "model", "encoding_format": "base64"},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
    "/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/v1/embed": {"texts": ["a"], "model": "model", "input_type": "search_query"},
    "/v2/embed": {
        "inputs": [{"content": [{"type": "text", "text": "a"}]}],
        "embedding_types": ["float", "base64", "ubinary"],
        "output_dimension": 128,
        "truncate": "END",
    },
    "/v1/classify": {
        "inputs": ["a"],
        "examples": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
    },
    "/infinity/rerank": {"query": "a", "documents": ["b"], "return_documents": True},
    "/infinity/embeddings": {"input": ["a"], "model": "model", "dimensions": 128},
    "/pipeline/text-classification": {
        "inputs": "a",
        "parameters": {"top_k": 1, "function_to_apply": "sigmoid"},
    },
    "/pipeline/token-classification": {
        "inputs": "a",
        "parameters": {"aggregation_strategy": "first", "ignore_labels": ["O"]},
    },
    "/pipeline/fill-mask": {"inputs": "a [MASK]", "parameters": {"top_k": 2}},
    "/pipeline/zero-shot-classification": {
        "inputs": "a",
        "parameters": {"candidate_labels": ["x", "y"], "hypothesis_template": "This is {}."},
    },
    "/pipeline/question-answering": {
        "inputs": {"question": "a", "context": "b c"},
        "parameters": {"top_k": 2, "max_answer_len": 3, "handle_impossible_answer": True},
    },
    "/pipeline/sentence-similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/pipeline/feature-extraction": {"inputs": "a", "parameters": {"normalize": True}},
    "/models/model/embed": {"inputs": ["a", [5, 6]]},
    "/models/tagger": {"inputs": "a", "parameters": {}},
}
ODD: list[Any] = [None, True, -1, 0, 10**30, 1.5, 1e308, "", "\ud800", "\0", "x" * 3000, [], {}]
ODD += [[[]], [None], ["a", 1], {"text": 1}, "../../etc/passwd", [[1, 2], ["a"]], "[MASK] " * 80]
ODD += ["{label}{label}", "{}", "{0}", "{label.__class__}", "{label:>9999999999}", "%s", "{label"]
ODD += [["a"] * 2049, 2**63, [[2**40]], "START", {"question": "", "context": ""}, {"content": []}]
RAW = [
    b"",
    b"{",
    b"NaN",
    b'{"inputs": Infinity}',
    b"[" * 60_000,
    b'{"a":' * 5000,
    b"\xff\xfe",
    b"\0",
]
RAW += [b'{"inputs": ' + b"9" * 6000 + b"}", b'{"inputs": 1e999}', b'"', b'{"inputs":"\\u12"}']


def malformed(draw: random.Random) -> tuple[str, bytes]:
    """A path and a body that is wrong in some way (a few are right by chance)."""
    path = draw.choice(list(GOOD))
    body = json.loads(json.dumps(GOOD[path]))
    kind = draw.random()
    if kind < 0.1:
        return path, draw.choice(RAW)
    if kind < 0.6:
        for _ in range(draw.randint(1, 2)):
            body[draw.choice([*body, "model", "extra", "top"])] = draw.choice(ODD)
    elif kind < 0.7:
        body.pop(draw.choice(list(body)))
    data = json.dumps(body).encode()
    if kind >= 0.7:
        letters = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            letters[draw.randrange(len(letters))] = draw.randrange(256)
        data = bytes(letters)
    return path, data


async def send(streams: Any, path: str, body: bytes) -> tuple[int, bytes, bytes]:
    """(status, head, content) of a request on an open connection."""
    reader, writer = streams
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(answer[9:12]), answer, await reader.readexactly(size)


def connect(port: int) -> Any:
    return asyncio.open_connection("127.0.0.1", port, limit=1 << 26)


async def send_malformed(port: int, count: int, seed: int) -> Counter[str]:
    draw, statuses, left = random.Random(seed), Counter[str](), count

    async def client() -> None:
        nonlocal left
        streams = await connect(port)
        while left > 0:
            left -= 1
            path, body = malformed(draw)
            status, head, content = await send(streams, path, body)
            statuses[str(status)] += 1
            if status >= 500:
                print("FAILED", path, body[:300], content[:300], file=sys.stderr)
            if b"connection: close" in head:
                streams = await connect(port)

    await asyncio.gather(*(client() for _ in range(16)))
    return statuses


async def ask_known(
    port: int, process: Any, known: list[tuple[str, bytes, Any]], count: int, minutes: float
) -> dict[str, Any]:
    """Requests in random order; every answer is compared with the expected one.

    `memory_mb` is that of the server after each tenth of the requests. After so many minutes no
    more are sent.
    """
    draw, left, end = random.Random(1), count, time.monotonic() + 60 * minutes
    result = {"equal": 0, "different": 0, "refused_and_asked_again": 0}
    memories: list[float] = []

    async def client() -> None:
        nonlocal left
        streams = await connect(port)
        while left > 0 and time.monotonic() < end:
            left -= 1
            path, body, expected = draw.choice(known)
            while True:
                status, _, content = await send(streams, path, body)
                if status != 429:
                    break
                result["refused_and_asked_again"] += 1
                await asyncio.sleep(0.05)
            same = status == 200 and alike(json.loads(content), expected)
            result["equal" if same else "different"] += 1
            if result["equal"] % max(1, count // 10) == 0:
                memories.append(round(memory(process) / 1e6, 1))

    await asyncio.gather(*(client() for _ in range(128)))
    memories.append(round(memory(process) / 1e6, 1))
    drift = round(max(abs(one / memories[0] - 1) for one in memories), 4)
    return {"requests": count - left, **result, "memory_mb": memories, "memory_drift": drift}


def alike(one: Any, other: Any) -> bool:
    """Equal but for the last digits of floats."""
    if isinstance(other, float):
        return abs(one - other) < 1e-4
    if isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in other)
    return bool(one == other)


async def ask_until_stopped(port: int, process: Any, seconds: float) -> Counter[str]:
    """Clients that ask all the time, while the server is ended with SIGTERM."""
    outcomes = Counter[str]()
    body = json.dumps({"inputs": ["text", "another text"]}).encode()

    async def client() -> None:
        while True:
            try:
                streams = await connect(port)
            except OSError:
                outcomes["connection refused"] += 1
                return
            while True:
                try:
                    status, head, _ = await send(streams, "/embed", body)
                except asyncio.IncompleteReadError as error:
                    # Nothing came back on a connection that had been idle: it was not admitted.
                    outcomes["lost" if error.partial else "closed unread"] += 1
                    break
                except OSError:
                    outcomes["closed unread"] += 1
                    break
                outcomes[str(status)] += 1
                if b"connection: close" in head:
                    streams[1].close()
                    break

    async def stop() -> None:
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGTERM)

    await asyncio.gather(stop(), *(client() for _ in range(48)))
    process.wait()
    outcomes[f"exit status {process.returncode}"] += 1
    return outcomes


async def ask_while_reloading(
    port: int, process: Any, file: Path, reloads: int, count: int
) -> dict[str, Any]:
    """Requests all the time, while a model's files and an alias change and SIGHUP is sent."""
    outcomes, versions, memories = Counter[str](), Counter[str](), [memory(process)]
    left, done = count, 0
    body = json.dumps({"inputs": "a text", "model": "stable"}).encode()

    async def client() -> None:
        nonlocal left, done
        streams = await connect(port)
        while left > 0:
            left -= 1
            status, _, content = await send(streams, "/tag", body)
            outcomes[str(status)] += 1
            versions[json.loads(content).get("model", "none")] += 1
            done += 1

    async def reload() -> None:
        for number in range(reloads):
            while done < (number + 1) * count / (reloads + 1):
                await asyncio.sleep(0.05)
            text = file.read_text()
            one, other = ("first", "second") if "= 'first'" in text else ("second", "first")
            file.write_text(text.replace(f"= '{one}'", f"= '{other}'"))
            process.send_signal(signal.SIGHUP)
            memories.append(memory(process))

    await asyncio.gather(reload(), *(client() for _ in range(16)))
    return {
        "requests": count,
        "reloads": reloads,
        "statuses": dict(outcomes),
        "models": dict(versions),
        "memory_mb": [round(one / 1e6) for one in memories],
    }


async def ask_beside_broken(port: int, seconds: float) -> dict[str, Any]:
    """Latencies of 4 clients alone, then beside 1,000 idle connections, 100 half-sent requests,
    20 clients that do not read, and connections that are reset.
    """
    body = json.dumps({"inputs": "a text"}).encode()
    large = json.dumps({"inputs": "bees " * 2000}).encode()
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n"

    async def measure() -> dict[str, float]:
        times: list[float] = []
        end = time.perf_counter() + seconds

        async def client() -> None:
            streams = await connect(port)
            while time.perf_counter() < end:
                start = time.perf_counter()
                status, _, _ = await send(streams, "/embed", body)
                assert status == 200, status
                times.append(time.perf_counter() - start)

        await asyncio.gather(*(client() for _ in range(4)))
        cuts = quantiles(times, n=100)
        return {
            "requests": len(times),
            "p50_ms": round(1000 * cuts[49], 2),
            "p99_ms": round(1000 * cuts[98], 2),
        }

    async def reset() -> None:
        while True:
            raw = socket.create_connection(("127.0.0.1", port))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.send(head[: random.randrange(1, len(head))])
            raw.close()
            await asyncio.sleep(0.05)

    alone = await measure()
    held = [await connect(port) for _ in range(1000)]
    for number in range(100):
        _, writer = await connect(port)
        writer.write(head[: 20 + number % 40] if number % 2 else head + b'{"inp')
        held.append((_, writer))
    for _ in range(20):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", port))
        size = f"Content-Length: {len(large)}"
        raw.sendall(f"POST /embed_all HTTP/1.1\r\nHost: a\r\n{size}\r\n\r\n".encode() + large)
        held.append((raw, raw))
    await asyncio.sleep(15)  # their answers are computed
    resets = asyncio.ensure_future(reset())
    beside = await measure()
    resets.cancel()
    for _, writer in held:
        writer.close()
    return {"alone": alone, "beside_broken_clients": beside}


@contextmanager
def server(model: Path, port: int, *options: str) -> Any:
    command = [sys.executable, "-m", "bertsmith.cli", "serve", "--port", str(port), *options]
    command += [] if "--config" in options else [str(model.parent / name) for name in HEADS]
    process = subprocess.Popen(command, cwd=ROOT / "src", stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).read()
                break
            except OSError:
                time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def memory(process: Any) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--malformed", type=int, default=50_000)
    parser.add_argument("--answers", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=60, help="limit of --answers")
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--reloads", type=int, default=10)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--broken", type=float, default=30, help="seconds of each measurement")
    parser.add_argument("--port", type=int, default=8977)
    chosen = parser.parse_args()
    from bertsmith import load
    from serve.live import tiny

    report = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        for name, heads in HEADS.items():
            tiny(heads).save(model.parent / name)
        if chosen.malformed:
            with server(model, chosen.port) as process:
                asyncio.run(send_malformed(chosen.port, chosen.malformed // 5, 0))
                before, start = memory(process), time.time()
                statuses = asyncio.run(send_malformed(chosen.port, chosen.malformed, 1))
                after = memory(process)
                report["malformed"] = {
                    "requests": chosen.malformed,
                    "statuses": dict(sorted(statuses.items())),
                    "seconds": round(time.time() - start, 1),
                    "memory_before_mb": round(before / 1e6, 1),
                    "memory_after_mb": round(after / 1e6, 1),
                    "memory_drift": round(after / before - 1, 4),
                    "server_still_there": process.poll() is None,
                }
                print(report["malformed"], flush=True)
                RESULTS.write_text(json.dumps(report, indent=1) + "\n")
        if chosen.answers:
            bert = load(model, device="cpu")
            known = []
            for number in range(300):
                text = f"number {number} " + "bees " * (number % 6)
                vector = bert.embed([text], normalise=True).tolist()
                known.append(("/embed", json.dumps({"inputs": text}).encode(), vector))
                scores = bert.classify(text).scores
                rows = [{"score": scores[name], "label": name} for name in scores]
                rows.sort(key=lambda row: -float(row["score"]))
                known.append(("/predict", json.dumps({"inputs": text}).encode(), rows))
            with server(model, chosen.port, "--queue-batches", "64") as process:
                start = time.time()
                how = (process, known, chosen.answers, chosen.minutes)
                result = asyncio.run(ask_known(chosen.port, *how))
                report["answers"] = {
                    "connections": 128,
                    **result,
                    "seconds": round(time.time() - start, 1),
                }
                print(report["answers"], flush=True)
                RESULTS.write_text(json.dumps(report, indent=1) + "\n")
        if chosen.broken:
            with server(model, chosen.port):
                report["broken"] = asyncio.run(ask_beside_broken(chosen.port, chosen.broken))
                print(report["broken"], flush=True)
        if chosen.reloads:
            for number, name in enumerate(("first", "second")):
                tiny(("tag",), seed=number).save(model.parent / name)
            file = model.parent / "site.toml"
            models = "[models]\n'tagger@1' = 'tagger'\n'tagger@2' = 'first'\n"
            shares = "[aliases]\nstable = { 'tagger@1' = 0.5, 'tagger@2' = 0.5 }\n"
            file.write_text(models + shares)
            with server(model, chosen.port, "--config", str(file)) as process:
                how = (process, file, chosen.reloads, chosen.requests)
                report["reloads"] = asyncio.run(ask_while_reloading(chosen.port, *how))
                print(report["reloads"], flush=True)
                RESULTS.write_text(json.dumps(report, indent=1) + "\n")
        outcomes = Counter[str]()
        for number in range(chosen.stops):
            with server(model, chosen.port) as process:
                outcomes += asyncio.run(ask_until_stopped(chosen.port, process, 1 + number % 3))
        if chosen.stops:
            report["stops"] = {"times": chosen.stops, "outcomes": dict(sorted(outcomes.items()))}
            print(report["stops"])
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
