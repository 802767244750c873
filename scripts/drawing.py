"""SVG pictures in the site's style: light and dark, on the site and on GitHub.

A picture names colors only by the classes in STYLE. On GitHub it is an image, which brings STYLE
along and follows the reader's system. The site's hook puts the picture into the page, where SITE
gives the same classes the colors of the page's own light or dark scheme.
"""

from collections.abc import Sequence
from html import escape

from bertsmith.pages.charts import Axis, axis_over

LIGHT = "--ink:#1d1b18;--soft:#67625a;--edge:#d5d0c6;--fill:#f1efe9"
LIGHT += ";--c0:#1f5fbf;--c1:#c2570c;--c2:#1a7f5a;--c3:#b03a8c;--c4:#7a4fd0"
DARK = "--ink:#eceae6;--soft:#a8a49c;--edge:#4a4d54;--fill:#2a2d33"
DARK += ";--c0:#7fb2ff;--c1:#ffa95e;--c2:#5fd3a5;--c3:#f08ac9;--c4:#b79bff"
RULES = """.pic{width:100%;height:auto;font:13px system-ui,sans-serif}
.pic text{fill:var(--ink)} .pic .soft{fill:var(--soft)}
.pic .mono{font-family:ui-monospace,monospace}
.pic .small{font-size:11px} .pic .big{font-size:15px;font-weight:600}
.pic .grid{stroke:var(--edge)} .pic .axis{stroke:var(--soft)}
.pic .box{fill:var(--fill);stroke:var(--edge)} .pic .arrow{stroke:var(--soft);fill:none;
  stroke-width:1.5}
.pic .tip{fill:var(--soft)} .pic .line{fill:none;stroke-width:2.25;stroke-linejoin:round}
"""
RULES += "\n".join(
    f".pic .s{n}{{stroke:var(--c{n})}} .pic .f{n}{{fill:var(--c{n})}}" for n in range(5)
)
STYLE = f".pic{{{LIGHT}}}\n@media (prefers-color-scheme:dark){{.pic{{{DARK}}}}}\n{RULES}\n"
SITE = f".pic{{{LIGHT}}}\n[data-md-color-scheme=slate] .pic{{{DARK}}}\n{RULES}\n"


def picture(width: int, height: int, parts: Sequence[str], label: str) -> str:
    """A whole picture; `label` is read aloud instead of it. A narrow one fits a phone unscaled."""
    narrow = ' data-narrow=""' if width <= 400 else ""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="pic"{narrow}'
    head += f' viewBox="0 0 {width} {height}"'
    head += f' style="max-width:{width}px" role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def text(
    x: float, y: float, words: str, kind: str = "", anchor: str = "start", turn: int = 0
) -> str:
    turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
    return (
        f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}"{turned}>'
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, lines: str, kind: str = "") -> str:
    """A box with centred lines of text; `kind` is the class of the text."""
    rows = lines.split("\n")
    top = y + height / 2 - 8 * (len(rows) - 1) + 4.5
    words = [text(x + width / 2, top + 16 * n, row, kind, "middle") for n, row in enumerate(rows)]
    frame = f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    return frame + "".join(words)


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight arrow, upright or level."""
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    tip = f"{x2:g},{y2:g} {x2 - 7 * dx + 4 * dy:g},{y2 - 7 * dy + 4 * dx:g}"
    tip += f" {x2 - 7 * dx - 4 * dy:g},{y2 - 7 * dy - 4 * dx:g}"
    line = f'<path class="arrow" d="M{x1:g} {y1:g}L{x2 - 6 * dx:g} {y2 - 6 * dy:g}"/>'
    return f'{line}<polygon class="tip" points="{tip}"/>'


def heat(
    x: float, y: float, cell: float, values: Sequence[Sequence[float]], color: int = 0
) -> list[str]:
    """A square for every number from 0 to 1; the darker, the larger."""
    return [
        f'<rect class="f{color}" x="{x + cell * column:g}" y="{y + cell * row:g}" width="{cell:g}"'
        f' height="{cell:g}" opacity="{max(value, 0):.2f}"/>'
        for row, numbers in enumerate(values)
        for column, value in enumerate(numbers)
        if value >= 0.005
    ] + [
        f'<rect class="axis" fill="none" x="{x:g}" y="{y:g}" width="{cell * len(values[0]):g}"'
        f' height="{cell * len(values):g}"/>'
    ]


def attention_map(
    x: float, y: float, tokens: Sequence[str], weights: Sequence[Sequence[float]], title: str
) -> tuple[list[str], float, float]:
    """A head's weights: from the token at the left to the token above. Also width and height."""
    cell, margin = 17, 8.0 * max(map(len, tokens)) + 6
    left, top = x + margin, y + margin + 22
    parts = [text(x, y + 14, title, "big"), *heat(left, top, cell, weights)]
    for n, token in enumerate(tokens):
        parts.append(text(left - 5, top + cell * n + 13, token, "mono small", "end"))
        parts.append(text(left + cell * n + 12, top - 5, token, "mono small", "start", -60))
    parts.append(text(x, y + 34, "to →", "soft small"))
    parts.append(text(x, top - 6, "from ↓", "soft small"))
    size = cell * len(tokens)
    return parts, margin + size + 30, margin + 22 + size + 6


