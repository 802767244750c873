"""Line charts as SVG: axes with ticks and units, a legend, reference lines; reliability."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from bertsmith.pages.page import render

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 466, 30, 236  # edges of the plot within it
COLORS = 8  # in page.css; more series use them again
DOTS = 60  # a series of fewer points may mark each of them


@dataclass(frozen=True)
class Series:
    """A line of a chart. `quiet` ones are thin and pale, `dots` mark each measurement.

    A `bare` series has dots only, without a line between them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    quiet: bool = False
    dots: bool = False
    bare: bool = False
    color: int | None = None  # by default the number of the series


@dataclass(frozen=True)
class Reference:
    """A horizontal line to compare with."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A range of values and the pixels that it covers."""

    low: float
    high: float
    first: float
    last: float
    log: bool = False
    whole: bool = False  # are its values whole numbers?

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return round(self.first + (self.last - self.first) * (value - low) / (high - low), 2)

    def ticks(self) -> list[float]:
        """Return the round values within the range."""
        if self.log:
            return log_ticks(self.low, self.high)
        return ticks(self.low, self.high, least=1.0 if self.whole else 0.0)

    def marks(self) -> list[tuple[float, str]]:
        """Return the pixel and the label of each tick."""
        values = self.ticks()
        return list(zip(map(self.place, values), labels(values), strict=True))


def line_chart(
    title: str,
    series: Iterable[Series],
    *,
    x_label: str,
    y_label: str = "",
    unit: str = "",
    references: Iterable[Reference] = (),
    log_x: bool = False,
    log_y: bool = False,
    from_zero: bool = False,
    x_end: float = 0.0,
) -> Markup:
    """Draw a figure for a page: a title, a legend that shows values on hover, and the lines.

    `unit` follows every y value, such as "%"; the x axis reaches to `x_end` at least. Points that
    are not finite, or not positive on a logarithmic axis, are left out; without any others the
    figure says that there is no data.
    """
    lines = []
    for number, one in enumerate(series):
        points = [(x, y) for x, y in one.points if drawable(x, y, log_x, log_y)]
        if points:
            lines.append((number if one.color is None else one.color, one, points))
    references = [one for one in references if math.isfinite(one.value)]
    xs = [x for _, _, points in lines for x, _ in points]
    ys = [y for _, _, points in lines for _, y in points] + [one.value for one in references]
    if not xs:
        return render("chart.html", title=title, lines=[])
    if from_zero:
        ys.append(0.0)
    elif references and not log_y:  # room for a label below the lowest line
        ys.append(min(one.value for one in references) - (max(ys) - min(ys)) / 8)
    x_axis = axis_over([*xs, max(x_end, xs[0])], LEFT, RIGHT, log_x, loose=False)
    y_axis = axis_over(ys, BOTTOM, TOP, log_y, loose=True)
    drawn = [(x_axis.place(x), y_axis.place(y)) for _, _, points in lines for x, y in points]
    return render(
        "chart.html",
        title=title,
        lines=[_line(x_axis, y_axis, *line) for line in lines],
        references=[_reference(y_axis.place(one.value), one, drawn) for one in references],
        **axes(x_axis, y_axis, x_label, y_label, unit),
    )


def axes(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str, unit: str) -> dict[str, Any]:
    """What the template of axes needs."""
    return {
        "x_label": x_label,
        "y_label": y_label,
        "unit": unit,
        "x_ticks": x_axis.marks(),
        "y_ticks": y_axis.marks(),
        "size": (WIDTH, HEIGHT),
        "edges": (LEFT, RIGHT, TOP, BOTTOM),
        "short": short,
    }


def reliability(bins: Sequence[tuple[float, float]]) -> Markup:
    """Draw a reliability diagram: the accuracy of predictions over their mean confidence."""
    return line_chart(
        "Reliability diagram",
        [
            Series("predictions", [(100 * x, 100 * y) for x, y in bins], dots=True),
            Series("perfectly calibrated", [(0.0, 0.0), (100.0, 100.0)], quiet=True, color=7),
        ],
        x_label="mean confidence (%)",
        y_label="accuracy",
        unit="%",
        from_zero=True,
    )


