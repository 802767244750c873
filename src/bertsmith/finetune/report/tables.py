"""Tables: scores, classes, calibration."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from bertsmith.metrics import calibration
from bertsmith.tasks.evaluate import Evaluation


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An HTML table."""
    first = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{_cell(x)}</td>' for x in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>\n{body}\n</tbody></table>\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and value > 1 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else html.escape(str(value))


def per_class(found: Evaluation) -> str:
    """Precision, recall and F1 of every label, or of every type of entity."""
    scores = found.task.per_class(found.dataset, found.values)
    if not scores:
        return ""
    rows = [(name, one.precision, one.recall, one.f1, one.support) for name, one in scores.items()]
    return table(("", "precision", "recall", "F1", "gold"), rows)


def calibrated(found: Evaluation) -> str:
    """How often predictions of each confidence are right."""
    right = found.task.correct(found.dataset, found.values)
    if right is None:
        return ""
    made = calibration([min(1.0, max(0.0, one.confidence)) for one in found.predictions], right)
    rows = [
        (f"{one.low:.2f} to {one.high:.2f}", one.count, one.confidence, one.accuracy)
        for one in made.bins
    ]
    told = f'<p class="soft">Expected calibration error {made.expected:.4f}.</p>'
    return told + table(("confidence", "predictions", "mean confidence", "right"), rows)