def chart(
    lines: dict[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    label: str,
    *,
    size: tuple[int, int] = (400, 260),
    log_x: bool = False,
    dots: bool = False,
    from_zero: bool = False,
) -> str:
    """A line chart. The names stand beside the ends of the lines, so that no legend is needed."""
    width, height = size
    wide = max(map(len, lines)) * 7 + 14 if len(lines) > 1 else 12
    x = axis_over(
        [p for points in lines.values() for p, _ in points], 52, width - wide, log_x, False
    )
    heights = [p for points in lines.values() for _, p in points] + [0.0] * from_zero
    y = axis_over(heights, height - 42, 30, False, True)
    parts = axes(x, y, width - wide, height - 42, x_label, y_label)
    order = sorted(enumerate(lines.items()), key=lambda one: y.place(one[1][1][-1][1]))
    for color, (_, points) in order:
        places = [(x.place(a), y.place(b)) for a, b in points]
        path = " ".join(f"{a:g},{b:g}" for a, b in places)
        parts.append(f'<polyline class="line s{color % 5}" points="{path}"/>')
        if dots:
            parts += [
                f'<circle class="f{color % 5}" cx="{a:g}" cy="{b:g}" r="3.5"/>' for a, b in places
            ]
    # Names of lines that end close together are spread, and stay above the axis.
    ends = [y.place(points[-1][1]) + 4 for _, (_, points) in order]
    for n in range(1, len(ends)):
        ends[n] = max(ends[n], ends[n - 1] + 15)
    low = height - 46.0
    for n in reversed(range(len(ends) if len(lines) > 1 else 0)):
        ends[n] = low = min(ends[n], low)
        color, (name, points) = order[n]
        parts.append(text(x.place(points[-1][0]) + 7, low, name, f"f{color % 5}"))
        low -= 15
    return picture(width, height, parts, label)


def axes(x: Axis, y: Axis, right: float, bottom: float, x_label: str, y_label: str) -> list[str]:
    """Grid lines, ticks and labels."""
    parts = [text(8, 16, y_label, "soft"), text(right, bottom + 36, x_label, "soft", "end")]
    for place, label in y.marks():
        parts.append(f'<line class="grid" x1="52" x2="{right:g}" y1="{place}" y2="{place}"/>')
        parts.append(text(46, place + 4, label, "soft small", "end"))
    for place, label in x.marks():
        parts.append(text(place, bottom + 17, label, "soft small", "middle"))
    parts.append(f'<line class="axis" x1="52" x2="{right:g}" y1="{bottom}" y2="{bottom}"/>')
    return parts


def bars(rows: dict[str, float], label: str, form: str = "{:.0%}", width: int = 400) -> str:
    """Horizontal bars with their values, all of one kind."""
    left, top = max(map(len, rows)) * 7.2 + 14, max(rows.values())
    parts = []
    for n, (name, value) in enumerate(rows.items()):
        long = (width - left - 70) * value / top
        parts.append(text(left - 8, 22 + 30 * n, name, "", "end"))
        place = f'x="{left:g}" y="{8 + 30 * n}" width="{long:.1f}"'
        bar = f'<rect class="f0" {place} height="20" rx="3"/>'
        parts.append(bar + text(left + long + 7, 22 + 30 * n, form.format(value), "soft"))
    return picture(width, 30 * len(rows) + 8, parts, label)
