"""Compiled and replayed training steps on one GPU beside the same steps computed plainly.

    python benchmarks/gpu_check.py
    python benchmarks/gpu_check.py --models deberta-v3 --out benchmarks/results/gpu_check.json

`compiled`: gradients of ragged batches in bfloat16, compiled as `pretrain` compiles them, must be
as close to those in float32 as uncompiled ones are, and new lengths must not compile again.
`fp8`: the same in FP8, whose gradients may be off by 15% and losses by 0.02; FP8 matrices must be
equal to their transposed copies, and to casts of the same in bfloat16 but for rounding.
`replayed`: the losses of 16 steps with CUDA graphs, of three lengths, in bfloat16 and FP8, beside
those of the same steps without; with dropout they may differ, since graphs draw other random
numbers. All three change from rows of 128 to full rows of 512. Models have three layers of 256.
Prints a line for each check, also for one that raises an exception; exits with 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.examples import Example
from bertsmith.kernels import float8, fused
from bertsmith.kernels.float8 import has_float8
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.train.captured import CapturedStep, Inputs, inputs_of
from bertsmith.train.compiling import compile_rows, reads_boundaries
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision
from bertsmith.train.recipe import TrainPart

TOKENS, VOCABULARY = 4096, 2048
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "initializer_range": 0.05,
}
RELATIVE = {**SHAPE, "relative_attention": True, "position_biased_input": False}
RELATIVE |= {"type_vocab_size": 0}
V3 = {
    **RELATIVE,
    "model_type": "deberta-v2",
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "position_buckets": 64,
    "norm_rel_ebd": "layer_norm",
    "max_relative_positions": -1,
}
V1 = {"model_type": "deberta", "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 128}
MODELS: dict[str, dict[str, Any]] = {
    "bert": {**SHAPE, "model_type": "bert"},
    "modernbert": {**SHAPE, "model_type": "modernbert", "local_attention": 64},
    "deberta-v1": {**RELATIVE, **V1},
    "deberta-v3": V3,
    "deberta-v2-convolution": {**V3, "conv_kernel_size": 3, "conv_act": "gelu"},
    "mpnet": {**SHAPE, "model_type": "mpnet", "max_position_embeddings": 514},
}
HOST = {"mpnet"}  # attention needs the lengths on the host: steps are not replayed
Gradients = dict[str, Tensor]


class Checks:
    """What was checked so far."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def __call__(self, what: str, good: bool, **found: Any) -> None:
        self.rows.append({"check": what, "good": bool(good), **found})
        detail = ", ".join(f"{name} {value}" for name, value in found.items())
        print("ok  " if good else "FAIL", what, f"({detail})" if detail else "", flush=True)

    def run(self, what: str, test: Callable[..., None], *given: Any) -> None:
        """Run one test; an exception is a failed check, and later tests still run."""
        torch._dynamo.reset()
        try:
            test(*given, self)
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises
            traceback.print_exc()
            self(what, False, error=f"{type(error).__name__}: {str(error)[:300]}")


def example(seed: int, longest: int, full: bool = False) -> Example:
    """4,096 random tokens in sequences of several lengths or all full, 600 of them masked."""
    random = torch.Generator().manual_seed(seed)
    lengths, left = list[int](), TOKENS
    least = longest if full else longest // 4
    while left:
        drawn = int(torch.randint(least, longest + 1, (1,), generator=random))
        lengths.append(min(left, drawn))
        left -= lengths[-1]
    ids = torch.randint(5, VOCABULARY, (TOKENS,), generator=random)
    rows = torch.randperm(TOKENS, generator=random)[:600].sort().values
    batch = Batch(ids, torch.zeros_like(ids), Layout.of(lengths, most=longest))
    return Example(batch, rows, ids[rows], None, len(lengths), TOKENS)


def learner_of(settings: dict[str, Any], device: torch.device, dropout: float = 0.0) -> Any:
    names = ["hidden_dropout_prob", "attention_probs_dropout_prob"]
    if settings["model_type"] == "modernbert":
        names = ["embedding_dropout", "attention_dropout", "mlp_dropout"]
    model = create({**settings, **dict.fromkeys(names, dropout)}, seed=0).model
    return MultiObjective(model.train(), [MaskedTokens()], {}).to(device)


# ------------------------------------------------------------------ compiled


def gradients(module: nn.Module, learner: Any, one: Example) -> tuple[float, Gradients]:
    learner.zero_grad(set_to_none=True)
    torch.compiler.cudagraph_mark_step_begin()
    device = next(learner.parameters()).device
    loss, _ = module(one.to(device), learner.counts(one))
    loss.backward()
    named = learner.named_parameters()
    return float(loss), {n: p.grad.float().clone() for n, p in named if p.grad is not None}


def distance(found: Gradients, exact: Gradients) -> float:
    """The largest relative L2 distance of a parameter's gradient."""
    if found.keys() != exact.keys():
        return float("inf")
    total = torch.stack([gradient.norm() for gradient in exact.values()]).norm()
    gaps = [(found[n] - g).norm() / (g.norm() + 0.01 * total) for n, g in exact.items()]
    return float(torch.stack(gaps).max())  # NaN if one is