def scatter(
    title: str, points: Sequence[tuple[float, float, int, str]], names: Sequence[str] = ()
) -> Markup:
    """Draw points of (x, y, group, text) in a plane whose axes have no meaning.

    Each group has a color, and its name in the middle; a point shows its text on hover. Outliers
    are drawn at the edge, so that the other points use the space.
    """
    edge, width = 12, 2 * WIDTH
    low_x, high_x = _bounds([x for x, *_ in points])
    low_y, high_y = _bounds([y for _, y, *_ in points])
    height = round(width * min(0.6, max(0.35, (high_y - low_y) / (high_x - low_x))))
    dots = [
        (
            round(edge + (min(max(x, low_x), high_x) - low_x) / (high_x - low_x) * across, 1),
            round(edge + (high_y - min(max(y, low_y), high_y)) / (high_y - low_y) * down, 1),
            group % COLORS,
            text,
        )
        for x, y, group, text in points
        for across, down in [(width - 2 * edge, height - 2 * edge)]
    ]
    labels = []
    for group, name in enumerate(names):
        places = [(x, y) for (x, y, *_), one in zip(dots, points, strict=True) if one[2] == group]
        if places:
            middle_x, middle_y = (sum(values) / len(places) for values in zip(*places, strict=True))
            half = 5.0 * len(name)  # of its width; narrow screens draw larger letters, so a
            # name near an edge is anchored there and grows inwards.
            x, anchor = middle_x, "middle"
            if middle_x < width / 3:
                x, anchor = max(middle_x - half, 0.0), "start"
            elif middle_x > width * 2 / 3:
                x, anchor = min(middle_x + half, width), "end"
            labels.append((round(x, 1), round(middle_y, 1), anchor, name))
    return render("scatter.html", title=title, width=width, height=height, dots=dots, labels=labels)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """The range that contains all values but the outermost 2 % on each side, and a margin."""
    ranked = sorted(values)
    cut = len(ranked) // 50
    low, high = ranked[cut], ranked[-1 - cut]
    margin = 0.05 * (high - low) or 0.5
    low, high = max(ranked[0], low - margin), min(ranked[-1], high + margin)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def smoothed(points: Sequence[tuple[float, float]], count: int = 200) -> list[tuple[float, float]]:
    """Return at most `count` points, each the mean of its neighbours."""
    parts = min(count, len(points))
    ends = [len(points) * number // parts for number in range(parts + 1)]
    groups = [points[start:stop] for start, stop in pairwise(ends)]
    return [
        (sum(x for x, _ in one) / len(one), sum(y for _, y in one) / len(one)) for one in groups
    ]


def short(value: float) -> str:
    """Write a number for an axis: 12,500 as 12.5k, 0.0005 as 5e-4."""
    size = abs(value)
    for limit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    if size >= 1e-3 or not size:
        return f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"
    return _scientific(value)


def labels(values: list[float]) -> list[str]:
    """Write the ticks of an axis alike: with the same number of decimals, or all as powers."""
    sizes = [abs(value) for value in values if value] or [1.0]
    if min(sizes) < 1e-3:
        return [_scientific(value) if value else "0" for value in values]
    if max(sizes) >= 1000:
        return [short(value) for value in values]
    decimals = max(len(f"{value:.6g}".partition(".")[2]) for value in values)
    return [f"{value:.{decimals}f}" if value else "0" for value in values]


def _scientific(value: float) -> str:
    digits, exponent = f"{value:.3e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def ticks(low: float, high: float, count: int = 5, least: float = 0.0) -> list[float]:
    """Return about `count` round values from low to high, `least` apart or more."""
    step = max(_round_step((high - low) / count), least)
    step = math.ceil(step) if least >= 1 else step  # 3 instead of 2.5
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from low to high; where these are few, values between them too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 5) if last - first <= 3 else (1,)
    stride = max(1, -(-(last - first) // 8))
    values = [part * 10.0**power for power in range(first, last + 1, stride) for part in parts]
    inside = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(inside) < 3:
        inside = [value for value in ticks(low, high) if value > 0]
    return [float(f"{value:.12g}") for value in inside]


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(part * power for part in (1, 2, 2.5, 5, 10) if part * power >= size * (1 - 1e-9))


def drawable(x: float, y: float, log_x: bool, log_y: bool) -> bool:
    """Is a point finite, and positive where an axis is logarithmic?"""
    finite = math.isfinite(x) and math.isfinite(y)
    return finite and (x > 0 or not log_x) and (y > 0 or not log_y)


def axis_over(values: list[float], first: float, last: float, log: bool, loose: bool) -> Axis:
    """Make an axis over all values; a loose one ends at round values beyond them."""
    low, high = min(values), max(values)
    if high - low <= 1e-6 * abs(high):  # one value: in the middle, or below the best score
        around = abs(low) / 2 or 1.0
        most = next((best for best in (1.0, 100.0) if loose and high <= best), math.inf)
        low, high = (low / 2, high * 2) if log else (low - around, min(high + around, most))
    if not (loose or log) and 0 < low < (high - low) / 10:
        low = 0.0  # steps and tokens begin there
    if loose and not log:
        step = _round_step((high - low) / 5)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    integers = not loose and all(float(value).is_integer() for value in values)
    return Axis(low, high, first, last, log, integers)


def _reference(
    y: float, reference: Reference, drawn: list[tuple[float, float]]
) -> tuple[float, float, Reference]:
    """Where the line and its label are; the label is on the side with fewer points."""
    around = [place - y for x, place in drawn if x > (LEFT + RIGHT) / 2 and abs(place - y) < 24]
    crowded = sum(-1 if distance > 0 else 1 for distance in around) > 0
    below = y < TOP + 14 or (crowded and y < BOTTOM - 18)
    return y, y + 15 if below else y - 6, reference


def _line(
    x_axis: Axis, y_axis: Axis, color: int, series: Series, points: list[tuple[float, float]]
) -> dict[str, object]:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
    return {
        "name": series.name,
        "color": f"c{color % COLORS}"
        + (" quiet" if series.quiet else "")
        + (" bare" if series.bare else ""),
        "path": " ".join(f"{x:g},{y:g}" for x, y in places),
        "dots": places
        if len(places) == 1 or series.bare or (series.dots and len(places) <= DOTS)
        else [],
        "x": " ".join(f"{x:.10g}" for x, _ in points),
        "y": " ".join(f"{y:.5g}" for _, y in points),
        "first": points[0],
        "last": points[-1],
    }
