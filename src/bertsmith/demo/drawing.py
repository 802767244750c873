"""Pictures of the journey as SVG: they need no script, and take their colours from the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from bertsmith.demo.forging import Piece
from bertsmith.demo.looking import Looked

BOX, GAP, LETTER = 30, 6, 8.2  # height of a box, room between two, width of a letter
ACROSS = 980


def svg(width: float, height: float, label: str, body: str) -> str:
    """A picture that shrinks with the page."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(label)}">{body}</svg>'
    )


def embedding(pieces: Sequence[Piece]) -> str:
    """Each token as three boxes that are added up."""
    lines: list[list[tuple[Piece, float, float]]] = [[]]
    x = 0.0
    for piece in pieces:
        width = max(34.0, len(piece.token) * LETTER + 14)
        if x + width > ACROSS - 90:
            lines.append([])
            x = 0.0
        lines[-1].append((piece, x, width))
        x += width + GAP
    tall = 3 * (BOX + GAP) + 22
    body = []
    for number, line in enumerate(lines):
        top = number * tall
        for row, name in enumerate(("token", "+ segment", "+ position")):
            y = top + row * (BOX + GAP)
            body.append(f'<text x="0" y="{y + 20}">{name}</text>')
            for piece, left, width in line:
                shown = (piece.token, "AB"[piece.segment % 2], str(piece.position))[row]
                kind = ("piece", f"segment-{piece.segment % 2}", "place")[row]
                body.append(_box(90 + left, y, width, shown, kind))
    return svg(ACROSS, len(lines) * tall - 22, "token, segment and position", "".join(body))


def _box(x: float, y: float, width: float, text: str, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BOX}" rx="5"/>'
        f'<text class="in" x="{x + width / 2:.1f}" y="{y + 20}" text-anchor="middle">'
        f"{escape(text)}</text>"
    )


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], title: str, unit: str) -> str:
    """Lines over (share of the time, value), each smoothed, with its last value beside it."""
    width, height, left, right, below = 420, 230, 44, 96, 30
    smooth = {name: _smoothed(points) for name, points in lines.items()}
    values = [value for points in smooth.values() for _, value in points]
    if not values:
        return ""
    low, high = min(values), max(values)
    reach = (high - low) or 1.0

    def x(share: float) -> float:
        return left + share * (width - left - right)

    def y(value: float) -> float:
        return 14 + (high - value) / reach * (height - below - 28)

    body = [f'<path class="axis" d="M{left} 8V{height - below}H{width - right}"/>']
    for step in range(5):
        value = low + step / 4 * reach
        shown = f"{value:.0%}" if unit == "%" else f"{value:.1f}"
        body.append(f'<path class="grid" d="M{left} {y(value):.1f}H{width - right}"/>')
        body.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{shown}</text>')
    for number, (name, points) in enumerate(smooth.items()):
        placed = " ".join(f"{x(share):.1f},{y(value):.1f}" for share, value in points)
        body.append(f'<polyline class="line-{number}" points="{placed}"/>')
        last = points[-1]
        shown = f"{last[1]:.0%}" if unit == "%" else f"{last[1]:.2f}"
        body.append(
            f'<text class="end-{number}" x="{x(last[0]) + 6:.1f}" y="{y(last[1]) + 4:.1f}">'
            f"{escape(name)} {shown}</text>"
        )
    middle = (left + width - right) / 2
    body.append(f'<text x="{middle}" y="{height - 8}" text-anchor="middle">{escape(title)}</text>')
    return svg(width, height, title, "".join(body))


def _smoothed(points: Sequence[tuple[float, float]], count: int = 40) -> list[tuple[float, float]]:
    """At most so many points, each the mean of its neighbours."""
    parts = min(count, len(points))
    ends = [len(points) * number // parts for number in range(parts + 1)]
    groups = [points[start:stop] for start, stop in pairwise(ends)]
    return [
        (sum(share for share, _ in one) / len(one), sum(value for _, value in one) / len(one))
        for one in groups
    ]


def bars(rows: Sequence[tuple[str, float, str]], most: float = 1.0, wide: int = 420) -> str:
    """Bars with a name, a length from 0 to `most`, and what is written at their end."""
    body = []
    strong = len(rows) - 1 if len(rows) == 2 else -1
    for number, (name, value, shown) in enumerate(rows):
        y = number * 30
        long = max(2.0, (wide - 230) * value / most)
        kind = "bar" if strong in (-1, number) else "bar weak"
        body.append(f'<text x="150" y="{y + 19}" text-anchor="end">{escape(name)}</text>')
        shape = f'x="160" y="{y + 4}" width="{long:.1f}" height="22" rx="4"'
        body.append(f'<rect class="{kind}" {shape}/>')
        body.append(
            f'<text class="strong" x="{168 + long:.1f}" y="{y + 19}">{escape(shown)}</text>'
        )
    return svg(wide, len(rows) * 30, "; ".join(f"{n}: {s}" for n, _, s in rows), "".join(body))


def heads(looked: Looked) -> str:
    """One head's attention: each row of squares is where one token looks."""
    cell, left, top = 17, 74, 66
    count = len(looked.tokens)
    body = []
    for row in range(count):
        y = top + row * cell
        name = escape(looked.tokens[row])
        body.append(f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{name}</text>')
        spot = f"{left + row * cell + 12} {top - 6}"
        body.append(f'<text transform="translate({spot}) rotate(-60)">{name}</text>')
        for column in range(count):
            weight = float(looked.weights[row, column])
            body.append(
                f'<rect class="heat" x="{left + column * cell}" y="{y}" width="{cell - 1.5}" '
                f'height="{cell - 1.5}" rx="2" fill-opacity="{weight**0.5:.2f}"><title>'
                f"{name} → {escape(looked.tokens[column])}: {weight:.0%}</title></rect>"
            )
    size = count * cell
    label = f"attention of layer {looked.layer}, head {looked.head}"
    return svg(left + size + 30, top + size, label, "".join(body))
