"""Embedding texts of mixed length with a BERT-base-sized model on a CPU, side by side.

    python benchmarks/cpu_embedding.py --texts 2000 --sample 192 --turns 2

All contenders have the same weights, threads and texts (2,000 texts of 5 to 400 words, sorted by
length), and give the mean state of each text. `transformers` and onnxruntime get padded batches
of several sizes, of which the best counts; onnxruntime's graph is fused by its own optimiser, its
int8 model is quantised dynamically. Every contender runs in a process of its own, since the idle
threads of one library slow the others down; processes take turns, `--turns` times. Each makes two
passes over the sample: the first, which holds its library's preparation for
shapes it has not seen, is what a person's own texts cost; the second is reported too. The best
turn counts, since other work on the machine only ever slows a contender down.

onnxruntime and OpenVINO take part where they are installed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--texts", type=int, default=2000)
parser.add_argument("--sample", type=int, default=192, help="texts in a pass")
parser.add_argument("--window", type=int, default=32, help="neighbours by length in the sample")
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
parser.add_argument("--folder", type=Path, default=Path(), help=argparse.SUPPRESS)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 32], help="padded batches")
parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu_embedding.json"))
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from bertsmith.checkpoint import create  # noqa: E402
from bertsmith.checkpoint.write import stored_tensors  # noqa: E402
from bertsmith.cpu import prepare  # noqa: E402
from bertsmith.infer.run import run  # noqa: E402
from bertsmith.infer.windows import Window  # noqa: E402
from bertsmith.model.pooling import mean  # noqa: E402

torch.set_num_threads(options.threads)
Job = Callable[[list[list[int]]], np.ndarray[Any, Any]]


def drawn_texts(count: int) -> list[list[int]]:
    """Token ids of texts of 5 to 400 words, about 1.3 tokens a word, in order of length."""
    draw = random.Random(0)
    lengths = sorted(min(512, round(draw.randint(5, 400) * 1.3) + 2) for _ in range(count))
    return [[draw.randint(1000, 30000) for _ in range(length)] for length in lengths]


def padded(size: int, call: Callable[..., Any]) -> Job:
    """Batches of `size` texts, each padded to its longest; pooled over the real tokens."""

    def job(texts: list[list[int]]) -> np.ndarray[Any, Any]:
        done = []
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            longest = max(map(len, part))
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in part])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in part])
            states = torch.as_tensor(call(ids, mask)).float()
            done.append((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return torch.cat(done).numpy()

    return job


def flat(model: Any) -> Job:
    """bertsmith, as `embed` runs it."""

    def job(texts: list[list[int]]) -> np.ndarray[Any, Any]:
        windows = [
            Window(n, ids, [0] * len(ids), range(len(ids)), 0) for n, ids in enumerate(texts)
        ]
        compute = lambda _, hidden, batch, chosen: list(mean(hidden.last.float(), batch.layout))  # noqa: E731
        return torch.stack(run(model, windows, compute, devices=[torch.device("cpu")])).numpy()

    return job


def models() -> tuple[Any, Any]:
    """Our model and theirs, with the same weights."""
    checkpoint = create("bert-base-uncased", heads=())
    theirs = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False).eval()
    theirs.load_state_dict(stored_tensors(checkpoint), strict=False)
    return checkpoint.model, theirs


def contenders() -> list[str]:
    """Everyone who takes part here."""
    names = ["bertsmith bf16", "transformers bf16", "bertsmith fp32", "transformers fp32"]
    if find_spec("onnxruntime"):
        names += ["onnxruntime fp32", "onnxruntime int8"]
    if find_spec("openvino"):
        names += ["OpenVINO bf16", "OpenVINO fp32"]
    chosen = [n for n in names if not options.only or any(map(n.startswith, options.only))]
    batched = (f"{n}, batches of {size}" for n in chosen for size in options.sizes)
    return [n for n in chosen if n.startswith("bertsmith")] + [
        n for n in batched if not n.startswith("bertsmith")
    ]


def job_of(contender: str, folder: Path) -> Job:
    """What one contender does with a list of texts."""
    name, _, size = contender.partition(", batches of ")
    library, _, precision = name.partition(" ")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if library == "bertsmith":
        model = models()[0].to(dtype)
        prepare(model)
        return flat(model)
    if library == "transformers":
        theirs = models()[1].to(dtype)
        return padded(int(size), lambda ids, mask: theirs(ids, mask).last_hidden_state)
    if library == "onnxruntime":
        return padded(int(size), onnxruntime_call(str(folder / f"{precision}.onnx")))
    return padded(int(size), openvino_call(str(folder / "plain.onnx"), precision))


def onnxruntime_call(file: str) -> Callable[..., Any]:
    import onnxruntime

    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(file, how, providers=["CPUExecutionProvider"])
    kinds = {i.name: "int32" if "int32" in i.type else "int64" for i in session.get_inputs()}

    def call(ids: Any, mask: Any) -> Any:
        given = {"ids": ids.numpy(), "mask": mask.numpy()}
        return session.run(None, {k: given[k].astype(kind) for k, kind in kinds.items()})[0]

    return call


def openvino_call(file: str, precision: str) -> Callable[..., Any]:
    import openvino

    core = openvino.Core()
    kind = {"bf16": "bf16", "fp32": "f32"}[precision]
    settings = {"INFERENCE_NUM_THREADS": options.threads, "INFERENCE_PRECISION_HINT": kind}
    request = core.compile_model(core.read_model(file), "CPU", settings).create_infer_request()
    return lambda ids, mask: request.infer({"ids": ids.numpy(), "mask": mask.numpy()})[0].copy()


def export_all(folder: Path) -> None:
    """The graphs that onnxruntime and OpenVINO run."""
    if not find_spec("onnxruntime"):
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    plain, fused, int8 = (str(folder / f"{name}.onnx") for name in ("plain", "fp32", "int8"))
    export(models()[1], plain)
    optimize_model(plain, model_type="bert", num_heads=12, hidden_size=768).save_model_to_file(
        fused
    )
    quantize_dynamic(plain, int8, weight_type=QuantType.QInt8)


def export(model: Any, file: str) -> None:
    """The model as ONNX, with attention written out so that onnxruntime can fuse it."""

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = copy.deepcopy(model)
            self.model.set_attn_implementation("eager")

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ids = torch.randint(1000, 30000, (3, 17))
    mask = torch.ones_like(ids)
    mask[0, 10:] = 0
    axes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask", "states")}
    torch.onnx.export(
        States().eval(),
        (ids, mask),
        file,
        input_names=["ids", "mask"],
        output_names=["states"],
        dynamic_axes=axes,
        dynamo=False,
    )


def versions() -> dict[str, str]:
    found = {}
    for name in ("bertsmith", "torch", "transformers", "onnxruntime", "openvino"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def sample_of_texts() -> list[list[int]]:
    """Windows of neighbours, spread over the sorted texts: padding is as in a run over all."""
    texts = drawn_texts(options.texts)
    count = max(1, options.sample // options.window)
    step = len(texts) / count
    starts = [round(step * (number + 0.5) - options.window / 2) for number in range(count)]
    return [text for start in starts for text in texts[start : start + options.window]]


def work(contender: str) -> None:
    """One contender's turn: two passes; times and vectors go to the parent by files."""
    sample = sample_of_texts()
    job = job_of(contender, options.folder)
    with torch.inference_mode():
        job(sample[:2])
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            vectors = job(sample)
            seconds.append(time.perf_counter() - start)
    np.save(options.folder / "vectors.npy", vectors)
    (options.folder / "seconds.json").write_text(json.dumps(seconds))


