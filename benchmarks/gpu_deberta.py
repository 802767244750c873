"""Attention with relative positions on one GPU: errors, and the time of each kernel.

    python benchmarks/gpu_deberta.py --tilings 64,128,4 128,64,8 32,128,8

Errors are relative L2 distances to the written-out reference in float64, of outputs and gradients,
beside those of the reference in the same precision; the largest over all shapes counts. Times are
those of one layer of DeBERTa-v3-base in bfloat16: each kernel by itself, and whole calls of
`relative` and `grouped`, which includes the launches. `--tilings` (queries, keys, warps) replaces
the default tiles of sequences longer than 128. Whole models:
`gpu_forward.py --models deberta-v3-base` and
`pretrain_steps.py --cases deberta-12x768:0:1`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import bertsmith
from bertsmith.batch import Layout
from bertsmith.kernels import bands, distance_rows
from bertsmith.kernels.bands import Tiling
from bertsmith.model.attend import RelativeBias, Scores, attend

HALVES = (torch.bfloat16, torch.float16)
SHAPES: list[tuple[list[int], int, str]] = [  # lengths, width of a head, terms
    ([1], 64, "both"),
    ([7, 16, 1, 30, 12], 64, "both"),
    ([33, 64, 50], 32, "both"),
    *(([127, 1, 128, 65, 90], 64, terms) for terms in ("both", "keys", "queries")),
    *(([512, 1, 300, 64], 64, terms) for terms in ("both", "keys", "queries")),
    ([257, 12], 32, "both"),
]


def inputs(
    lengths: list[int], width: int, terms: str, dtype: torch.dtype, heads: int = 12
) -> tuple[Layout, Tensor, Scores]:
    torch.manual_seed(0)
    layout = Layout.of(lengths).to("cuda")
    rows = torch.randn(layout.total, 3, heads, width, device="cuda").to(dtype).requires_grad_()
    keys, queries = (
        torch.randn(512, heads, width, device="cuda").to(dtype).requires_grad_() for _ in range(2)
    )
    distances = distance_rows(layout.longest, 256, 256, 512).cuda()
    bias = RelativeBias(
        None if terms == "queries" else keys, None if terms == "keys" else queries, distances
    )
    return layout, rows, Scores((3 * width) ** -0.5, bias=bias)


def leaves(rows: Tensor, scores: Scores) -> list[Tensor]:
    """Tensors that have gradients."""
    assert scores.bias is not None
    return [rows, *(table for table in scores.bias[:2] if table is not None)]


def results(layout: Layout, rows: Tensor, scores: Scores, kernel: str) -> list[Tensor]:
    """The output, and the gradients of rows and tables."""
    out = attend(*rows.unbind(1), layout, scores, kernel=kernel, joint=rows)
    random = torch.Generator("cuda").manual_seed(1)
    push = torch.randn(out.shape, device="cuda", generator=random).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves(rows, scores), push)]


def double(layout: Layout, rows: Tensor, scores: Scores) -> tuple[Layout, Tensor, Scores]:
    assert scores.bias is not None
    copies = (None if x is None else x.detach().double().requires_grad_() for x in scores.bias[:2])
    bias = RelativeBias(*copies, scores.bias.rows)
    return layout, rows.detach().double().requires_grad_(), scores._replace(bias=bias)


def errors() -> dict[str, Any]:
    """The largest error of outputs and gradients by dtype, for kernel and reference."""
    worst: dict[str, Any] = {}
    for dtype in (*HALVES, torch.float32):
        for lengths, width, terms in SHAPES:
            case = inputs(lengths, width, terms, dtype, heads=4)
            exact = results(*double(*case), "reference")
            found, again = (results(*case, "relative") for _ in range(2))
            written = results(*case, "reference")
            for place, right in enumerate(exact):
                label = f"{str(dtype)[6:]}, {['output', 'rows', 'table', 'table'][place]}"
                size = float(right.norm()) + 1e-9 * right.numel() ** 0.5
                mine, theirs = (
                    float((x[place].double() - right).norm()) / size for x in (found, written)
                )
                row = worst.setdefault(label, {"relative": 0.0, "repeatable": True})
                row["repeatable"] &= torch.equal(found[place], again[place])
                if mine > row["relative"]:
                    row |= {"relative": mine, "reference": theirs}
                    row["shape"] = f"{terms} {lengths} x {width}"
    return worst


def clocked(run: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of a call."""
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times), 3)


def profiled(run: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of each kernel in one call, from 0.05 ms on."""
    run()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    spent = {event.key: event.device_time_total / 1000 for event in seen.key_averages()}
    rows = sorted(spent.items(), key=lambda row: -row[1])
    return {name[:60]: round(time, 4) for name, time in rows if time >= 0.05}


def measured(lengths: list[int], tilings: list[Tiling], repeats: int) -> dict[str, Any]:
    """Milliseconds forward and backward, of kernels and of whole calls."""
    layout, rows, scores = inputs(sorted(lengths), 64, "both", torch.bfloat16)
    wanted, push = leaves(rows, scores), torch.randn_like(rows[:, 0])

    def forward(kernel: str = "relative") -> Tensor:
        return attend(*rows.unbind(1), layout, scores, kernel=kernel, joint=rows)

    def backward(out: Tensor) -> Any:
        return torch.autograd.grad(out, wanted, push, retain_graph=True)

    def calls(kernel: str = "relative") -> list[float]:
        out = forward(kernel)
        return [clocked(lambda: forward(kernel), repeats), clocked(lambda: backward(out), repeats)]

    out = forward()
    row = {"forward": profiled(forward), "backward": profiled(lambda: backward(out))}
    row["calls"] = {kernel: calls(kernel) for kernel in ("relative", "grouped")}
    for tiling in tilings:
        with patch.object(bands, "tiling", return_value=tiling):
            row["calls"][f"relative {tuple(tiling)}"] = calls()
    return row


def times(tilings: list[Tiling], repeats: int) -> dict[str, Any]:
    """The times of each kind of batch, 65,536 tokens or a little less."""
    random = torch.Generator().manual_seed(0)
    cases = {
        "512 rows of 128": [128] * 512,
        "512 rows of 64 to 114": torch.randint(64, 115, (512,), generator=random).tolist(),
        "128 rows of 512": [512] * 128,
        "256 rows of 8 to 512": torch.randint(8, 513, (256,), generator=random).tolist(),
    }
    table: dict[str, Any] = {}
    for name, lengths in cases.items():
        table[name] = measured(lengths, tilings, repeats)
        print(name, json.dumps(table[name], indent=1), flush=True)
        torch.cuda.empty_cache()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_deberta.json"))
    parser.add_argument("--tilings", nargs="*", default=[], help="queries,keys,warps")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    result: dict[str, Any] = {
        "bertsmith": bertsmith.__version__,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "errors": errors(),
    }
    print(json.dumps(result, indent=1), flush=True)
    tilings = [Tiling(*map(int, text.split(","))) for text in options.tilings]
    result["milliseconds"] = times(tilings, options.repeats)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
