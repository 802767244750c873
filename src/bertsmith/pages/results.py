"""Results as HTML for notebooks: bars, tables and marked texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bertsmith.pages.page import render
from bertsmith.pages.tables import MarkedPart, bar_list, highlighted, table


def score_bars(title: str, scores: Iterable[tuple[str, float]]) -> str:
    """Named probabilities as bars, in the given order."""
    return _result(title, bodies=[_bars(scores)])


def grouped_bars(groups: Mapping[str, Iterable[tuple[str, float]]]) -> str:
    """Several lists of named probabilities, each with a heading."""
    pairs = [(table([], [[name]]), _bars(rows)) for name, rows in groups.items()]
    return _result("", bodies=[body for pair in pairs for body in pair])


def marked_text(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """A text in which spans of (start, end, label) are marked."""
    return _result("", highlighted(text, ((*span[:2], "label", span[2]) for span in spans)))


def token_row(tokens: Iterable[tuple[str, int, bool]]) -> str:
    """Tokens side by side, each (token, id, is it unknown?) with its id below."""
    parts = [MarkedPart(token, "bad" if bad else "label", str(id_)) for token, id_, bad in tokens]
    return _result("", parts, apart=True)


def score_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table whose first column names the rows."""
    return _result(title, bodies=[table(headings, rows)])


def framed(page: str, title: str) -> str:
    """A page in a frame of its own, which keeps it and the notebook apart."""
    return str(render("notebook.html", page=page, title=title))


def _bars(scores: Iterable[tuple[str, float]]) -> Markup:
    return bar_list([(name, score, f"{score:.1%}") for name, score in scores], most=1.0)


def _result(
    title: str,
    parts: Sequence[MarkedPart] = (),
    *,
    apart: bool = False,
    bodies: Sequence[Markup] = (),
) -> str:
    return str(render("result.html", title=title, parts=parts, apart=apart, bodies=bodies))
