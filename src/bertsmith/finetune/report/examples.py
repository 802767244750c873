"""One example as a reader sees it: its text, what is right, what the model said."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from bertsmith.tasks.evaluate import Evaluation
from bertsmith.tasks.task import Display, Mark, Passage

LONGEST = 600  # characters of a text, around what matters
KINDS = {"correct": "good", "missed": "gold", "wrong": "bad"}


def worst(found: Evaluation, most: int) -> list[int]:
    """The errors: the wrongest first, and of those the ones the model was surest of."""
    rows = []
    for number, (good, one) in enumerate(zip(found.correctness(), found.predictions, strict=True)):
        if good < found.task.perfect:
            rows.append((good, -one.confidence, number))
    return [number for _, _, number in sorted(rows)[:most]]


def article(found: Evaluation, number: int, cell: str = "") -> str:
    """An example; with `cell`, hidden until that cell is chosen."""
    example, one = found.dataset.examples[number], found.predictions[number]
    where = f'<p class="soft">{html.escape(_place(example))}</p>'
    hidden = f' data-cell="{cell}" hidden' if cell else ""
    return f"<article{hidden}>{where}{_body(found.task.display(example, one))}</article>"


def _place(example: Any) -> str:
    where = example.where
    return f"{where.file.replace(chr(92), '/').rpartition('/')[2]}, {where.unit} {where.number}"


def _body(shown: Display) -> str:
    parts = [_passage(one) for one in shown.passages]
    if shown.label is not None and shown.prediction is not None:
        parts.append(_verdict(shown.label, shown.prediction, shown.confidence or 0.0))
    return "".join(parts)


def _passage(one: Passage) -> str:
    text = marked(one.text, one.marks) if one.marks else html.escape(_short(one.text))
    return f"<p><b>{text}</b></p>" if one.title else f"<p>{text}</p>"


def _verdict(gold: str, said: str, confidence: float) -> str:
    kind = "good" if gold == said else "bad"
    return (
        f'<p>gold <mark class="gold">{html.escape(gold)}</mark> · said '
        f'<mark class="{kind}">{html.escape(said)}</mark> '
        f'<span class="soft">{confidence:.3f}</span></p>'
    )


def marked(text: str, marks: Iterable[Mark]) -> str:
    """A text with stretches marked; where two overlap, the first stays and the other is told."""
    ordered = list(marks)
    low = max(0, min((one.start for one in ordered), default=0) - LONGEST // 2)
    high = min(len(text), max((one.end for one in ordered), default=LONGEST) + LONGEST // 2)
    out, done = ["…" if low else ""], low
    for one in ordered:
        note = one.note if one.kind == "correct" else f"{one.note} ({one.kind})".strip()
        beside = f"<small>{html.escape(note)}</small>" if note else ""
        inside = html.escape(text[one.start : one.end])
        if one.start < done:
            out.append(f'<mark class="{KINDS[one.kind]}"><i>{inside}</i>{beside}</mark>')
            continue
        out.append(html.escape(text[done : one.start]))
        out.append(f'<mark class="{KINDS[one.kind]}">{inside}{beside}</mark>')
        done = one.end
    out.append(html.escape(text[done:high]))
    return "".join(out) + ("…" if high < len(text) else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
