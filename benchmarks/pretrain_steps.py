"""Pre-training steps, side by side with `transformers`: real tokens a second.

    python benchmarks/pretrain_steps.py --kinds replayed --against compiled
    python benchmarks/pretrain_steps.py --kinds compiled --alone --cases 12x768:0:1 \
        modernbert-9x320:0:1 --without norm gelu entropy \
        --out benchmarks/results/gpu_levers.json
    python benchmarks/pretrain_steps.py --kinds replayed --alone --cases 12x256:0:0.7 \
        --without sums tables embedding --out levers.json
    python benchmarks/pretrain_steps.py --device cpu --cases 4x256:0:1 4x256:0:0.7 --tokens 4096 \
        --kinds eager --out benchmarks/results/cpu_pretrain.json

Each contender does whole masked-LM steps with float32 weights and bf16 matrix products
(`transformers` by autocast; forward, backward, clipping, fused AdamW) with the same number of
tokens in a batch. A case is a size, dropout, how full rows are, and how long (128 if not given).
At "70% full", rows of 128 hold 64 to 115 real tokens: `transformers` pads them, bertsmith does not.
Kinds of bertsmith: `eager`; `compiled`, all blocks in one graph; `replayed`, the step of `pretrain`
on one GPU: one CUDA graph, optimizer included; `fp8`, the same in FP8. Those of `transformers`
(--against; the same if not given): `eager`; `compiled`, by torch.compile's defaults; `replayed`,
by its mode reduce-overhead.
DeBERTa has BERT's masked LM head on both sides.
`modernbert-9x320` is the shape of bertsmith-small, with 30% masked and 98,304 tokens, measured
without `transformers`; `deberta-12x768` that of DeBERTa-v3-base with a vocabulary of 30,528.
`--without` also measures bertsmith with one kernel, or one of the other changes to a compiled
model, switched off at a time: `sums` (kernels/graphs.py), `tables` (kernels/lookup.py) and
`embedding` (compiled after its tables).
Contenders take turns in one process; the median of several timed rounds counts. Peak is what a
large bf16 matrix product reaches on this device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.examples import Example
from bertsmith.kernels import graphs
from bertsmith.model import Model, block, embedding, feedforward
from bertsmith.model.heads import EnhancedMaskHead, Head
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.train import compiling
from bertsmith.train.captured import CapturedStep, inputs_of
from bertsmith.train.flops import peak_rate, training_flops
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision
from bertsmith.train.recipe import TrainPart

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tokens", type=int, default=65536, help="tokens in a batch of full rows")
parser.add_argument("--steps", type=int, default=10, help="steps in a round")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--device", default="cuda")
CASES = ["12x768:0:1", "12x256:0:1", "12x768:0:0.7", "12x768:0.1:1", "12x256:0:0.7"]
CASES += ["12x768:0:1:512", "deberta-12x768:0:1", "deberta-12x768:0:0.7"]
parser.add_argument("--cases", nargs="+", default=CASES, help="size:dropout:fill[:length]")
KINDS = ["eager", "compiled", "replayed", "fp8"]
parser.add_argument("--kinds", nargs="+", default=["eager", "compiled"], choices=KINDS)
parser.add_argument("--against", nargs="+", choices=KINDS, help="kinds of transformers")
parser.add_argument("--alone", action="store_true", help="bertsmith only")
parser.add_argument("--without", nargs="*", default=[], help="kernels to switch off, one at a time")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_pretrain.json"))
options = parser.parse_args()
device = torch.device(options.device)
Step = Callable[[], None]


RELATIVE: dict[str, Any] = {
    "model_type": "deberta-v2",
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "max_relative_positions": -1,
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 0,
    "pad_token_id": 0,
}


class Case(NamedTuple):
    """What is measured."""

    size: str
    dropout: float
    fill: float
    length: int = 128

    @classmethod
    def of(cls, text: str) -> Case:
        size, dropout, fill, *length = text.split(":")
        return cls(size, float(dropout), float(fill), *map(int, length))

    @property
    def gated(self) -> bool:
        return self.size.startswith("modernbert-")

    @property
    def rate(self) -> float:
        return 0.3 if self.gated else 0.15

    def lengths(self) -> list[int]:
        """Lengths of rows: all full, or 50% to 90% full."""
        rows = (98304 if self.gated else options.tokens) // self.length
        if self.fill == 1:
            return [self.length] * rows
        least, most = (round(self.length * (self.fill + d)) for d in (-0.2, 0.2))
        return np.random.default_rng(0).integers(least, most, rows).tolist()

    def settings(self) -> dict[str, Any]:
        layers, width = map(int, self.size.rpartition("-")[2].split("x"))
        settings: dict[str, Any] = {
            "model_type": "bert",
            "vocab_size": 30528,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // 64,
            "intermediate_size": 4 * width,
            "max_position_embeddings": 512,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
        }
        if self.gated:
            settings |= {"model_type": "modernbert", "intermediate_size": 768}
            settings |= {"global_attn_every_n_layers": 1, "global_rope_theta": 10_000.0}
        return settings | (RELATIVE if self.size.startswith("deberta-") else {})


# ------------------------------------------------------------------ kernels switched off


def plain_add_norm(
    x: Tensor, inner: Tensor, linear: nn.Module, dropout: nn.Module, norm: nn.Module
) -> tuple[Tensor, Tensor]:
    total = x + dropout(linear(inner))
    return total, norm(total)


def plain_up_gelu(x: Tensor, linear: nn.Module, act: nn.Module, gated: bool = False) -> Tensor:
    if not gated:
        return act(linear(x))
    bent, gate = linear(x).chunk(2, dim=-1)
    return act(bent) * gate


class NoSums(graphs.FuseSums):
    """A pass that changes nothing."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        pass

    def uuid(self) -> Any:
        return "nothing"


