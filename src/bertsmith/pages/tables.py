"""Tables as HTML: plain ones, bar lists, heat maps, confusion matrices, and texts with marks."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from bertsmith.pages.page import render

SHADES = 9  # classes s1 to s9 (and n1 to n9 below zero) in page.css
UPRIGHT = 8  # more column headings than these are turned by 90 degrees
LONGEST = 600  # characters of a text that are shown around its marks


def number(value: Any) -> str:
    """Write a value for a cell: four decimals, whole numbers with commas."""
    if value is None:
        return ""
    if isinstance(value, float):
        if value.is_integer() and abs(value) > 1:
            return f"{value:,.0f}"
        return f"{value:.4f}" if 1e-3 <= abs(value) < 100 or not value else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """Draw a table whose first column names the rows."""
    cells = [[(number(cell), _numeric(cell)) for cell in row] for row in rows]
    return render("table.html", headings=headings, rows=cells)


def _numeric(cell: Any) -> bool:
    return not isinstance(cell, str) or cell[:1] in "+-0123456789"


def bar_list(
    rows: Iterable[tuple[str, float, str]], *, most: float | None = None, weak: Iterable[int] = ()
) -> Markup:
    """Draw named bars: each row is a name, a length, and the text at the end of the bar.

    `most` is the value of a full bar (default: the largest); bars numbered in `weak` are pale.
    """
    rows, pale = list(rows), set(weak)
    full = most or max((abs(value) for _, value, _ in rows), default=0.0) or 1.0
    bars = []
    for place, (name, value, text) in enumerate(rows):
        style = "weak" if place in pale else "below" if value < 0 else ""
        bars.append((name, round(100 * min(1.0, abs(value) / full), 1), text, style))
    return render("bar_list.html", bars=bars)


def heat_map(
    values: Iterable[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    corner: str = "",
    label: str,
    most: float | None = None,
    numbers: bool = True,
) -> Markup:
    """Draw a table of values, darker where they are larger; cells that are NaN stay empty.

    `most` is the value of the darkest shade (default: the largest value). Without `numbers` cells
    are small squares that show their value on hover.
    """
    cells = [[float(value) for value in row] for row in values]
    finite = [value for row in cells for value in row if math.isfinite(value)]
    low = min(0.0, *finite, 0.0)
    reach = ((max(finite, default=1.0) if most is None else most) - low) or 1.0
    largest = max((abs(value) for value in finite), default=0.0)

    def cell(value: float) -> tuple[int, str, float | None]:
        if not math.isfinite(value):
            return 0, "", None
        level = shade(math.sqrt(max(0.0, value - low) / reach))
        return level, _short(value, largest), value

    return render(
        "heat_map.html",
        rows=[(name, list(map(cell, row))) for name, row in zip(rows, cells, strict=True)],
        columns=columns,
        corner=corner,
        label=label,
        numbers=numbers,
        turned=_turned(columns) and max(map(len, columns), default=0) > 3,
    )


def shade(share: float) -> int:
    """Return the number of a shade, from 0 (none) to SHADES; below zero for negative shares."""
    step = min(SHADES, round(SHADES * min(1.0, abs(share))))
    return step if share >= 0 else -step


def _short(value: float, largest: float) -> str:
    """Write a value so that a narrow cell holds it, as precisely as the others of its table."""
    if largest >= 1.005:
        return f"{value:.0f}" if largest >= 9.95 else f"{value:.1f}"
    text = f"{value:.2f}"
    return {"1.00": "1", "0.00": "0", "-0.00": "0"}.get(text, text.replace("0.", ".", 1))


def class_bars(
    rows: Iterable[tuple[str, float, float, float, float]], most: float | None = None
) -> Markup:
    """Draw scores and the number of examples of each class; `most` examples fill a bar."""
    rows = list(rows)
    most = most or max((count for *_, count in rows), default=0.0) or 1.0
    drawn = []
    for name, precision, recall, f1, count in rows:
        scores = [
            (round(100 * value, 1), f"{100 * value:.1f}%") for value in (f1, precision, recall)
        ]
        drawn.append((name, scores, (round(100 * count / most, 1), f"{count:,.0f}")))
    return render("class_bars.html", rows=drawn)


def confusion_matrix(
    counts: Sequence[Sequence[int]],
    names: Sequence[str],
    row_totals: Sequence[int] | None = None,
    column_totals: Sequence[int] | None = None,
) -> Markup:
    """Draw a confusion matrix with labels as rows and predictions as columns.

    Cells are shaded by their count, correct ones in another color. Each that is not empty is a
    button with a data-cell of "row-column", for a script to show the examples behind it, and
    percentages of its row and column (data-row, data-column), to show instead of counts. Totals
    are those of the matrix by default; pass those of all labels if some are left out.
    """
    largest = max((count for row in counts for count in row), default=0) or 1
    down = row_totals or [sum(line) for line in counts]
    across = column_totals or [sum(line) for line in zip(*counts, strict=True)]

    def cell(row: int, column: int, count: int) -> tuple[int, int, bool, float, float]:
        of_row, of_column = (round(100 * count / (n or 1), 1) for n in (down[row], across[column]))
        level = shade(math.sqrt(count / largest)) or 1
        return int(count), level, row == column, of_row, of_column

    rows = [
        (name, [cell(row, column, count) for column, count in enumerate(line)])
        for row, (name, line) in enumerate(zip(names, counts, strict=True))
    ]
    return render("confusion_matrix.html", rows=rows, names=names, turned=_turned(names))


def _turned(names: Sequence[str]) -> bool:
    return len(names) > UPRIGHT or sum(map(len, names)) > 60


class MarkedPart(NamedTuple):
    """A part of a text: plain, or marked as `kind` with a note beside it or on hover."""

    text: str
    kind: str = ""  # good, bad, label; s1 to s9 and n1 to n9 are shades
    note: str = ""
    title: str = ""


def highlighted(text: str, spans: Iterable[tuple[int, int, str, str]]) -> list[MarkedPart]:
    """Split a text at spans of (start, end, kind, note); text far from all spans is cut.

    Every character is shown once. Where spans overlap, the kind of the shortest is shown, and each
    note stands where its span ends.
    """
    marked = _joined(spans)
    low = max(0, min((span[0] for span in marked), default=0) - LONGEST // 2)
    high = min(len(text), max((span[1] for span in marked), default=LONGEST) + LONGEST // 2)
    edges = sorted({low, high, *(edge for span in marked for edge in span[:2])})
    parts = [MarkedPart("…" if low else "")]
    for start, end in pairwise(edges):
        inside = [span for span in marked if span[0] <= start and end <= span[1]]
        shortest = min(inside, key=lambda span: span[1] - span[0], default=(0, 0, "", ""))
        notes = [note for _, stop, _, note in inside if stop == end and note]
        parts.append(MarkedPart(text[start:end], shortest[2], ", ".join(notes)))
    parts.append(MarkedPart("…" if high < len(text) else ""))
    return [part for part in parts if part.text]


def _joined(spans: Iterable[tuple[int, int, str, str]]) -> list[tuple[int, int, str, str]]:
    """Merge overlapping spans of the same kind and note, such as several labelled answers."""
    merged: list[tuple[int, int, str, str]] = []
    last: dict[tuple[str, str], int] = {}
    for start, end, kind, note in sorted(spans):
        place = last.get((kind, note))
        if place is not None and start < merged[place][1]:
            merged[place] = (merged[place][0], max(end, merged[place][1]), kind, note)
        else:
            last[kind, note] = len(merged)
            merged.append((start, end, kind, note))
    return merged
