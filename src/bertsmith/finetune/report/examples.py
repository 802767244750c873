"""One example as a reader sees it: its text, what is right, what the model said."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from bertsmith.data import Options, Question, Tagged, chunks
from bertsmith.tasks.evaluate import Evaluation, rightness
from bertsmith.tasks.predict import Prediction

LONGEST = 600  # characters of a text, around what matters
Mark = tuple[int, int, str, str]  # start, end, class, what stands beside it


def worst(found: Evaluation, most: int) -> list[int]:
    """The errors: the wrongest first, and of those the ones the model was surest of."""
    rows = []
    pairs = zip(found.dataset.examples, found.predictions, strict=True)
    for number, (example, one) in enumerate(pairs):
        if _related(example):
            continue
        good = rightness(example, one.value)
        numeric = hasattr(example, "score")
        if good < (0.0 if numeric else 1.0):
            rows.append((good, -one.confidence, number))
    return [number for _, _, number in sorted(rows)[:most]]


def _related(example: Any) -> bool:
    return hasattr(example, "anchor")


def article(found: Evaluation, number: int, cell: str = "") -> str:
    """An example; with `cell`, hidden until that cell is chosen."""
    example, one = found.dataset.examples[number], found.predictions[number]
    where = f'<p class="soft">{html.escape(_place(example))}</p>'
    hidden = f' data-cell="{cell}" hidden' if cell else ""
    return f"<article{hidden}>{where}{_body(example, one)}</article>"


def _place(example: Any) -> str:
    where = example.where
    return f"{where.file.replace(chr(92), '/').rpartition('/')[2]}, {where.unit} {where.number}"


def _body(example: Any, one: Prediction) -> str:
    if isinstance(example, Tagged):
        return _tagged(example, one)
    if isinstance(example, Question):
        return _question(example, one)
    if isinstance(example, Options):
        return _options(example, one)
    texts = "".join(f"<p>{html.escape(_short(text))}</p>" for text in example.texts)
    return texts + _verdict(_said(example), _spoken(one.value), one.confidence)


def _tagged(example: Tagged, one: Prediction) -> str:
    """Entities (of other tags: the words that are wrong) where they stand."""
    gold, said = set(chunks(example.tags or ())), set(chunks(one.value))
    spelled = "entities" in one.shown
    marks: list[Mark] = []
    if spelled:
        for chunk in gold | said:
            start, end = example.offsets[chunk.start][0], example.offsets[chunk.stop - 1][1]
            kind = "good" if chunk in gold & said else "gold" if chunk in gold else "bad"
            beside = chunk.type + {"good": "", "gold": " (missed)", "bad": " (wrong)"}[kind]
            marks.append((start, end, kind, beside))
    else:
        for place, (right, tag) in enumerate(zip(example.tags or (), one.value, strict=True)):
            if right != tag:
                marks.append((*example.offsets[place], "bad", f"{tag}, not {right}"))
    return f"<p>{marked(example.text, marks)}</p>"


def _question(example: Question, one: Prediction) -> str:
    """The passage with the gold answers and the one that was given."""
    marks: list[Mark] = []
    best = next(iter(one.shown.get("answers", ())), None)
    places = {(span.start, span.end) for span in example.answers or () if span.start >= 0}
    if best is not None and one.value:
        kind = "good" if (best["start"], best["end"]) in places else "bad"
        marks.append((best["start"], best["end"], kind, "said"))
        places.discard((best["start"], best["end"]))
    marks += [(start, end, "gold", "gold") for start, end in sorted(places)]
    gold = " | ".join(dict.fromkeys(span.text for span in example.answers or ())) or "no answer"
    said = one.value or "no answer"
    return (
        f"<p><b>{html.escape(example.question)}</b></p><p>{marked(example.passage, marks)}</p>"
        + _verdict(gold, said, one.confidence)
    )


def _options(example: Options, one: Prediction) -> str:
    rows = []
    for number, option in enumerate(example.options):
        right, said = number == example.label, number == one.value
        kind = "good" if right and said else "gold" if right else "bad" if said else ""
        text = html.escape(_short(option))
        rows.append(f'<p><mark class="{kind}">{text}</mark></p>' if kind else f"<p>{text}</p>")
    return f"<p><b>{html.escape(_short(example.prompt))}</b></p>" + "".join(rows)


def _verdict(gold: str, said: str, confidence: float) -> str:
    kind = "good" if gold == said else "bad"
    return (
        f'<p>gold <mark class="gold">{html.escape(gold)}</mark> · said '
        f'<mark class="{kind}">{html.escape(said)}</mark> '
        f'<span class="soft">{confidence:.3f}</span></p>'
    )


def _said(example: Any) -> str:
    for name in ("label", "labels", "score"):
        if hasattr(example, name):
            return _spoken(getattr(example, name))
    return ""


def _spoken(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(sorted(value)) or "none"
    return str(value)


def marked(text: str, marks: Iterable[Mark]) -> str:
    """A text with stretches marked; where two overlap, the first stays and the other is told."""
    ordered = sorted(marks)
    low = max(0, min((one[0] for one in ordered), default=0) - LONGEST // 2)
    high = min(len(text), max((one[1] for one in ordered), default=LONGEST) + LONGEST // 2)
    out, done = ["…" if low else ""], low
    for start, end, kind, beside in ordered:
        note = f"<small>{html.escape(beside)}</small>"
        if start < done:
            inside = html.escape(text[start:end])
            out.append(f'<mark class="{kind}"><i>{inside}</i>{note}</mark>')
            continue
        out.append(html.escape(text[done:start]))
        out.append(f'<mark class="{kind}">{html.escape(text[start:end])}{note}</mark>')
        done = end
    out.append(html.escape(text[done:high]))
    return "".join(out) + ("…" if high < len(text) else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
