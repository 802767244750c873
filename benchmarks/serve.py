"""`bertsmith serve` beside sentence-transformers and onnxruntime behind FastAPI, under load.

One run, the same model, texts, HTTP stack and number of threads. The load comes from another
process over kept-open connections. Measured are throughput at saturation (closed loop), and
latencies of `bertsmith serve` at 80% of its throughput and at 10 times (open loop, Poisson
arrivals).

    python benchmarks/serve.py MODEL [--seconds 15] [--threads 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

RESULTS = Path(__file__).parent / "results" / "serve.json"
LOAD = Path(__file__).parent / "serve_load.py"
WINDOW = 0.005  # seconds that the baselines gather requests for
MOST = 32  # requests that the baselines encode together
PACE = (0.04, 0.001)  # seconds of a batch, and of each of its tokens, for `--paced`


class Body(BaseModel):
    """A request of the baselines."""

    inputs: str


# ------------------------------------------------------------------ the baselines


def baseline(kind: str, model: str, port: int, threads: int) -> None:
    """FastAPI with dynamic batching: whatever arrives within 5 ms, at most 32 texts at once.

    /plain batches nothing: it is a function of one request, in FastAPI's threads.
    """
    import torch
    import uvicorn
    from fastapi import FastAPI

    torch.set_num_threads(threads)
    encode = {"onnx": by_onnxruntime}.get(kind, by_sentence_transformers)(model, threads)

    queue: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await queue.get()]
            end = loop.time() + WINDOW
            while len(batch) < MOST and (left := end - loop.time()) > 0:
                try:
                    batch.append(await asyncio.wait_for(queue.get(), left))
                except TimeoutError:
                    break
            rows = await loop.run_in_executor(None, encode, [text for text, _ in batch])
            for (_, future), row in zip(batch, rows, strict=True):
                future.set_result(row.tolist())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        worker = asyncio.create_task(work())
        yield
        worker.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/plain")
    def plain(body: Body) -> list[list[float]]:
        return encode([body.inputs]).tolist()

    @app.post("/embed")
    async def embed(body: Body) -> list[list[float]]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await queue.put((body.inputs, future))
        return [await future]

    uvicorn.run(app, port=port, log_level="error", access_log=False)


def by_sentence_transformers(model: str, threads: int) -> Any:
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(model, device="cpu")
    return lambda some: loaded.encode(some, batch_size=MOST, normalize_embeddings=True)


def by_onnxruntime(model: str, threads: int) -> Any:
    """The graph that `bertsmith export --onnx` writes, padded batches sorted by nothing."""
    import tempfile

    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    folder = os.environ.get("ONNX_FOLDER") or f"{tempfile.mkdtemp()}/onnx"
    if not Path(folder).is_dir():
        command = [sys.executable, "-m", "bertsmith.cli", "export", model, "--onnx", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    names = [one.name for one in session.get_inputs()]
    output = [one.name for one in session.get_outputs()].index("sentence_embedding")

    def encode(some: list[str]) -> Any:
        rows = tokenizer.encode_batch(some)
        fields = {
            "input_ids": [row.ids for row in rows],
            "attention_mask": [row.attention_mask for row in rows],
            "token_type_ids": [row.type_ids for row in rows],
        }
        feeds = {name: np.asarray(fields[name], np.int64) for name in names}
        return session.run(None, feeds)[output]

    return encode


def paced(model: str, port: int) -> None:
    """`bertsmith serve` whose encoder waits as long as a BERT-base on one core takes.

    The queue, HTTP and Python are the real ones; other work on the machine hardly matters.
    """
    import torch

    import bertsmith as bs
    from bertsmith.batch import Batch
    from bertsmith.model import Hidden
    from bertsmith.serve import ServingSettings, batcher
    from bertsmith.serve.app import host
    from bertsmith.serve.metrics import Metrics
    from bertsmith.serve.models import Launcher, Models
    from bertsmith.serve.run import listen, serve
    from bertsmith.serve.service import ModelService

    bert = bs.load(model, device="cpu")

    def encode(_: Any, windows: Any, device: Any) -> tuple[Hidden, Batch]:
        batch = Batch.of([one.ids for one in windows], [one.segments for one in windows])
        time.sleep(PACE[0] + PACE[1] * len(batch.ids))
        states, context = torch.ones(len(batch.ids), bert.checkpoint.config.width), None
        return Hidden(states, states, context), batch  # type: ignore[arg-type]

    batcher.encode = encode  # type: ignore[assignment]
    short = ServingSettings(queue_batches=1)
    launcher = Launcher(Metrics())
    service = ModelService(Models([launcher.launch("paced", bert, short)]), short, launcher.metrics)
    serve(lambda: host(service, None), listen("127.0.0.1", port))


# ------------------------------------------------------------------ the run


def load(kind: str, port: int, **options: Any) -> dict[str, Any]:
    """Run a load in a process of its own."""
    command = [sys.executable, str(LOAD), kind, str(port), json.dumps(options)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, start_new_session=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def server(command: list[str], port: int) -> Any:
    """A server process, ended with SIGTERM."""
    import urllib.request

    own = command if Path(command[0]).is_absolute() and "bin" in command[0] else None
    process = subprocess.Popen(
        own or [sys.executable, *command], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(2000):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"the server ended: {command}") from None
                time.sleep(0.2)
        else:
            raise SystemExit(f"the server does not answer: {command}")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def cpu_seconds(process: int) -> float:
    """CPU time of a process: other work on the machine hardly changes it."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--port", type=int, default=8971)
    parser.add_argument("--beside", default="sentence-transformers,onnxruntime")
    parser.add_argument("--load", action="store_true", help="short and mixed, 1 to 512 clients")
    every = ",".join(f"{kind}:{n}" for kind in ("short", "mixed") for n in (1, 8, 64, 512))
    parser.add_argument("--rows", default=f"{every},short:8:400")
    parser.add_argument("--infinity", help="the program infinity_emb of another environment")
    parser.add_argument("--paced", action="store_true", help="measure the queue alone")
    parser.add_argument("--baseline")
    chosen = parser.parse_args()
    if chosen.baseline == "paced":
        paced(chosen.model, chosen.port)
        return
    if chosen.baseline:
        baseline(chosen.baseline, chosen.model, chosen.port, chosen.threads)
        return
    if chosen.model is None:
        parser.error("name a model to serve")
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    if chosen.paced:
        measure_paced(chosen)
        return
    if chosen.load:
        measure_load(chosen)
        return
    port, seconds = chosen.port, chosen.seconds
    ours = ["-m", "bertsmith.cli", "serve", chosen.model, "--port", str(port)]
    ours += ["--threads", str(chosen.threads), "--queue-batches", "1"]
    baselines = {
        name: [__file__, chosen.model, "--baseline", kind, "--port", str(port), "--threads",
               str(chosen.threads)]
        for name, kind in (("sentence-transformers", "st"), ("onnxruntime", "onnx"))
        if name in chosen.beside
    }  # fmt: skip
    saturation: dict[str, Any] = {}
    closed = {"seconds": seconds, "connections": chosen.connections}
    deep = [*ours, "--queue-batches", "16"]  # as the baselines, which refuse nobody
    for name, command in {"bertsmith": deep, **baselines}.items():
        with server(command, port) as process:
            load("closed", port, seconds=3, connections=chosen.connections)
            before = cpu_seconds(process.pid)
            row = saturation[name] = load("closed", port, **closed)
            used = cpu_seconds(process.pid) - before
            row["requests_per_cpu_second"] = round(row.pop("requests") / used, 2)
            print(name, saturation[name], file=sys.stderr)
    capacity = saturation["bertsmith"]["requests_per_second"]
    with server(ours, port):
        load("closed", port, seconds=3, connections=8)
        calm = load("open", port, seconds=seconds, rate=0.8 * capacity)
        print("80%", calm, file=sys.stderr)
        storm = load("open", port, seconds=seconds, rate=10 * capacity)
        print("10x", storm, file=sys.stderr)
    result = {
        "what": "requests of one text each, mixed lengths, from another process",
        "model": Path(chosen.model).parent.name if "/" in chosen.model else chosen.model,
        "threads": chosen.threads,
        "seconds_each": seconds,
        "connections": chosen.connections,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average_at_the_end": [round(one, 1) for one in os.getloadavg()],
        "python": platform.python_version(),
        "saturation": saturation,
        "faster_than": {name: _ratios(saturation, name) for name in baselines},
        "at_80_percent": calm,
        "at_10_times": storm,
    }
    before = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    result |= {name: before.get(name) for name in ("paced", "load")}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def measure_load(chosen: Any) -> None:
    """Short and mixed texts, 1 to 512 clients, and small requests beside large ones.

    All servers run; each row asks one after the other, so that other work on the machine meets
    all of them alike. Rows of earlier runs are kept.
    """
    port, threads = chosen.port, str(chosen.threads)
    cli = [sys.executable, "-m", "bertsmith.cli", "serve", f"model={chosen.model}"]
    st = [sys.executable, __file__, chosen.model, "--baseline", "st"]
    servers: dict[str, tuple[list[str], dict[str, Any]]] = {
        "bertsmith": ([*cli, "--threads", threads, "--queue-batches", "256"], {}),
        "FastAPI + sentence-transformers": ([*st, "--threads", threads], {"path": "/plain"}),
        "the same with dynamic batching": ([*st, "--threads", threads], {}),
    }
    if chosen.infinity:
        options = ["v2", "--model-id", chosen.model, "--engine", "torch", "--device", "cpu"]
        options += ["--no-model-warmup", "--no-bettertransformer", "--served-model-name", "model"]
        options += ["--host", "127.0.0.1"]
        route = {"path": "/embeddings", "model": "model"}
        servers["infinity"] = ([chosen.infinity, *options, "--dtype", "float32"], route)
    before = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    rows: dict[str, Any] = before.get("load", {}).get("rows", {})
    before["load"] = {
        "what": "requests of one text each from another process; every client asks again at once",
        "threads": chosen.threads,
        "seconds_each": chosen.seconds,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "rows": rows,
    }
    with ExitStack() as stack:
        processes = {}
        for place, (name, (command, options)) in enumerate(servers.items()):
            own = [*command, "--port", str(port + place)]
            processes[name] = stack.enter_context(server(own, port + place))
            load("closed", port + place, seconds=1, connections=8, **options)
        for wanted in chosen.rows.split(","):
            kind, clients, *beside = wanted.split(":")
            asked: dict[str, Any] = {"connections": int(clients), "lengths": kind}
            asked |= {"large": int(beside[0])} if beside else {}
            title = f"{kind} texts, {clients} clients"
            row = rows[f"{title} beside {beside[0]} texts at once" if beside else title] = {}
            for place, (name, (_, options)) in enumerate(servers.items()):
                if beside and name not in ("bertsmith", "infinity"):
                    continue  # they take one text a request
                used = cpu_seconds(processes[name].pid)
                one = load("closed", port + place, seconds=chosen.seconds, **asked, **options)
                used = cpu_seconds(processes[name].pid) - used
                one["requests_per_cpu_second"] = round(one["requests"] / max(used, 0.01), 2)
                one["load_average"] = round(os.getloadavg()[0], 1)
                row[name] = one
                print(wanted, name, one, file=sys.stderr)
            RESULTS.write_text(json.dumps(before, indent=1) + "\n")


