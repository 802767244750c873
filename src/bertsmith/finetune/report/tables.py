"""Tables: scores, classes, calibration."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from bertsmith.metrics import calibration, entity_scores, per_label
from bertsmith.metrics.labels import Score, score
from bertsmith.tasks.evaluate import Evaluation, gold


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
    examples, values = found.dataset.examples, [one.value for one in found.predictions]
    scores: dict[str, Score]
    match found.dataset.task:
        case "classification":
            scores = per_label([example.label for example in examples], values)
        case "multilabel":
            scores = _several(examples, values)
        case "tagging" if found.dataset.scheme:
            scores = entity_scores([example.tags for example in examples], values).types
        case "tagging":
            both = ([tag for e in examples for tag in e.tags], [tag for v in values for tag in v])
            scores = per_label(*both)
        case _:
            return ""
    rows = [(name, one.precision, one.recall, one.f1, one.support) for name, one in scores.items()]
    return table(("", "precision", "recall", "F1", "gold"), rows)


def _several(examples: Sequence[Any], values: Sequence[Any]) -> dict[str, Score]:
    pairs = [(set(e.labels), set(v)) for e, v in zip(examples, values, strict=True)]
    names = sorted({name for both in pairs for side in both for name in side})
    return {
        name: score(
            sum(name in g and name in v for g, v in pairs),
            sum(name in v for _, v in pairs),
            sum(name in g for g, _ in pairs),
        )
        for name in names
    }


def calibrated(found: Evaluation) -> str:
    """How often predictions of each confidence are right."""
    if found.dataset.task not in ("classification", "choice"):
        return ""
    pairs = list(zip(found.dataset.examples, found.predictions, strict=True))
    right = [one.value == gold(example) for example, one in pairs]
    made = calibration([min(1.0, max(0.0, one.confidence)) for _, one in pairs], right)
    rows = [
        (f"{one.low:.2f} to {one.high:.2f}", one.count, one.confidence, one.accuracy)
        for one in made.bins
    ]
    told = f'<p class="soft">Expected calibration error {made.expected:.4f}.</p>'
    return told + table(("confidence", "predictions", "mean confidence", "right"), rows)
