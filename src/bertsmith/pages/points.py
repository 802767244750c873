"""Charts of named points as SVG: scatter plots with a Pareto front, and scores with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bertsmith.pages.charts import (
    BOTTOM,
    COLORS,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    axes,
    axis_over,
    drawable,
)
from bertsmith.pages.page import render

NAME_WIDTH = 118  # pixels of the names beside intervals
ROW = 26  # pixels of a row of intervals
LETTER = 7.0  # pixels, of labels
GAP = 8  # pixels between two labels


@dataclass(frozen=True)
class ChartPoint:
    """A named point; `low` and `high` are the interval of its y value."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    color: int = 0


def point_chart(
    title: str,
    points: Sequence[ChartPoint],
    *,
    x_label: str,
    y_label: str,
    unit: str = "",
    log_x: bool = False,
    log_y: bool = False,
    front: bool = True,
    groups: Sequence[str] = (),
) -> Markup:
    """Draw labelled points with intervals; a line joins the Pareto front.

    The front are the points that no other is above and left of: the best score at each cost.
    `groups` are the names of colors, for a legend.
    """
    points = [one for one in points if drawable(one.x, one.y, log_x, log_y)]
    if not points:
        return render("points.html", title=title, points=[])
    x_axis = axis_over([one.x for one in points], LEFT + 14, RIGHT - 40, log_x, loose=False)
    y_axis = axis_over(_heights(points), BOTTOM, TOP, log_y, loose=True)
    best = pareto_front([(one.x, one.y) for one in points]) if front else []
    line = [(x_axis.place(points[n].x), y_axis.place(points[n].y)) for n in best]
    return render(
        "points.html",
        title=title,
        points=_placed(points, x_axis, y_axis),
        front=" ".join(f"{x:g},{y:g}" for x, y in line) if len(line) > 1 else "",
        groups=[(name, f"c{number % COLORS}") for number, name in enumerate(groups)],
        **axes(x_axis, y_axis, x_label, y_label, unit),
    )


def _heights(points: Sequence[ChartPoint]) -> list[float]:
    """The y values of points, and the ends of their intervals."""
    ends = [end for one in points for end in (one.low, one.high) if end is not None]
    return [*(one.y for one in points), *ends]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of points with a higher y than every point with a lower or equal x, by x."""
    order = sorted(range(len(points)), key=lambda n: (points[n][0], -points[n][1]))
    front: list[int] = []
    for number in order:
        if not front or points[number][1] > points[front[-1]][1]:
            front.append(number)
    return front


def interval_chart(
    title: str, points: Sequence[ChartPoint], *, unit: str = "", x_label: str = ""
) -> Markup:
    """Draw a row for each point: its name, its y value, and the interval around it."""
    points = [one for one in points if math.isfinite(one.y)]
    if not points:
        return render("intervals.html", title=title, rows=[])
    axis = axis_over(_heights(points), NAME_WIDTH, RIGHT - 50, False, loose=True)
    rows = [
        {
            "name": one.name,
            "color": f"c{one.color % COLORS}",
            "y": ROW * place + ROW / 2,
            "x": axis.place(one.y),
            "low": None if one.low is None else axis.place(one.low),
            "high": None if one.high is None else axis.place(one.high),
            "value": _value(one, unit),
            "short": f"{one.y:.3f}{unit}" if abs(one.y) < 10 else f"{one.y:.4g}{unit}",
        }
        for place, one in enumerate(points)
    ]
    return render(
        "intervals.html",
        title=title,
        x_label=x_label,
        unit=unit,
        rows=rows,
        ticks=axis.marks(),
        size=(WIDTH, ROW * len(points) + (40 if x_label else 24)),
        bottom=ROW * len(points),
        edges=(NAME_WIDTH, RIGHT - 50),
    )


def _value(point: ChartPoint, unit: str) -> str:
    if point.low is None or point.high is None:
        return f"{point.y:.4g}{unit}"
    return f"{point.y:.4g}{unit} ({point.low:.4g} to {point.high:.4g})"


def _placed(points: Sequence[ChartPoint], x_axis: Axis, y_axis: Axis) -> list[dict[str, object]]:
    """Where dots and their labels are; a label that finds no free place is left out."""
    dots = [(x_axis.place(one.x), y_axis.place(one.y)) for one in points]
    taken: list[tuple[float, float, float]] = []  # left, right and y of labels
    placed: list[dict[str, object]] = []
    for one, (x, y) in zip(points, dots, strict=True):
        label = _free(x, y, LETTER * len(one.name), dots, taken)
        placed.append(
            {
                "name": one.name,
                "color": f"c{one.color % COLORS}",
                "x": x,
                "y": y,
                "low": None if one.low is None else y_axis.place(one.low),
                "high": None if one.high is None else y_axis.place(one.high),
                "label": label,
                "at": (one.x, one.y),
            }
        )
    return placed


def _free(
    x: float,
    y: float,
    width: float,
    dots: Sequence[tuple[float, float]],
    taken: list[tuple[float, float, float]],
) -> tuple[float, float] | None:
    """The nearest place of a label, which is then taken; None where there is none."""
    for shift in (0, 13, -13, 26, -26):
        for left in (x + 8, x - 8 - width):
            right, row = left + width, y + shift
            outside = left < LEFT or right > WIDTH or not TOP - 12 < row < BOTTOM - 4
            on_labels = any(
                abs(row - r) < 13 and a < right + GAP and left < b + GAP for a, b, r in taken
            )
            on_dots = any(abs(row - b) < 9 and left - 5 < a < right + 5 for a, b in dots)
            if not (outside or on_labels or on_dots):
                taken.append((left, right, row))
                return round(left, 1), round(row, 1)
    return None
