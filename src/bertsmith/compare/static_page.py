"""The page of published sizes: charts and a table of costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertsmith.compare.static import BATCH, LENGTH, Counts
from bertsmith.pages import Point, page, point_chart, short, table

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
            one.name,
            one.family,
            f"{one.parameters:,}",
            short(one.flops),
            short(one.training_flops),
            f"{one.training_memory / 1e9:.1f} GB",
            f"{one.inference_memory / 1e9:.2f} GB",
            "" if one.tokens_per_second is None else f"{one.tokens_per_second:,.0f}",
            "" if one.latency is None else f"{one.latency:.1f} ms",
        )
        for one in counts
    ]


def static_page(counts: Sequence[Counts], device: str) -> str:
    """A page with everything that `compare --static` reports."""
    families = list(dict.fromkeys(one.family for one in counts))
    color = {family: number for number, family in enumerate(families)}
    measured = [one for one in counts if one.tokens_per_second is not None]

    def chart(title: str, label: str, values: dict[Counts, float]) -> Any:
        return point_chart(
            title,
            [Point(o.name, o.parameters, y, color=color[o.family]) for o, y in values.items()],
            x_label="parameters",
            y_label=label,
            log_x=True,
            log_y=True,
            front=False,
            groups=families,
        )

    speeds = {one: one.tokens_per_second or 0 for one in measured}
    charts = [chart("Speed against size", f"tokens/s on {device}", speeds)] * bool(measured)
    flops = {one: one.flops for one in counts}
    charts.append(chart("Operations against size", "FLOPs/token, forward", flops))
    return page(
        "compare_static.html",
        "Published sizes compared",
        subtitle=f"{len(counts)} sizes of {len(families)} families, without training",
        charts=charts,
        table=table(HEADINGS, static_rows(counts)),
        note=NOTE,
    )