def check_compiled(name: str, device: torch.device, check: Checks) -> None:
    """Gradients in bfloat16, compiled and not, beside float32."""
    fast, plain = (learner_of(MODELS[name], device) for _ in range(2))
    on_device = reads_boundaries(fast)
    check(f"{name}: attention reads boundaries on the device", on_device is (name not in HOST))
    half, eager = (Precision.of("bfloat16", device).wrap(part) for part in (fast, plain))
    compile_rows(fast)
    compiled = list[int]()
    counters = torch._dynamo.utils.counters
    counters.clear()
    for seed, longest in enumerate([128, 128, 128, 256, 256, 256, 256, 512]):
        one = example(seed, longest, full=seed >= 6)
        _, exact = gradients(plain, plain, one)
        usual = gradients(eager, plain, one)
        found = gradients(half, fast, one)
        errors = distance(found[1], exact), distance(usual[1], exact)
        near = abs(found[0] - usual[0]) < 0.02
        check(
            f"{name}: compiled, batch {seed} of length {longest}",
            near and errors[0] < 1.5 * errors[1] + 0.01,
            error=round(errors[0], 4),
            uncompiled=round(errors[1], 4),
        )
        compiled.append(counters["stats"]["unique_graphs"])
    again = compiled[2] - compiled[1] + compiled[5] - compiled[4]
    check(f"{name}: other lengths are not compiled again", not again, graphs=compiled)
    breaks = dict(counters["graph_break"])
    check(f"{name}: no graph breaks", not breaks, breaks=str(breaks)[:200])


def check_float8(name: str, device: torch.device, check: Checks) -> None:
    """Gradients in FP8 beside float32."""
    fast, plain = (learner_of(MODELS[name], device) for _ in range(2))
    compile_rows(fast, float8=True)
    module = Precision.of("fp8", device).wrap(fast)
    for seed, longest in enumerate([128, 512, 256, 256]):
        one = example(seed, longest, full=seed in (1, 3))
        expected, exact = gradients(plain, plain, one)
        loss, found = gradients(module, fast, one)
        error = distance(found, exact)
        check(
            f"{name}: fp8, batch of length {longest}",
            abs(loss - expected) < 0.02 and error < 0.15,
            error=round(error, 4),
            loss=round(loss - expected, 4),
        )


def check_copies(device: torch.device, check: Checks) -> None:
    """FP8 matrices beside their transposed copies and the same in bfloat16."""
    random = torch.Generator(device).manual_seed(0)
    x, grad, bias = (
        torch.randn(*size, device=device, generator=random).bfloat16()
        for size in ((TOKENS, 1536), (TOKENS, 1536), (1536,))
    )
    scale = torch.tensor(4.0, device=device)
    results: dict[str, tuple[Any, Tensor]] = {
        "cast": (float8.to_float8(x, scale, False), x),
        "cast and sum": (float8.to_float8_and_sum(x, scale), x),
    }
    for gated in (False, True):
        half = grad[:, : 1536 // (1 + gated)]
        name = "gated GELU" if gated else "GELU"
        given = (x, bias, gated)
        results[name] = float8.gelu_float8(*given, scale), fused._gelu(*given)
        back = float8.gelu_back_float8(half, *given, scale), fused._gelu_back(half, *given)[0]
        results[f"{name}, backward"] = back
    for name, ((rows, columns, *_), plain) in results.items():
        same = float((rows.float() == (plain * scale).to(rows.dtype).float()).float().mean())
        turned = torch.equal(columns.float(), rows.float().T)
        check(f"fp8: {name}", turned and same > 0.9, equal=round(same, 4), transposed=turned)


# ------------------------------------------------------------------ replayed


class Plain(CapturedStep):
    """The same steps without graphs."""

    def _run(self, one: Inputs, numbers: list[Tensor]) -> None:
        self._compute([(one.build, self._moved(one.tensors))], *self._moved(numbers))
        self.optimizer.clear()


def check_replayed(
    name: str, device: torch.device, precision: str, dropout: float, check: Checks
) -> None:
    """Losses of 16 steps with and without graphs, both compiled."""
    what = f"{name}: {precision}, dropout {dropout}"
    losses = list[list[float]]()
    for kind in (Plain, CapturedStep):
        torch._dynamo.reset()
        learner = learner_of(MODELS[name], device, dropout)
        compile_rows(learner, captured=True, float8=precision == "fp8")
        module = Precision.of(precision, device).wrap(learner)
        train = TrainPart(learning_rate=1e-3)
        step = kind(module, optimizer_for(learner, train), device, read=4)
        rows = []
        for number, longest in enumerate([128] * 8 + [512] * 4 + [64] * 4):
            one = example(number % 2, longest, full=longest == 512)
            rows += step([inputs_of(one, learner.counts(one))], 1.0, number)
        rows += step.finish()
        losses.append([row.loss for row in rows])
        if kind is CapturedStep:
            check(f"{what}: steps are replayed", step.graphs >= 3, graphs=step.graphs)
            check(f"{what}: no step is skipped", not any(row.skipped for row in rows))
    gap = float((torch.tensor(losses[0]) - torch.tensor(losses[1])).abs().max())  # NaN if one is
    check(
        f"{what}: losses of replayed steps",
        gap < (0.2 if dropout else 0.02),
        gap=round(gap, 5),
        first=round(losses[1][0], 3),
        last=round(losses[1][-1], 3),
    )


def main() -> None:
    """Check all models and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_check.json"))
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    device, check = torch.device(options.device), Checks()
    precisions = ["bfloat16", "fp8"] if has_float8(device) else ["bfloat16"]
    if has_float8(device):
        check.run("fp8: copies", check_copies, device)
    for name in options.models:
        check.run(f"{name}: compiled", check_compiled, name, device)
        if has_float8(device) and name not in HOST:
            check.run(f"{name}: fp8", check_float8, name, device)
        for precision in precisions if name not in HOST else ():
            for dropout in (0.0, 0.1):
                test = (check_replayed, name, device, precision, dropout)
                check.run(f"{name}: {precision}, dropout {dropout}", *test)
    where = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    found = {"device": where, "torch": torch.__version__, "checks": check.rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    failed = sum(not row["good"] for row in check.rows)
    print(f"{failed} of {len(check.rows)} checks failed" if failed else "all good")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
