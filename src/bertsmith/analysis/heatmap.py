"""Heat maps of numbers about heads: one HTML file, without a script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from bertsmith.analysis.attention import Floats
from bertsmith.analysis.heads import METRICS, HeadNumbers
from bertsmith.files import write_text

STYLE = """
:root { color-scheme: light dark; --ground: #fbfaf8; --card: #fff; --ink: #1d1b18; --soft: #67625a;
  --line: #e2ded6; --heat: #1f5fbf; }
@media (prefers-color-scheme: dark) { :root { --ground: #16171a; --card: #1e2024; --ink: #eceae6;
  --soft: #a19d95; --line: #34373d; --heat: #7fb2ff; } }
body { margin: 0; padding: 18px 22px; background: var(--ground); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 18px; margin: 0 0 2px; } h2 { font-size: 15px; margin: 0; }
p { margin: 0 0 8px; color: var(--soft); font-size: 13px; }
main { display: grid; gap: 16px; margin-top: 14px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; min-width: 0; overflow: auto; }
section.wide { grid-column: 1 / -1; }
svg { display: block; width: 100%; max-width: 420px; height: auto; }
svg.points { max-width: 560px; } svg.points circle:hover { stroke: var(--ink); stroke-width: 2; }
svg.mark { width: 14px; height: 14px; } ul { margin: 6px 0 0; padding-left: 18px; font-size: 13px; }
svg text { fill: var(--soft); font-size: 9px; font-family: inherit; }
svg rect { fill: var(--heat); stroke: var(--line); stroke-width: 0.4; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: right; padding: 3px 18px 3px 0; font-variant-numeric: tabular-nums; }
table.guesses td { text-align: left; }
blockquote { margin: 8px 0; line-height: 2; white-space: pre-wrap; }
mark { color: inherit; background: none; padding: 3px 1px; border-radius: 3px; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
"""
# Shades, as classes: a style on an element of its own would need a laxer policy.
STYLE += "".join(
    f"mark.{kind}{step} {{ background: rgb({colour} / {0.08 * step:.2f}); }}\n"
    for kind, colour in (("for", "31 111 208"), ("against", "210 105 30"))
    for step in range(1, 10)
)
CELL = 18


def heads_page(numbers: HeadNumbers, title: str) -> str:
    """A page with a heat map for each number, and the dependency relations."""
    parts = []
    for name, about in METRICS.items():
        table = numbers.metrics[name]
        top = f"{about}; from {np.nanmin(table):.2f} to {np.nanmax(table):.2f}"
        parts.append(section(name, top, heat_map(table, name)))
    for name, one in list(numbers.relations.items())[:12]:
        about = f"dependency, found by each head ({one.direction}); best {one.accuracy:.0%}"
        table = one.table.max(0)
        parts.append(section(name, about, heat_map(table, name, most=1.0)))
    if numbers.relations:
        parts.append(_relations(numbers))
    about = f"{numbers.inputs:,} inputs, {numbers.tokens:,} tokens. Rows are layers, columns heads."
    return page(f"Heads of {title}", about, parts)


def page(title: str, about: str, parts: Sequence[str]) -> str:
    """A page of sections that may do nothing but be seen."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def heat_map(
    table: Floats,
    name: str,
    most: float | None = None,
    axes: tuple[str, str] = ("layer", "head"),
) -> str:
    """Rows of a table as squares, darker where there is more; each says its number."""
    rows, columns = table.shape
    low = min(0.0, float(np.nanmin(table)))
    reach = (float(np.nanmax(table)) if most is None else most) - low or 1.0
    width, height = (columns + 1.4) * CELL, (rows + 1.2) * CELL
    label = f"{name}: {axes[0]}s by {axes[1]}s"
    made = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">']
    made += [
        f'<text x="{(column + 1.9) * CELL:.1f}" y="{0.75 * CELL}" text-anchor="middle">'
        f"{column}</text>"
        for column in range(columns)
    ]
    for row in range(rows):
        y = (row + 1.1) * CELL
        made.append(f'<text x="{CELL}" y="{y + 0.66 * CELL:.1f}" text-anchor="end">{row}</text>')
        for column in range(columns):
            value = float(table[row, column])
            if np.isnan(value):
                continue
            depth = min(1.0, max(0.0, (value - low) / reach))
            made.append(
                f'<rect x="{(column + 1.4) * CELL:.1f}" y="{y:.1f}" width="{CELL - 1.5}" '
                f'height="{CELL - 1.5}" rx="2" fill-opacity="{np.sqrt(depth):.3f}">'
                f"<title>{axes[0]} {row}, {axes[1]} {column}: {value:.3f}</title></rect>"
            )
    return "".join(made) + "</svg>"


def section(name: str, about: str, content: str, wide: bool = False) -> str:
    """One card of a page; `content` is HTML already."""
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}><h2>{escape(name)}</h2><p>{escape(about)}</p>{content}</section>"


def _relations(numbers: HeadNumbers) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in ("relation", "words", "head", "direction", "found", "fixed distance", "found")
    )
    rows = []
    for name, one in numbers.relations.items():
        cells = [name, f"{one.count:,}", f"{one.layer}-{one.head}", one.direction]
        cells += [f"{one.accuracy:.1%}", f"{one.offset:+d}", f"{one.baseline:.1%}"]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    about = "the best head for each relation, beside always guessing the word at one distance"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return section("dependencies", about, table, wide=True)


def save_page(path: Path, content: str) -> None:
    """Write a page."""
    write_text(path, content)