def main() -> None:
    if options.worker:
        work(options.worker)
        return
    sample = sample_of_texts()
    names = contenders()
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    vectors: dict[str, np.ndarray[Any, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export_all(folder)
        for turn in range(options.turns):
            for name in names:
                command = [sys.executable, *sys.argv, "--worker", name, "--folder", place]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                times[name].append(json.loads((folder / "seconds.json").read_text()))
                vectors[name] = np.load(folder / "vectors.npy")
                speeds = " ".join(f"{len(sample) / s:7.2f}" for s in times[name][-1])
                print(f"turn {turn} {name:36} {speeds} texts/s", flush=True)
    exact = vectors.get("bertsmith fp32")
    rows = {}
    for name, seen in times.items():
        first, second = (len(sample) / min(turn[n] for turn in seen) for n in (0, 1))
        away = None if exact is None else float(np.abs(vectors[name] - exact).max())
        rows[name] = {"texts_per_second": first, "second_pass": second, "difference_to_fp32": away}
    result = {
        "texts": options.texts,
        "sample": len(sample),
        "tokens": sum(map(len, sample)),
        "turns": options.turns,
        "threads": options.threads,
        "processor": platform.processor() or platform.machine(),
        "versions": versions(),
        "contenders": rows,
        "ratios": ratios(rows),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\n{len(sample)} texts, {result['tokens']:,} tokens, {options.threads} threads")
    for name, row in rows.items():
        print(f"{name:36} {row['texts_per_second']:8.2f} texts/s, again {row['second_pass']:.2f}")
    for versus, ratio in result["ratios"].items():
        print(f"{versus:60} {ratio:5.2f} x")


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """bertsmith against the best batch size of each other, at equal precision and all."""
    best: dict[str, float] = {}
    for name, row in rows.items():
        library = name.partition(",")[0]
        best[library] = max(best.get(library, 0.0), row["texts_per_second"])
    return {
        f"{ours} / {other}": speed / best[other]
        for ours, speed in best.items()
        if ours.startswith("bertsmith")
        for other in best
        if not other.startswith("bertsmith")
    }


if __name__ == "__main__":
    main()
