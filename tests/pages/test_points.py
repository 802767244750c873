"""Charts of named points: the Pareto front, labels, intervals."""

import math
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from analysis.browser import Watched, chromium
from bertsmith.pages import (
    ChartPoint,
    Series,
    interval_chart,
    line_chart,
    page,
    pareto_front,
    point_chart,
)

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(numbers, numbers), max_size=12))
def test_the_front_is_not_beaten(points: list[tuple[float, float]]) -> None:
    front = pareto_front(points)
    for number in front:
        x, y = points[number]
        assert not any(a <= x and b > y for a, b in points)
    best = [
        n
        for n, (x, y) in enumerate(points)
        if not any((a <= x and b > y) or (a < x and b == y) for a, b in points)
    ]
    assert {points[n] for n in best} == {points[n] for n in front}


def test_points_have_names_and_intervals() -> None:
    points = [
        ChartPoint("one", 10, 0.5, 0.4, 0.6),
        ChartPoint("two <b>", 100, 0.7, 0.65, 0.75, color=1),
        ChartPoint("lost", math.nan, 0.7),
    ]
    chart = str(point_chart("Cost", points, x_label="FLOPs", y_label="score", log_x=True))
    assert chart.count("<circle") == 2
    assert chart.count('class="whisker') == 2
    assert "two &lt;b&gt;" in chart
    assert "lost" not in chart
    assert "<polyline" in chart  # from the cheap one to the better one
    assert "No data yet" in str(point_chart("Cost", [], x_label="x", y_label="y"))


def test_labels_do_not_cover_each_other() -> None:
    points = [ChartPoint(f"variant-{n}", 10.0, 0.5) for n in range(5)]
    chart = str(point_chart("Cost", points, x_label="x", y_label="y"))
    rows = re.findall(r'<text class="point" x="([-\d.]+)" y="([\d.]+)"', chart)
    assert len(set(rows)) == 5


def test_intervals() -> None:
    rows = [
        ChartPoint("one", 0, 0.5, 0.4, 0.6),
        ChartPoint("two", 0, 0.7),
        ChartPoint("nan", 0, math.nan),
    ]
    chart = str(interval_chart("Scores", rows))
    assert chart.count("<circle") == 2
    assert chart.count('class="whisker') == 1
    assert "0.5 (0.4 to 0.6)" in chart
    assert "No data yet" in str(interval_chart("Scores", []))


def test_a_page_with_points_and_lines_runs(tmp_path: Path) -> None:
    """The script reads the lines of line charts only: a Pareto front carries no values."""
    charts = [
        point_chart(
            "Cost", [ChartPoint("one", 1, 0.5), ChartPoint("two", 2, 0.7)], x_label="x", y_label="y"
        ),
        line_chart("Loss", [Series("loss", [(0.0, 2.0), (10.0, 1.0)])], x_label="step"),
    ]
    file = tmp_path / "page.html"
    empty: dict[str, list[str]] = {
        key: [] for key in ("names", "rows", "differences", "notes", "tree")
    }
    file.write_text(page("runs.html", "Runs", **empty, objectives=[("all", charts)]), "utf-8")
    with chromium() as browser:
        watched = Watched(browser, file)
        watched.page.locator("svg").nth(1).hover()
        assert watched.page.locator("output").text_content() != ""
        assert watched.faults == []
