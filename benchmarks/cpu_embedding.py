"""Embedding texts of mixed length with a BERT-base-sized model on a CPU, side by side.

    python benchmarks/cpu_embedding.py --texts 2000 --sample 200 --rounds 3

All contenders have the same weights, threads and texts (2,000 texts of 5 to 400 words, sorted by
length), and give the mean state of each text. `transformers` and onnxruntime get padded batches
of several sizes, of which the best counts; onnxruntime's graph is fused by its own optimiser, its
int8 model is quantised dynamically. Contenders take turns; a round is one pass over the sample
(every k-th text). The first round, which holds each library's preparation for shapes it has not
seen, is reported by itself, then the median of the others.

onnxruntime and OpenVINO take part where they are installed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--texts", type=int, default=2000)
parser.add_argument("--sample", type=int, default=200, help="texts in a round: every k-th")
parser.add_argument("--rounds", type=int, default=3)
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
from bertsmith.model import prepare  # noqa: E402
from bertsmith.model.pooling import mean  # noqa: E402
from bertsmith.tasks.run import run  # noqa: E402
from bertsmith.tasks.windows import Window  # noqa: E402

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
        compute = lambda hidden, batch, chosen: list(mean(hidden.last.float(), batch.layout))  # noqa: E731
        return torch.stack(run(model, windows, compute, device=torch.device("cpu"))).numpy()

    return job


def contenders(folder: Path) -> Iterator[tuple[str, Job]]:
    checkpoint = create("bert-base-uncased", heads=())
    theirs = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False).eval()
    theirs.load_state_dict(stored_tensors(checkpoint), strict=False)
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        ours = copy.deepcopy(checkpoint.model).to(dtype)
        prepare(ours)
        yield f"bertsmith {name}", flat(ours)
        model = copy.deepcopy(theirs).to(dtype)
        call = lambda ids, mask, model=model: model(ids, mask).last_hidden_state  # noqa: E731
        for size in options.sizes:
            yield f"transformers {name}, batches of {size}", padded(size, call)
    yield from onnx_contenders(theirs, folder)


def onnx_contenders(theirs: Any, folder: Path) -> Iterator[tuple[str, Job]]:
    try:
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.transformers.optimizer import optimize_model
    except ImportError:
        print("onnxruntime is not installed: left out")
        return
    plain, fused, int8 = (str(folder / f"{name}.onnx") for name in ("plain", "fused", "int8"))
    export(theirs, plain)
    optimize_model(plain, model_type="bert", num_heads=12, hidden_size=768).save_model_to_file(
        fused
    )
    quantize_dynamic(plain, int8, weight_type=QuantType.QInt8)
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = options.threads
    for name, file in (("fp32", fused), ("int8", int8)):
        session = onnxruntime.InferenceSession(file, how, providers=["CPUExecutionProvider"])
        kinds = {i.name: "int32" if "int32" in i.type else "int64" for i in session.get_inputs()}

        def call(ids: Any, mask: Any, session: Any = session, kinds: Any = kinds) -> Any:
            given = {"ids": ids.numpy(), "mask": mask.numpy()}
            return session.run(None, {k: given[k].astype(kind) for k, kind in kinds.items()})[0]

        for size in options.sizes:
            yield f"onnxruntime {name}, batches of {size}", padded(size, call)
    try:
        import openvino
    except ImportError:
        print("OpenVINO is not installed: left out")
        return
    core = openvino.Core()
    for name, kind in (("bf16", "bf16"), ("fp32", "f32")):
        settings = {"INFERENCE_NUM_THREADS": options.threads, "INFERENCE_PRECISION_HINT": kind}
        request = core.compile_model(core.read_model(plain), "CPU", settings).create_infer_request()

        def infer(ids: Any, mask: Any, request: Any = request) -> Any:
            return request.infer({"ids": ids.numpy(), "mask": mask.numpy()})[0].copy()

        for size in options.sizes:
            yield f"OpenVINO {name}, batches of {size}", padded(size, infer)


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


def main() -> None:
    texts = drawn_texts(options.texts)
    sample = texts[:: max(1, options.texts // options.sample)]
    times: dict[str, list[float]] = {}
    vectors: dict[str, np.ndarray[Any, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        field = {
            name: job
            for name, job in contenders(Path(folder))
            if not options.only or any(name.startswith(only) for only in options.only)
        }
        for number in range(options.rounds + 1):
            for name, job in field.items():
                start = time.perf_counter()
                vectors[name] = job(sample)
                times.setdefault(name, []).append(time.perf_counter() - start)
                print(
                    f"round {number} {name:36} {len(sample) / times[name][-1]:7.2f} texts/s",
                    flush=True,
                )
    exact = vectors.get("bertsmith fp32")
    rows = {
        name: {
            "first_round_texts_per_second": len(sample) / seen[0],
            "texts_per_second": len(sample) / statistics.median(seen[1:] or seen),
            "largest_difference_to_fp32": None
            if exact is None
            else float(np.abs(vectors[name] - exact).max()),
        }
        for name, seen in times.items()
    }
    result = {
        "texts": options.texts,
        "sample": len(sample),
        "tokens": sum(map(len, sample)),
        "rounds": options.rounds,
        "threads": options.threads,
        "processor": platform.processor() or platform.machine(),
        "versions": versions(),
        "contenders": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\n{len(sample)} texts, {result['tokens']:,} tokens, {options.threads} threads")
    for name, row in rows.items():
        print(f"{name:36} {row['texts_per_second']:8.2f} texts/s   first round "
              f"{row['first_round_texts_per_second']:8.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
