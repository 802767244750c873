"""Pre-training steps, side by side with `transformers`: real tokens a second.

    python benchmarks/pretrain_steps.py
    python benchmarks/pretrain_steps.py --device cpu --cases 4x256:0:1 4x256:0:0.7 --rows 32 \
        --kinds eager --out benchmarks/results/cpu_pretrain.json

Each contender does whole masked-LM steps with float32 weights and bf16 products (`transformers`
by autocast; forward, backward, clipping, fused AdamW) with the same number of tokens in a batch.
A case is a size, dropout and how full rows are. At "70% full", rows of 128 hold 64 to 115 real
tokens: `transformers` pads them, bertsmith does not.
Contenders take turns in one process; the median of several timed rounds counts. Peak is what a
wide bf16 matrix product reaches here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.examples import Example
from bertsmith.objectives import MaskedTokens, Together
from bertsmith.train.compiling import compile_rows
from bertsmith.train.flops import peak_rate, training_flops
from bertsmith.train.precision import Halved

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=512, help="rows of 128 tokens in a batch")
parser.add_argument("--steps", type=int, default=10, help="steps in a round")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--device", default="cuda")
CASES = ["12x768:0:1", "12x768:0:0.7", "12x256:0:1", "12x768:0.1:1", "12x256:0:0.7"]
parser.add_argument("--cases", nargs="+", default=CASES, help="size:dropout:how full rows are")
parser.add_argument("--kinds", nargs="+", default=["eager", "compiled"])
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_pretrain.json"))
options = parser.parse_args()
LENGTH, RATE = 128, 0.15
device = torch.device(options.device)
Step = Callable[[], None]


def lengths(fill: float) -> list[int]:
    """Lengths of rows: all full, or 50% to 90% full."""
    if fill == 1:
        return [LENGTH] * options.rows
    draw = np.random.default_rng(0)
    return draw.integers(
        round(LENGTH * (fill - 0.2)), round(LENGTH * (fill + 0.2)), options.rows
    ).tolist()


def settings(size: str, dropout: float) -> dict[str, Any]:
    layers, width = map(int, size.split("x"))
    return {
        "model_type": "bert",
        "vocab_size": 30528,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.01, fused=True)


def ours(size: str, dropout: float, fill: float, compiled: bool) -> tuple[Step, int, float]:
    """A step of bertsmith; how many real tokens are in it, and operations a token."""
    sizes = lengths(fill)
    real = sum(sizes)
    spare = -real % 1024 if compiled else 0
    filled = sizes + [LENGTH] * (spare // LENGTH) + [spare % LENGTH] * (spare % LENGTH > 0)
    checkpoint = create(settings(size, dropout))
    together = Together(checkpoint.model.train(), [MaskedTokens()], {}).to(device)
    if compiled:
        compile_rows(together)
    optimizer = optimizer_of(together)
    halved = Halved(together)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (sum(filled),), generator=random)
    rows = torch.randperm(real, generator=random)[: round(RATE * real)].sort().values
    batch = Batch(ids, torch.zeros_like(ids), Layout.of(filled, most=LENGTH))
    example = Example(batch, rows, ids[rows], None, len(sizes), real).to(device)
    counts = together.counts(example)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        loss, _ = halved(example, counts)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(together.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, real, training_flops(together, LENGTH)


def theirs(size: str, dropout: float, fill: float, compiled: bool) -> tuple[Step, int, float]:
    """A step of transformers, on padded rows."""
    sizes = lengths(fill)
    config = {k: v for k, v in settings(size, dropout).items() if k != "model_type"}
    model: Any = transformers.BertForMaskedLM(transformers.BertConfig(**config)).to(device).train()
    call = torch.compile(model) if compiled else model
    optimizer = optimizer_of(model)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (options.rows, LENGTH), generator=random)
    mask = (torch.arange(LENGTH) < torch.tensor(sizes)[:, None]).long()
    chosen = (torch.rand(ids.shape, generator=random) < RATE) & (mask > 0)
    labels = ids.masked_fill(~chosen, -100).to(device)
    given: dict[str, Any] = {"input_ids": ids.to(device), "labels": labels}
    if fill < 1:
        given["attention_mask"] = mask.to(device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = call(**given).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, sum(sizes), 0.0


def settle() -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Step) -> float:
    settle()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    settle()
    return (time.perf_counter() - began) / options.steps


def main() -> None:
    torch.set_float32_matmul_precision("high")
    peak = peak_rate("bfloat16", device.type)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(
        f"{name}: peak {peak / 1e12:.0f} TFLOP/s, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        flush=True,
    )
    results: list[dict[str, Any]] = []
    for case in options.cases:
        size, *numbers = case.split(":")
        dropout, fill = map(float, numbers)
        results += compare(size, dropout, fill, peak)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        store(name, peak, results)


def compare(size: str, dropout: float, fill: float, peak: float) -> list[dict[str, Any]]:
    """Rows of all contenders in one case."""
    torch._dynamo.reset()
    contenders: dict[str, tuple[Step, int, float]] = {}
    for how in options.kinds:
        for library, make in (("bertsmith", ours), ("transformers", theirs)):
            made = make(size, dropout, fill, how == "compiled")
            contenders[f"{library} {how}"] = made
            for _ in range(3):
                made[0]()
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(options.rounds):
        for who, (step, _, _) in contenders.items():
            times[who].append(timed(step))
    flops = max(made[2] for made in contenders.values())
    rows = []
    for who, (_, tokens, _) in contenders.items():
        rate = tokens / statistics.median(times[who])
        rows.append(
            {
                "size": size,
                "dropout": dropout,
                "fill": fill,
                "contender": who,
                "tokens_per_second": round(rate),
                "share_of_peak": round(rate * flops / peak, 3),
                "seconds": [round(t, 5) for t in times[who]],
            }
        )
        print(
            f"{size} dropout {dropout} fill {fill:.0%} {who:24} "
            f"{rate / 1e3:8.0f} k tokens/s  {rate * flops / peak:.0%} of peak",
            flush=True,
        )
    return rows


def store(name: str, peak: float, results: list[dict[str, Any]]) -> None:
    written = {
        "device": name,
        "peak": peak,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "results": results,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(written, indent=1) + "\n")


main()
