"""Charts as SVG: lines, points with a Pareto front, and scores with intervals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from markupsafe import Markup

from bertsmith.pages.page import render

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 466, 30, 236  # edges of the plot within it
COLORS = 8  # in page.css; more series use them again
DOTS = 60  # a series of fewer points may mark each of them
NAME_WIDTH = 118  # pixels of the names beside intervals
ROW = 26  # pixels of a row of intervals
LETTER = 7.0  # pixels, of labels
GAP = 8  # pixels between two labels


@dataclass(frozen=True)
class Series:
    """A line of a chart: thin and pale (`quiet`), with `dots`, or with dots alone (`bare`)."""

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
class ChartPoint:
    """A named point; `low` and `high` are the interval of its y value."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    color: int = 0


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

    def marks(self) -> list[tuple[float, str]]:
        """Return the pixel and the label of each tick."""
        values = ticks(self.low, self.high, least=1.0 if self.whole else 0.0)
        if self.log:
            values = log_ticks(self.low, self.high)
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
    for number, line in enumerate(series):
        points = [(x, y) for x, y in line.points if _drawable(x, y, log_x, log_y)]
        if points:
            lines.append((number if line.color is None else line.color, line, points))
    references = [reference for reference in references if math.isfinite(reference.value)]
    levels = [reference.value for reference in references]
    xs = [x for _, _, points in lines for x, _ in points]
    ys = [y for _, _, points in lines for _, y in points] + levels
    if not xs:
        return render("chart.html", title=title, lines=[])
    if from_zero:
        ys.append(0.0)
    elif levels and not log_y:  # room for a label below the lowest line
        ys.append(min(levels) - (max(ys) - min(ys)) / 8)
    x_axis = axis_over([*xs, max(x_end, xs[0])], LEFT, RIGHT, log_x, loose=False)
    y_axis = axis_over(ys, BOTTOM, TOP, log_y, loose=True)
    drawn = [(x_axis.place(x), y_axis.place(y)) for _, _, points in lines for x, y in points]
    return render(
        "chart.html",
        title=title,
        lines=[_line(x_axis, y_axis, *line) for line in lines],
        references=[_reference(y_axis.place(line.value), line, drawn) for line in references],
        **_axes(x_axis, y_axis, x_label, y_label, unit),
    )


def _axes(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str, unit: str = "") -> dict[str, Any]:
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
    x_axis = Axis(low_x, high_x, edge, width - edge)
    y_axis = Axis(low_y, high_y, height - edge, edge)
    dots = []
    for x, y, group, text in points:
        place_x = x_axis.place(min(max(x, low_x), high_x))
        place_y = y_axis.place(min(max(y, low_y), high_y))
        dots.append((round(place_x, 1), round(place_y, 1), group % COLORS, text))
    labels = []
    for group, name in enumerate(names):
        owners = zip(dots, points, strict=True)
        places = [(x, y) for (x, y, *_), point in owners if point[2] == group]
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
    count = min(count, len(points))
    ends = [len(points) * number // count for number in range(count + 1)]
    groups = [zip(*points[start:stop], strict=True) for start, stop in pairwise(ends)]
    return [(fmean(xs), fmean(ys)) for xs, ys in groups]


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


def ticks(low: float, high: float, least: float = 0.0) -> list[float]:
    """Return about five round values from low to high, `least` apart or more."""
    step = max(_round_step((high - low) / 5), least)
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


def _drawable(x: float, y: float, log_x: bool, log_y: bool) -> bool:
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
    dotted = len(places) == 1 or series.bare or (series.dots and len(places) <= DOTS)
    style = " quiet" * series.quiet + " bare" * series.bare
    return {
        "name": series.name,
        "color": f"c{color % COLORS}{style}",
        "path": _path(places),
        "dots": places if dotted else [],
        "x": " ".join(f"{x:.10g}" for x, _ in points),
        "y": " ".join(f"{y:.5g}" for _, y in points),
        "first": points[0],
        "last": points[-1],
    }


def _path(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def point_chart(
    title: str,
    points: Sequence[ChartPoint],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    front: bool = True,
    groups: Sequence[str] = (),
) -> Markup:
    """Draw labelled points with intervals; a line joins the Pareto front.

    The front are the points that no other is above and left of: the best score at each cost.
    `groups` are the names of colors, for a legend.
    """
    points = [point for point in points if _drawable(point.x, point.y, log_x, log_y)]
    if not points:
        return render("points.html", title=title, points=[])
    x_axis = axis_over([point.x for point in points], LEFT + 14, RIGHT - 40, log_x, loose=False)
    y_axis = axis_over(_heights(points), BOTTOM, TOP, log_y, loose=True)
    dots = [(x_axis.place(point.x), y_axis.place(point.y)) for point in points]
    best = pareto_front([(point.x, point.y) for point in points]) if front else []
    taken: list[tuple[float, float, float]] = []  # left, right and y of labels
    drawn = [
        {
            **_marks(point, y_axis),
            "x": x,
            "y": y,
            "label": _free(x, y, LETTER * len(point.name), dots, taken),
            "at": (point.x, point.y),
        }
        for point, (x, y) in zip(points, dots, strict=True)
    ]
    return render(
        "points.html",
        title=title,
        points=drawn,
        front=_path(dots[number] for number in best) if len(best) > 1 else "",
        groups=[(name, f"c{number % COLORS}") for number, name in enumerate(groups)],
        **_axes(x_axis, y_axis, x_label, y_label),
    )


def _heights(points: Sequence[ChartPoint]) -> list[float]:
    ends = [end for point in points for end in (point.low, point.high) if end is not None]
    return [*(point.y for point in points), *ends]


def _marks(point: ChartPoint, axis: Axis) -> dict[str, Any]:
    """The name and color of a point, and where its interval ends."""
    ends = {"low": point.low, "high": point.high}
    places = {name: None if end is None else axis.place(end) for name, end in ends.items()}
    return {"name": point.name, "color": f"c{point.color % COLORS}", **places}


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of points with a higher y than every point with a lower or equal x, by x."""
    front: list[int] = []
    for number in sorted(range(len(points)), key=lambda n: (points[n][0], -points[n][1])):
        if not front or points[number][1] > points[front[-1]][1]:
            front.append(number)
    return front


def interval_chart(title: str, points: Sequence[ChartPoint]) -> Markup:
    """Draw a row for each point: its name, its y value, and the interval around it."""
    points = [point for point in points if math.isfinite(point.y)]
    if not points:
        return render("intervals.html", title=title, rows=[])
    axis = axis_over(_heights(points), NAME_WIDTH, RIGHT - 50, False, loose=True)
    rows = []
    for place, point in enumerate(points):
        value = f"{point.y:.4g}"
        row = _marks(point, axis) | {"x": axis.place(point.y), "y": ROW * place + ROW / 2}
        row["short"] = f"{point.y:.3f}" if abs(point.y) < 10 else value
        if point.low is not None and point.high is not None:
            value += f" ({point.low:.4g} to {point.high:.4g})"
        rows.append(row | {"value": value})
    return render(
        "intervals.html",
        title=title,
        rows=rows,
        ticks=axis.marks(),
        size=(WIDTH, ROW * len(points) + 24),
        bottom=ROW * len(points),
        edges=(NAME_WIDTH, RIGHT - 50),
    )


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
