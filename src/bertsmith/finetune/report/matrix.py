"""The confusion matrix, and the examples behind each of its cells."""

from __future__ import annotations

import html
from collections.abc import Sequence

from bertsmith.finetune.report.examples import article
from bertsmith.metrics import confusion
from bertsmith.metrics.labels import known
from bertsmith.tasks.evaluate import Evaluation

LABELS = 40  # above so many the matrix shows those that are most often wrong
EACH = 25  # examples behind a cell
ALL = 3000  # and in the whole file


def names_of(found: Evaluation) -> list[str]:
    """The labels that the matrix shows; none where there is no matrix."""
    sides = found.task.classes(found.dataset, found.values)
    if sides is None:
        return []
    gold, said = sides
    names = known(gold, said)
    if len(names) <= LABELS:
        return names
    wrong = dict.fromkeys(names, 0)
    for one, other in zip(gold, said, strict=True):
        wrong[one] += one != other
        wrong[other] += one != other
    often = set(sorted(names, key=lambda name: -wrong[name])[:LABELS])
    return [name for name in names if name in often]


def matrix(found: Evaluation, names: Sequence[str]) -> str:
    """The table, `{told}` where a line is to stand, and the examples, hidden until asked for."""
    gold, said = _sides(found)
    place = {name: number for number, name in enumerate(names)}
    everything = known(gold, said)
    counts = confusion(gold, said, everything)
    rows = []
    for one in names:
        row = counts[everything.index(one)]
        cells = [_cell(one, two, int(row[everything.index(two)]), place) for two in names]
        rows.append(f"<tr><th>{html.escape(one)}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    shown = _examples(found, gold, said, place)
    left = len(everything) - len(names)
    more = f'<p class="soft">{left} labels with fewer errors are not shown.</p>' if left else ""
    return (
        f'<table class="matrix"><tr><th></th>{head}</tr>\n{chr(10).join(rows)}</table>{more}'
        f'{{told}}<div id="cell-examples" hidden>{shown}</div>'
    )


def _cell(one: str, two: str, count: int, place: dict[str, int]) -> str:
    if not count:
        return "<td></td>"
    kind = "right" if one == two else "wrong"
    title = html.escape(f"{one} taken for {two}" if one != two else f"{one}, and so said")
    return (
        f'<td class="{kind}"><button type="button" data-cell="{place[one]}-{place[two]}" '
        f'data-count="{count}" aria-pressed="false" title="{title}">{count:,}</button></td>'
    )


def _examples(
    found: Evaluation, gold: Sequence[str], said: Sequence[str], place: dict[str, int]
) -> str:
    """A few examples of every cell; errors first where the file would grow too large."""
    each: dict[tuple[str, str], list[int]] = {}
    for number, pair in enumerate(zip(gold, said, strict=True)):
        if pair[0] in place and pair[1] in place:
            each.setdefault(pair, []).append(number)
    cells = sorted(each, key=lambda pair: pair[0] == pair[1])
    size = max(1, min(EACH, ALL // max(1, len(cells))))
    return "\n".join(
        article(found, number, cell=f"{place[pair[0]]}-{place[pair[1]]}")
        for pair in cells
        for number in each[pair][:size]
    )


def _sides(found: Evaluation) -> tuple[list[str], list[str]]:
    sides = found.task.classes(found.dataset, found.values)
    assert sides is not None
    return sides