KERNELS: dict[str, tuple[Any, str, Any]] = {
    "norm": (block, "add_norm", plain_add_norm),
    "gelu": (feedforward, "up_gelu", plain_up_gelu),
    "entropy": (compiling, "fits_entropy", lambda logits: False),
    "sums": (graphs, "FuseSums", NoSums),
    "tables": (embedding, "small_table", lambda table, ids: F.embedding(ids, table)),
    "embedding": (compiling, "Embedding", ()),
}


def without(kernel: str) -> AbstractContextManager[Any]:
    return patch.object(*KERNELS[kernel]) if kernel else nullcontext()


# ------------------------------------------------------------------ contenders


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.01, fused=True)


def plain_head(model: Model) -> Model:
    """BERT's masked LM head, as in `transformers`, for DeBERTa's enhanced mask decoder."""
    head = model.heads["masked_lm"]
    if isinstance(head, EnhancedMaskHead):
        model.heads["masked_lm"] = Head(head.pool, dict(head.transform.items()), head.output)
    return model


def ours(case: Case, kind: str) -> tuple[Step, int, float]:
    """A step of bertsmith; how many real tokens are in it, and operations a token."""
    compiled = kind != "eager"
    sizes, length = case.lengths(), case.length
    real = sum(sizes)
    spare = -real % 1024 if compiled else 0
    filled = sizes + [length] * (spare // length) + [spare % length] * (spare % length > 0)
    encoder = plain_head(create(case.settings()).model)
    model = MultiObjective(encoder.train(), [MaskedTokens()], {}).to(device)
    if compiled:
        compiling.compile_rows(model, captured=kind in ("replayed", "fp8"), float8=kind == "fp8")
    mixed = Precision.of("bfloat16", device).wrap(model)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (sum(filled),), generator=random)
    rows = torch.randperm(real, generator=random)[: round(case.rate * real)].sort().values
    batch = Batch(ids, torch.zeros_like(ids), Layout.of(filled, most=length))
    example = Example(batch, rows, ids[rows], None, len(sizes), real)
    cost = training_flops(model, length, tokens=real, masked=case.rate)
    if kind in ("replayed", "fp8"):
        return replayed(model, mixed, example), real, cost
    optimizer = optimizer_of(model)
    example = example.to(device)
    counts = model.counts(example)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        loss, *_ = mixed(example, counts)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, real, cost


def replayed(model: MultiObjective, mixed: nn.Module, example: Example) -> Step:
    """The step of `pretrain` on one GPU; what it reads is copied to the device each time."""
    train = TrainPart(learning_rate=1e-4, weight_decay=0.01, precision="bfloat16", compile=True)
    steps = CapturedStep(mixed, optimizer_for(model, train), device, clip=train.clip)
    inputs = inputs_of(example, model.counts(example))

    def step() -> None:
        steps([inputs], 1.0, steps.steps)

    return step


def theirs(case: Case, kind: str) -> tuple[Step, int, float]:
    """A step of transformers, on padded rows."""
    sizes, length = case.lengths(), case.length
    config = transformers.AutoConfig.for_model(**case.settings())
    model: Any = transformers.AutoModelForMaskedLM.from_config(config).to(device).train()
    modes = {"compiled": "default", "replayed": "reduce-overhead"}
    call = model if kind == "eager" else torch.compile(model, mode=modes[kind])
    optimizer = optimizer_of(model)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (len(sizes), length), generator=random)
    mask = (torch.arange(length) < torch.tensor(sizes)[:, None]).long()
    chosen = (torch.rand(ids.shape, generator=random) < case.rate) & (mask > 0)
    labels = ids.masked_fill(~chosen, -100).to(device)
    given: dict[str, Any] = {"input_ids": ids.to(device), "labels": labels}
    if case.fill < 1:
        given["attention_mask"] = mask.to(device)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
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
    for text in options.cases:
        results += compare(Case.of(text), peak)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        store(name, peak, results)


def compare(case: Case, peak: float) -> list[dict[str, Any]]:
    """Rows of all contenders in one case."""
    torch._dynamo.reset()
    contenders: dict[str, tuple[str, Step, int, float]] = {}
    for kind in options.kinds:
        for kernel in ("", *options.without):
            who = f"bertsmith {kind}" + (f" without {kernel}" if kernel else "")
            with without(kernel):
                contenders[who] = (kernel, *started(ours(case, kind)))
    for kind in [] if options.alone or case.gated else options.against or options.kinds:
        contenders[f"transformers {kind}"] = ("", *started(theirs(case, kind)))
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(options.rounds):
        for who, (kernel, step, _, _) in contenders.items():
            with without(kernel):
                times[who].append(timed(step))
    flops = max(made[3] for made in contenders.values())
    rows = []
    for who, (_, _, tokens, _) in contenders.items():
        rate = tokens / statistics.median(times[who])
        rows.append(
            {
                **case._asdict(),
                "contender": who,
                "tokens_per_second": round(rate),
                "share_of_peak": round(rate * flops / peak, 3),
                "seconds": [round(t, 5) for t in times[who]],
            }
        )
        print(
            f"{case.size} dropout {case.dropout} fill {case.fill:.0%} length {case.length} "
            f"{who:32} {rate / 1e3:8.0f} k tokens/s  {rate * flops / peak:.0%} of peak",
            flush=True,
        )
    return rows


def started(made: tuple[Step, int, float]) -> tuple[Step, int, float]:
    for _ in range(3):
        made[0]()
    return made


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
