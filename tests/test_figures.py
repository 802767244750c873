"""Figures in docs/speed.md are those that benchmarks stored."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# What a table shows beside results: rounds of a measurement whose median is stored.
EXPLAINED = {"4,023", "4,005", "3,183"}
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w%.]|,\d| ?x\b)")


def values(content: Any) -> Iterator[float]:
    """Yield all numbers of a JSON document."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from values(part)
    elif isinstance(content, int | float):
        yield float(content)


def measured_columns(section: str) -> Iterator[tuple[str, str]]:
    """Yield the (row, cell) of a section's tables, except for columns of goals."""
    columns: list[str] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif "---" not in line:
            pairs = zip(columns[1:], cells[1:], strict=True)
            yield from ((cells[0], cell) for column, cell in pairs if column != "goal")


def unproved(section: str, stored: list[float]) -> list[str]:
    """Return the numbers of a section's tables that are no rounded value, nor thousands of one."""
    wrong = []
    for row, cell in measured_columns(section):
        for text in NUMBER.findall(cell):
            number, digits = float(text.replace(",", "")), len(text.partition(".")[2])
            error = 0.5000001 * 10**-digits
            near = any(abs(value / unit - number) <= error for value in stored for unit in (1, 1e3))
            if text not in EXPLAINED and not near:
                wrong.append(f"{row}: {text}")
    return wrong


@pytest.mark.parametrize(
    ("title", "end"), [("One H200", "\n## "), ("int8 on a CPU", "\nMatMulNBits")]
)
def test_tables_show_what_was_measured(title: str, end: str) -> None:
    page = (ROOT / "docs" / "speed.md").read_text("utf-8")
    section = page.partition(f"\n## {title}\n")[2].partition(end)[0]
    names = set(re.findall(r"\b(\w+)\.(?:json|py)\b", section))
    files = [RESULTS / f"{name}.json" for name in sorted(names)]
    stored = [
        value
        for file in files
        if file.exists()
        for value in values(json.loads(file.read_text("utf-8")))
    ]
    assert unproved(section, stored) == []


def test_other_figures_are_seen() -> None:
    table = "| work | ours | goal |\n| --- | --- | --- |\n| steps | 1,087 and 5.25, 2.05 x | 99 |\n"
    assert unproved(table, [1_086_800.0, 5.2504]) == []
    assert unproved(table, [1_086_400.0, 5.26]) == ["steps: 1,087", "steps: 5.25"]
