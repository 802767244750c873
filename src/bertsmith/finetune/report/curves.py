"""Lines in a picture that needs no script."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, BELOW = 480, 220, 56, 34


def curve(title: str, points: Sequence[tuple[float, float]], unit: str) -> str:
    """An SVG of points (x, y), with their lowest and highest values beside them."""
    known = [(x, y) for x, y in points if math.isfinite(y)]
    if not known:
        return ""
    xs, ys = [x for x, _ in known], [y for _, y in known]
    low, high = min(ys), max(ys)
    across, up = (max(xs) - min(xs)) or 1, (high - low) or 1
    placed = [
        (
            LEFT + (x - min(xs)) / across * (WIDTH - LEFT - 12),
            12 + (high - y) / up * (HEIGHT - BELOW - 24),
        )
        for x, y in known
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed)
    floor = HEIGHT - BELOW
    name = html.escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{name}">'
        f'<path class="axis" d="M{LEFT} 8V{floor}H{WIDTH - 8}"/>'
        f'<polyline class="line" points="{line}"/>{dots if len(placed) < 40 else ""}'
        f'<text x="4" y="20">{high:.4g}</text><text x="4" y="{floor - 6}">{low:.4g}</text>'
        f'<text x="{LEFT}" y="{floor + 15}">{min(xs):g}</text>'
        f'<text x="{WIDTH - 8}" y="{floor + 15}" text-anchor="end">{unit} {max(xs):g}</text>'
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{name}</text></svg>'
    )
