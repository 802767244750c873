"""Embedding on a CPU in int8 and float32, beside other libraries with the same weights.

    python benchmarks/cpu_int8.py --model minilm=FOLDER --model base=random

Texts are paragraphs of the documentation: short ones of about 16 tokens, long ones of about 200.
Every contender tokenizes, computes with `--threads` threads, and takes turns with the others in one
process; the best turn counts (of single texts the median), since other work on the machine only
ever slows one down. onnxruntime and OpenVINO get sorted batches of 8 and of 32 texts, of which the
faster size counts; OpenVINO takes part if it and nncf are installed.
With `--clock cpu` and one thread, CPU seconds are counted: on a machine that others use at the same
time only these can be compared.
Cosines are to the vectors of the float32 model. `base=random` is a BERT-base with random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PEERS = ["onnxruntime float32", "onnxruntime int8", "onnxruntime int8 a channel", "OpenVINO int8"]
OURS = ["bertsmith float32", "bertsmith int8", "sentence-transformers"]
ONE = "the quick brown fox jumps over the lazy dog and runs home"
Vectors = np.ndarray[Any, Any]
Embed = Callable[[list[str]], Vectors]


def texts(kind: str, count: int) -> list[str]:
    """Paragraphs of the documentation, short or long."""
    words = " ".join(p.read_text("utf-8") for p in sorted((ROOT / "docs").glob("*.md"))).split()
    words = [word for word in words if word.isalpha()]
    size = {"short": 11, "long": 140}[kind]
    spread = [size - size // 3 + (7 * n) % (2 * size // 3 + 1) for n in range(count)]
    starts = np.cumsum([0, *spread])
    return [" ".join(words[start % 9000 :][:n]) for start, n in zip(starts, spread, strict=False)]


def contender(name: str, folder: Path, threads: int) -> Embed:
    """What one contender does with texts."""
    library, _, how = name.partition(" ")
    if library == "bertsmith":
        import torch

        import bertsmith

        torch.set_num_threads(threads)
        bert = bertsmith.load(folder, device="cpu", dtype=how)
        return lambda given: bert.embed(given, normalise=True)
    if library == "sentence-transformers":
        import sentence_transformers
        import torch

        torch.set_num_threads(threads)
        theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        return lambda given: np.asarray(theirs.encode(given, normalize_embeddings=True))
    session = (onnxruntime if library == "onnxruntime" else openvino)(folder, how, threads)
    return min(
        (padded(folder, session, size) for size in (8, 32)), key=lambda embed: _seconds(embed)
    )


def _seconds(embed: Embed) -> float:
    given = texts("short", 64)
    embed(given)
    start = time.perf_counter()
    embed(given)
    return time.perf_counter() - start


def padded(folder: Path, call: Callable[[dict[str, Any]], Vectors], size: int) -> Embed:
    """Sorted texts in padded batches."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)

    def embed(given: list[str]) -> Vectors:
        ids = [one.ids for one in tokenizer.encode_batch(given)]
        order = sorted(range(len(ids)), key=lambda n: len(ids[n]))
        done: dict[int, Any] = {}
        for start in range(0, len(order), size):
            members = order[start : start + size]
            longest = max(len(ids[n]) for n in members)
            grid, mask = np.zeros((2, len(members), longest), np.int64)
            for row, n in enumerate(members):
                grid[row, : len(ids[n])], mask[row, : len(ids[n])] = ids[n], 1
            feeds = {"input_ids": grid, "attention_mask": mask, "token_type_ids": 0 * grid}
            done |= dict(zip(members, call(feeds), strict=True))
        vectors = np.stack([done[n] for n in range(len(ids))])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embed


def onnxruntime(folder: Path, how: str, threads: int) -> Callable[[dict[str, Any]], Vectors]:
    """A session of ONNX Runtime."""
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    file = {"float32": "model", "int8": "int8", "int8 a channel": "channel"}[how]
    path = str(folder / "onnx" / f"{file}.onnx")
    session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    known = [one.name for one in session.get_inputs()]
    return lambda feeds: session.run(["sentence_embedding"], {name: feeds[name] for name in known})[
        0
    ]


