"""Forward throughput on one GPU: the same ragged batch through bertsmith and `transformers`.

    python benchmarks/gpu_forward.py --out benchmarks/results/gpu_forward.json

Both run in bfloat16. `transformers` gets the batch in two ways: padded to its longest sequence
at once, and sorted by length into padded batches of 32; each also compiled. Times are medians
of interleaved repeats. Before timing, outputs are compared, and kernels are checked forward
and backward against the written-out reference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import bertsmith
from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.checkpoint.write import stored_tensors
from bertsmith.kernels import distance_rows
from bertsmith.model.attend import RelativeBias, Scores, attend

CLASSES = {
    "bert-base-uncased": "BertModel",
    "modernbert-base": "ModernBertModel",
    "deberta-v3-base": "DebertaV2Model",
    "electra-small": "ElectraModel",
}


def kernels_agree() -> dict[str, float]:
    """Largest difference to the reference in float32, forward and backward, on this GPU."""
    torch.manual_seed(0)
    layout = Layout.of([1, 2, 7, 64, 64, 129, 300, 511, 512]).to("cuda")
    tables = [torch.randn(512, 4, 64, device="cuda") / 8 for _ in range(2)]
    bias = RelativeBias(*tables, distance_rows(512, 256, 256, 512).cuda())
    worst = {}
    for kind, window, relative in (
        ("full", None, None),
        ("local", 64, None),
        ("relative", None, bias),
    ):
        scores = Scores(0.125, window, relative)
        inputs = [torch.randn(layout.total, 4, 64, device="cuda") for _ in range(3)]
        push = torch.randn_like(inputs[0])
        exact = gradients(inputs, layout, scores, "reference", push)
        names, dtypes = ("runs", "grouped"), (torch.float32, torch.bfloat16)
        kernels = [(name, dtype) for name in names for dtype in dtypes]
        ragged = "varlen" if relative is None else "relative"
        kernels += [(ragged, torch.bfloat16), (ragged, torch.float16)]
        for kernel, dtype in kernels:
            cast = [x.to(dtype) for x in inputs]
            how = scores
            if relative is not None:
                how = Scores(0.125, window, RelativeBias(*(t.to(dtype) for t in tables), bias.rows))
            found = gradients(cast, layout, how, kernel, push.to(dtype))
            pairs = zip(found, exact, strict=True)
            difference = max(float((a.float() - b).abs().max()) for a, b in pairs)
            worst[f"{kind}, {kernel}, {str(dtype)[6:]}"] = difference
    return worst


def gradients(
    inputs: list[Tensor], layout: Layout, scores: Scores, kernel: str, push: Tensor
) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = attend(*leaves, layout, scores, kernel=kernel)
    out.backward(push)
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def pair_of_models(name: str) -> tuple[Any, Any]:
    """Our model and theirs with the same random weights."""
    checkpoint = create(name, heads=())
    config = transformers.AutoConfig.for_model(**checkpoint.settings)
    theirs = getattr(transformers, CLASSES[name])(config)
    theirs.load_state_dict(stored_tensors(checkpoint), strict=False)
    return checkpoint.model.encoder.cuda().eval(), theirs.cuda().eval()


def padded(ids: list[list[int]], pad: int) -> dict[str, Tensor]:
    longest = max(map(len, ids))
    rows = torch.tensor([row + [pad] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return {"input_ids": rows.cuda(), "attention_mask": mask.cuda()}


def timed(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median milliseconds of each, interleaved."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        for _ in range(3):
            run()
    for _ in range(repeats):
        for name, run in contenders.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            seen[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(times) for name, times in seen.items()}


def measure(name: str, sequences: int, repeats: int, compiled: bool) -> dict[str, Any]:
    ours, theirs = pair_of_models(name)
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, 513, (sequences,), generator=random).tolist()
    ids = [torch.randint(1000, 30000, (n,), generator=random).tolist() for n in lengths]
    pad = theirs.config.pad_token_id or 0
    with torch.inference_mode():
        few = Batch.of(ids[:8]).to("cuda")
        expected = theirs(**padded(ids[:8], pad)).last_hidden_state
        rows = zip(few.layout.split(ours(few).last), expected, strict=True)
        difference = max(float((mine - row[: len(mine)]).abs().max()) for mine, row in rows)
    ours, theirs = ours.bfloat16(), theirs.bfloat16()
    batch = Batch.of(sorted(ids, key=len)).to("cuda")
    whole = padded(ids, pad)
    sorted_ids = sorted(ids, key=len)
    parts = [padded(sorted_ids[i : i + 32], pad) for i in range(0, sequences, 32)]
    contenders: dict[str, Callable[[], Any]] = {
        "bertsmith": lambda: ours(batch),
        "transformers, one padded batch": lambda: theirs(**whole),
        "transformers, sorted batches of 32": lambda: [theirs(**part) for part in parts],
    }
    if compiled and "deberta" not in name:  # not measured yet: compiling takes minutes
        fast = torch.compile(ours, dynamic=True)
        their_fast = torch.compile(theirs, dynamic=True)
        contenders["bertsmith, compiled"] = lambda: fast(batch)
        contenders["transformers, one padded batch, compiled"] = lambda: their_fast(**whole)
        contenders["transformers, sorted, compiled"] = lambda: [their_fast(**p) for p in parts]
    with torch.inference_mode():
        milliseconds = timed(contenders, repeats)
    tokens = sum(lengths)
    return {
        "model": name,
        "sequences": sequences,
        "tokens": tokens,
        "fill": tokens / (sequences * max(lengths)),
        "largest_difference_float32": difference,
        "milliseconds": milliseconds,
        "tokens_per_second": {k: tokens / v * 1000 for k, v in milliseconds.items()},
        "ratio": {
            k: v / milliseconds["bertsmith"] for k, v in milliseconds.items() if k != "bertsmith"
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_forward.json"))
    parser.add_argument("--models", nargs="+", default=list(CLASSES))
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    result: dict[str, Any] = {
        "bertsmith": bertsmith.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gpu": torch.cuda.get_device_name(),
        "kernel_differences": kernels_agree(),
        "models": [],
    }
    for kind, difference in result["kernel_differences"].items():
        print(f"{kind:32} {difference:.1e}", flush=True)
    for name in options.models:
        done = measure(name, options.sequences, options.repeats, options.compile)
        result["models"].append(done)
        print(f"\n{name}: {done['tokens']:,} tokens, {done['fill']:.0%} full, float32 difference "
              f"{done['largest_difference_float32']:.1e}")  # fmt: skip
        for kind, speed in done["tokens_per_second"].items():
            ratio = done["ratio"].get(kind)
            print(f"  {kind:42} {speed:12,.0f} tokens/s" + (f"  {ratio:5.2f} x" if ratio else ""))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