def measure_paced(chosen: Any) -> None:
    """Latencies at 80% of the throughput and at 10 times, with an encoder that only waits."""
    port, seconds = chosen.port, chosen.seconds
    command = [__file__, chosen.model, "--baseline", "paced", "--port", str(port)]
    with server(command, port):
        connections = chosen.connections // 2
        most = load("closed", port, seconds=seconds, connections=connections)
        capacity = most["requests_per_second"]
        calm = load("open", port, seconds=seconds, rate=0.8 * capacity)
        storm = load("open", port, seconds=seconds, rate=10 * capacity)
    result = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    result["paced"] = {
        "what": f"the encoder waits {1000 * PACE[0]:g} ms and {1000 * PACE[1]:g} ms for each token "
        "of a batch instead of computing; queue, HTTP and Python are the real ones",
        "seconds_each": seconds,
        "load_average_at_the_end": [round(one, 1) for one in os.getloadavg()],
        "saturation": most,
        "at_80_percent": calm,
        "at_10_times": storm,
        "p99_at_10_times_over_80_percent": round(
            storm["admitted"]["p99_ms"] / calm["admitted"]["p99_ms"], 2
        ),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["paced"], indent=1))


def _ratios(rows: dict[str, Any], other: str) -> dict[str, float]:
    keys = ("requests_per_second", "requests_per_cpu_second")
    return {key: round(rows["bertsmith"][key] / rows[other][key], 2) for key in keys}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


if __name__ == "__main__":
    main()