def openvino(folder: Path, how: str, threads: int) -> Callable[[dict[str, Any]], Vectors]:
    """A model of OpenVINO, quantized after calibration on texts of the same kind."""
    import nncf
    import openvino as library
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    rows = [one.ids[:256] for one in tokenizer.encode_batch(texts("short", 100))]
    samples = [
        {
            "input_ids": np.array([row]),
            "attention_mask": np.ones((1, len(row)), np.int64),
            "token_type_ids": np.zeros((1, len(row)), np.int64),
        }
        for row in rows
    ]
    core = library.Core()
    model = core.read_model(folder / "onnx" / "model.onnx")
    kind = nncf.ModelType.TRANSFORMER
    known = [one.any_name for one in model.inputs]
    dataset = nncf.Dataset([{name: one[name] for name in known} for one in samples])
    small = nncf.quantize(model, dataset, model_type=kind)
    compiled = core.compile_model(small, "CPU", {"INFERENCE_NUM_THREADS": threads})
    request = compiled.create_infer_request()
    output = compiled.output("sentence_embedding")
    return lambda feeds: request.infer({name: feeds[name] for name in known})[output].copy()


def prepare(place: str, folder: Path) -> None:
    """A model directory with the graphs that other libraries run."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    import bertsmith
    from bertsmith.checkpoint import export_model

    if place == "random":
        small = bertsmith.load("bertsmith-classic")
        size = small.tokenizer.size
        made = bertsmith.create("bert-base-uncased", heads=(), vocab_size=size)
        bert = bertsmith.Bert(made, small.tokenizer)
    else:
        bert = bertsmith.load(place, device="cpu")
    bert.save(folder, torch.float32)
    if not bert.model.encoder.plan:
        return
    export_model(
        folder / "onnx", bert.checkpoint, bert.tokenizer, bert.sentence, longest=bert.max_length
    )
    plain, kind = folder / "onnx" / "model.onnx", QuantType.QInt8
    quantize_dynamic(plain, folder / "onnx" / "int8.onnx", weight_type=kind)
    quantize_dynamic(plain, folder / "onnx" / "channel.onnx", weight_type=kind, per_channel=True)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All contenders with one model, in turns."""
    now = time.process_time if options.clock == "cpu" else time.perf_counter
    peers = PEERS if (folder / "onnx").is_dir() else []
    if find_spec("openvino") is None:
        peers = [name for name in peers if not name.startswith("OpenVINO")]
    contenders = {name: contender(name, folder, options.threads) for name in [*OURS, *peers]}
    found: dict[str, Any] = {name: {} for name in contenders}
    for kind, count in zip(("short", "long"), options.counts, strict=True):
        given = texts(kind, count)
        vectors = {name: embed(given) for name, embed in contenders.items()}
        for name, own in vectors.items():
            cosines = (own * vectors["bertsmith float32"]).sum(1)
            found[name][f"{kind} cosine"] = [float(cosines.mean()), float(cosines.min())]
        for name, seconds in turns(contenders, given, options.turns, now).items():
            found[name][kind] = count / min(seconds)
    turns(contenders, [ONE], 60, now)  # bertsmith's float32 session is made after 50 single texts
    for thread in threading.enumerate():
        if thread.name == "float32 session":
            thread.join()
    for name, seconds in turns(contenders, [ONE], 100, now).items():
        found[name]["one text, ms"] = 1000 * float(np.median(seconds))
    return found


def turns(
    contenders: dict[str, Embed], given: list[str], count: int, now: Callable[[], float]
) -> dict[str, list[float]]:
    """The seconds of each turn of each contender."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(count):
        for name, embed in contenders.items():
            start = now()
            embed(given)
            seconds[name].append(now() - start)
    return seconds


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER or NAME=random")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs=2, default=[300, 40], help="short, long texts")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/cpu_int8.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.out.is_file():
        results = json.loads(options.out.read_text())
    with tempfile.TemporaryDirectory() as place:
        for pair in options.model:
            name, _, model = pair.partition("=")
            folder = Path(place) / name
            prepare(model, folder)
            about = {
                "threads": options.threads,
                "machine": platform.processor(),
                "load": os.getloadavg()[0],
                "clock": options.clock,
            }
            results[name] = {**about, "contenders": measure(folder, options)}
            options.out.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results[name], indent=1), flush=True)


if __name__ == "__main__":
    main()
