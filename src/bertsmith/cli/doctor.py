"""`bertsmith doctor`: versions, extras, kernels and speed of this machine."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import typer

from bertsmith import __version__
from bertsmith.cli import shared
from bertsmith.errors import BertsmithError

LIBRARIES = ("torch", "tokenizers", "safetensors", "numpy", "huggingface_hub")
EXTRAS = {
    "analysis": ("sklearn",),
    "excel": ("openpyxl",),
    "corpus": ("ftfy", "py3langid", "pyarrow", "rensa", "zstandard"),
    "search": ("charset_normalizer", "faiss", "pypdf", "docx", "watchfiles"),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
}


def doctor(as_json: shared.Json = False) -> None:
    """Show versions, GPUs, kernels and the speed of this machine."""
    import warnings

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    waiting = Console(stderr=True).status("measuring the speed of this machine")
    with warnings.catch_warnings(), waiting:
        # Of bfloat16 on a CPU without units for it: a page of C++ frames.
        warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
        report = examine()

    def show() -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, text in _facts(report):
            table.add_row(name, Text(text))
        shared.console().print(table, markup=False)

    shared.output(as_json, [report], show)
    if not report["kernels_agree"]:
        shared.note("attention kernels disagree on this machine: please report it")
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """Versions, extras, devices, kernels and speeds of this machine."""
    import platform
    from importlib.metadata import version

    import torch

    from bertsmith.checkpoint import built_in
    from bertsmith.train.precision import has_matrix_units

    cuda = torch.cuda.is_available()
    devices = ["cpu", *(["cuda"] if cuda else [])]
    speeds = {device: _speed(device) for device in devices}
    largest = max(_disagreement(device) for device in devices)
    return {
        "bertsmith": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: version(name) if find_spec(name) else None for name in LIBRARIES},
        "extras": {
            extra: all(find_spec(name) for name in names) for extra, names in EXTRAS.items()
        },
        "models": [*built_in()],
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "bf16_matrix_units": has_matrix_units(),
        "gpus": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
        "kernels": {device: _kernels(device) for device in devices},
        "kernel_disagreement": largest,
        "kernels_agree": largest < 0.02,
        "bfloat16_speedup": {device: round(_bfloat16_speedup(device), 2) for device in devices},
        "compile": _compiler(cuda),
        "tokens_per_second": speeds,
        "fastest_dtype": {device: _fastest(speeds[device]) for device in devices},
    }


def _kernels(device: str) -> dict[str, str]:
    """Which attention kernel is chosen for each dtype; also to train on short texts."""
    import torch

    from bertsmith.model.attend import RelativeBias, Scores, choose

    chosen = {}
    for dtype in (torch.float32, torch.bfloat16):
        query = torch.zeros(1, 1, 64, device=device, dtype=dtype)
        bias = RelativeBias(query, query, torch.zeros(1, dtype=torch.int64, device=device))
        name = str(dtype).removeprefix("torch.")
        chosen[name] = choose(query, Scores(1.0), 0)
        chosen[f"{name} training"] = choose(query, Scores(1.0), 128)
        chosen[f"{name} relative"] = choose(query, Scores(1.0, bias=bias), 0)
    return chosen


def _disagreement(device: str) -> float:
    """The largest difference between the chosen kernel and the reference."""
    import torch

    from bertsmith.batch import Layout
    from bertsmith.model.attend import Scores, attend

    layout = Layout.of([1, 7, 64, 64, 200]).to(device)
    worst = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        q, k, v = (torch.randn(layout.total, 2, 64, dtype=dtype, device=device) for _ in range(3))
        for window in (None, 16):
            scores = Scores(0.125, window)
            chosen = attend(q, k, v, layout, scores).float()
            exact = attend(q.float(), k.float(), v.float(), layout, scores, kernel="reference")
            worst = max(worst, float((chosen - exact).abs().max()))
    return worst


def _bfloat16_speedup(device: str) -> float:
    import torch

    from bertsmith.compare.static import fastest

    def seconds(dtype: torch.dtype) -> float:
        layer = torch.nn.Linear(768, 3072, dtype=dtype, device=device)
        rows = torch.randn(1024, 768, dtype=dtype, device=device)
        return fastest(lambda: layer(rows), device)

    return seconds(torch.float32) / seconds(torch.bfloat16)


def _compiler(cuda: bool) -> str | None:
    """What torch.compile makes its kernels with, if it is here."""
    import shutil

    if cuda:
        return "triton" if find_spec("triton") else None
    return next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def _speed(device: str) -> dict[str, int]:
    """Tokens a second of a BERT-base (estimated from one layer), and of pre-training tiny-bert."""
    import torch

    from bertsmith.batch import Batch
    from bertsmith.checkpoint import create
    from bertsmith.compare.static import fastest
    from bertsmith.cpu import to_int8
    from bertsmith.train import load_recipe, plan

    checkpoint = create("bert-base-uncased", heads=[], num_hidden_layers=1, vocab_size=1000)
    model = checkpoint.model.to(device)
    batch = Batch.of([[5] * 128] * 8).to(device)
    speeds = {}
    for dtype in (torch.float32, torch.bfloat16):
        encoder = model.encoder.to(dtype)
        best = fastest(partial(encoder, batch), device)
        speeds[f"reading, {str(dtype).removeprefix('torch.')}"] = round(len(batch.ids) / best / 12)
    if device == "cpu":
        try:
            to_int8(model.float(), sample=batch)
            with torch.inference_mode():
                best = fastest(partial(model.encoder, batch), device)
            speeds["reading, int8"] = round(len(batch.ids) / best / 12)
        except BertsmithError:
            pass  # the list of extras says what is missing
    training = plan(load_recipe("tiny-bert"), 8000, device)["tokens_per_second"]
    return speeds | {"pre-training, tiny-bert": round(training)}


def _fastest(speeds: dict[str, int]) -> str:
    """The data type in which a model reads the most tokens a second."""
    reading = {job: speed for job, speed in speeds.items() if job.startswith("reading")}
    return max(reading, key=lambda job: reading[job]).removeprefix("reading, ")


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "bertsmith", f"{report['bertsmith']}, Python {report['python']}"
    yield "platform", report["platform"]
    for name, number in report["libraries"].items():
        yield name, number or "missing"
    for extra, there in report["extras"].items():
        hint = "installed" if there else f"not installed: pip install 'bertsmith[{extra}]'"
        yield f"extra {extra}", hint
    yield "built-in models", ", ".join(report["models"]) or "none"
    units = ", bf16 matrix units" if report["bf16_matrix_units"] else ""
    yield "cpu", f"{report['cpu_capability']}, threads: {report['threads']}{units}"
    yield "gpu", ", ".join(report["gpus"]) or "none"
    for device, chosen in report["kernels"].items():
        first, *others = set(chosen.values())
        each = ", ".join(f"{name}: {kernel}" for name, kernel in chosen.items())
        yield f"attention on {device}", each if others else first
    agree = "agree" if report["kernels_agree"] else "DISAGREE"
    yield "kernels", f"{agree} (largest difference in bfloat16 {report['kernel_disagreement']:.1e})"
    for device, ratio in report["bfloat16_speedup"].items():
        advice = 'use dtype="bfloat16" for speed' if ratio > 1.5 else "stay with float32"
        yield f"bfloat16 on {device}", f"{ratio:.1f} x float32: {advice}"
    missing = "needs triton" if report["gpus"] else "needs a C++ compiler; all runs without"
    yield "torch.compile", f"with {report['compile']}" if report["compile"] else missing
    for device, speeds in report["tokens_per_second"].items():
        yield f"fastest on {device}", f"dtype={_fastest(speeds)}"
        for job, speed in speeds.items():
            model = "a BERT-base, " if job.startswith("reading") else ""
            yield f"speed on {device}", f"{model}{job}: about {speed:,.0f} tokens/s"
