"""Published sizes without training: parameters, operations, memory and speed; their page."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.checkpoint.checkpoint import configure
from bertsmith.cpu import to_int8
from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.families import family_of, preset, presets
from bertsmith.model import Model, build
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.pages import ChartPoint, page, point_chart, short, table
from bertsmith.train import flops

LENGTH, BATCH, RATE = 128, 8, 0.15
VOCABULARY = 1024  # of models whose speed is measured: lookups take no time
LARGEST = 300e6  # FLOPs per token of a model whose speed is measured
REPEATS, SECONDS = 3, 1.0  # of one measurement


@dataclass(frozen=True)
class Counts:
    """What a size costs. Memory is for float32 and `BATCH` sequences of `LENGTH` tokens."""

    name: str
    family: str
    parameters: int  # of the encoder, with its pooler where the family has one
    flops: float  # forward, for each token
    training_flops: float  # forward and backward of masked LM, for each token
    training_memory: int
    inference_memory: int
    tokens_per_second: float | None = None  # measured here
    latency: float | None = None  # milliseconds for one sequence


def count_preset(name: str) -> Counts:
    """What a published size costs, without measuring speed."""
    if name not in presets():
        near = nearest(name, presets())
        sizes = setting_name("presets()", option="--static")
        raise BertsmithError(f"unknown size {name!r}{near}; {sizes} lists them")
    family = family_of(preset(name))
    pooler = ["pooler"] * any(entry.kind == "pooler" for entry in family.heads)
    encoder = create(name, heads=pooler, device="meta").model
    trained = create(name, heads=["masked_lm"], device="meta").model
    learner, tokens = MultiObjective(trained, [MaskedTokens()], {}), BATCH * LENGTH
    return Counts(
        name,
        family.name,
        flops.parameters_of(encoder),
        flops.encoder_flops(encoder.encoder, LENGTH, BATCH) / tokens,
        flops.training_flops(learner, LENGTH, tokens=tokens, masked=RATE),
        flops.training_memory(learner, micro_tokens=tokens, masked=RATE),
        flops.inference_memory(encoder, tokens=tokens),
    )


def compare_presets(
    names: Iterable[str] = (),
    *,
    speed: bool = True,
    device: str = "cpu",
    largest: float = LARGEST,
    int8: bool = False,
) -> Iterator[Counts]:
    """Counts of published sizes, by default of all, one after the other.

    With `speed`, models of at most `largest` FLOPs per token run here with random weights; sizes
    that differ only in their vocabulary are measured once. With `int8`, they run in int8.
    """
    measured: dict[str, tuple[float, float]] = {}
    for counts in [count_preset(name) for name in (tuple(names) or presets())]:
        if not speed or counts.flops > largest:
            yield counts
            continue
        settings = {**preset(counts.name), "vocab_size": VOCABULARY}
        shape = repr(configure(family_of(settings), settings, {}))
        if shape not in measured:
            model = build(configure(family_of(settings), settings, {}))
            random = torch.Generator().manual_seed(0)
            for parameter in model.parameters():
                nn.init.uniform_(parameter, -0.02, 0.02, generator=random)
            if int8:
                to_int8(model, sample=Batch.of([range(100)]))
            measured[shape] = measure(model, device)
        tokens_per_second, latency = measured[shape]
        yield replace(counts, tokens_per_second=tokens_per_second, latency=latency)


def measure(
    model: Model, device: str = "cpu", *, vocabulary: int = VOCABULARY, length: int = LENGTH
) -> tuple[float, float]:
    """Tokens per second of a batch, and milliseconds for one sequence; the best of a few runs."""
    model = model.to(device).eval()

    def seconds(count: int) -> float:
        ids = torch.randint(0, vocabulary, (length * count,))
        batch = Batch(ids, torch.zeros_like(ids), Layout.of([length] * count)).to(device)
        return fastest(partial(model.encoder, batch), device)

    return BATCH * length / seconds(BATCH), 1000 * seconds(1)


@torch.inference_mode()
def fastest(work: Callable[[], Any], device: str) -> float:
    """Seconds of the fastest of several runs; of few where each takes long."""
    best, began = float("inf"), time.perf_counter()
    for number in range(1 + REPEATS):
        start = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        end = time.perf_counter()
        if number:  # the first warms up
            best = min(best, end - start)
        if number and end - began > SECONDS:
            break
    return best


# ------------------------------------------------------------------ the page


HEADINGS = ["size", "family", "parameters", "FLOPs/token", "training FLOPs/token"]
HEADINGS += ["training memory", "inference memory", "tokens/s", "latency"]
NOTE = (
    f"FLOPs count the multiply-adds of matrices as two, for sequences of {LENGTH} tokens; training"
    f" is masked LM, forward and backward. Memory is estimated for {BATCH} sequences in float32."
    " Speed is measured with random weights: tokens per second of that batch, and the time of one"
    " sequence."
)


def static_rows(counts: Sequence[Counts]) -> list[tuple[Any, ...]]:
    """The cells of a table, as people read them."""
    return [
        (
            size.name,
            size.family,
            f"{size.parameters:,}",
            short(size.flops),
            short(size.training_flops),
            f"{size.training_memory / 1e9:.1f} GB",
            f"{size.inference_memory / 1e9:.2f} GB",
            "" if size.tokens_per_second is None else f"{size.tokens_per_second:,.0f}",
            "" if size.latency is None else f"{size.latency:.1f} ms",
        )
        for size in counts
    ]


def static_page(counts: Sequence[Counts], device: str) -> str:
    """A page with everything that `compare --static` reports."""
    families = list(dict.fromkeys(one.family for one in counts))
    color = {family: number for number, family in enumerate(families)}
    measured = [one for one in counts if one.tokens_per_second is not None]

    def chart(title: str, label: str, values: dict[Counts, float]) -> Any:
        return point_chart(
            title,
            [ChartPoint(o.name, o.parameters, y, color=color[o.family]) for o, y in values.items()],
            x_label="parameters",
            y_label=label,
            log_x=True,
            log_y=True,
            front=False,
            groups=families,
        )

    speeds = {one: one.tokens_per_second or 0 for one in measured}
    charts = [chart("Speed against size", f"tokens/s on {device}", speeds)] * bool(measured)
    operations = {one: one.flops for one in counts}
    charts.append(chart("Operations against size", "FLOPs/token, forward", operations))
    return page(
        "compare_static.html",
        "Published sizes compared",
        subtitle=f"{len(counts)} sizes of {len(families)} families, without training",
        charts=charts,
        table=table(HEADINGS, static_rows(counts)),
        note=NOTE,
    )
