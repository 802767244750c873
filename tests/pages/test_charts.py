"""Charts: round ticks, lines where the numbers are, labels that people and machines read."""

import math
import re
from xml.etree import ElementTree

import pytest

from bertsmith.pages import Reference, Series, line_chart, short
from bertsmith.pages.charts import BOTTOM, LEFT, RIGHT, TOP, axis_over, labels, log_ticks, ticks


def drawn(chart: str) -> ElementTree.Element:
    """The SVG of a chart, which is well-formed XML."""
    return ElementTree.fromstring(chart[chart.index("<svg") : chart.index("</svg>") + 6])


def texts(chart: str) -> list[str]:
    return [text.text or "" for text in drawn(chart).iter("text")]


def places(chart: str) -> list[list[tuple[float, float]]]:
    found = []
    for line in drawn(chart).iter("polyline"):
        pairs = (pair.split(",") for pair in line.attrib["points"].split())
        found.append([(float(x), float(y)) for x, y in pairs])
    return found


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (6.21, 9.01, [7, 8, 9]),
        (-3, 3, [-2, 0, 2]),
        (0, 1_000_000, [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]),
        (0, 3e-4, [0, 1e-4, 2e-4, 3e-4]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_ticks_of_whole_numbers() -> None:
    assert ticks(0, 12, least=1.0) == [0, 3, 6, 9, 12]
    assert ticks(0, 3, least=1.0) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 100, [1, 2, 5, 10, 20, 50, 100]),
        (3, 2e6, [10, 100, 1000, 10_000, 100_000, 1_000_000]),
        (0.7, 1.6, [0.8, 1.0, 1.2, 1.4, 1.6]),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (6.8110102, "6.811"),
        (999, "999"),
        (4000, "4,000"),
        (12_500, "12.5k"),
        (2_032_742, "2.033M"),
        (3.3e9, "3.3B"),
        (5e-4, "5e-4"),
        (-0.00012, "-1.2e-4"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_labels_of_an_axis_are_alike() -> None:
    assert labels([0.68, 0.7, 0.72]) == ["0.68", "0.70", "0.72"]
    assert labels([0, 5e-4, 1e-3]) == ["0", "5e-4", "1e-3"]
    assert labels([0, 5000, 10_000]) == ["0", "5,000", "10k"]


def test_lines_are_where_the_numbers_are() -> None:
    chart = line_chart("Loss", [Series("a", [(0, 0), (50, 5), (100, 10)])], x_label="step")
    middle = ((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2)
    assert places(chart) == [[(LEFT, BOTTOM), middle, (RIGHT, TOP)]]
    shown = texts(chart)
    assert shown[:6] == ["0", "2", "4", "6", "8", "10"]
    assert shown[6:12] == ["0", "20", "40", "60", "80", "100"]
    assert "step" in shown


def test_a_logarithmic_axis() -> None:
    points = [(0, 9), (1, 1), (10, 2), (100, 3)]  # the first has no place on it
    chart = line_chart("Loss", [Series("a", points)], x_label="step", log_x=True)
    [line] = places(chart)
    assert [x for x, _ in line] == [LEFT, (LEFT + RIGHT) / 2, RIGHT]


def test_units_references_and_legend() -> None:
    chart = line_chart(
        "Accuracy",
        [Series("training", [(0, 10), (9, 20)]), Series("held-out", [(0, 12), (9, 18)], dots=True)],
        x_label="step",
        unit="%",
        references=[Reference(15, "majority baseline")],
        from_zero=True,
    )
    assert "majority baseline: 15%" in texts(chart)
    assert {"0%", "5%", "20%"} <= set(texts(chart))
    assert re.findall(r"</i>([\w-]+)", chart) == ["training", "held-out"]
    assert chart.count("<circle") == 2
    svg = drawn(chart)
    assert svg.attrib["role"] == "img"
    assert svg.findtext("title") == "Accuracy"
    assert "held-out: from 12% at 0 to 18% at 9" in svg.attrib["aria-label"]
    assert "majority baseline: 15%" in svg.attrib["aria-label"]


@pytest.mark.parametrize("value", [9.0, 11.0])
def test_a_reference_is_labelled_where_there_is_room(value: float) -> None:
    points = [(0.0, 0.0), *((60.0 + step, value) for step in range(40)), (100.0, 20.0)]
    reference = Reference(10, "chance")
    chart = line_chart("Loss", [Series("a", points)], x_label="", references=[reference])
    line, label = (
        next(one for one in drawn(chart).iter(tag) if one.get("class") == "reference")
        for tag in ("line", "text")
    )
    above = float(label.attrib["y"]) < float(line.attrib["y1"])
    assert above == (value < 10)


def test_a_reference_below_all_points_hides_none_of_them() -> None:
    series = [Series("loss", [(step, 6.2 + 3 * 0.9**step) for step in range(100)])]
    chart = line_chart("Loss", series, x_label="", references=[Reference(6.1, "chance")])
    [label] = [one for one in drawn(chart).iter("text") if one.get("class") == "reference"]
    lowest = max(y for line in places(chart) for _, y in line)
    assert lowest + 12 < float(label.attrib["y"]) < BOTTOM


def test_the_axis_reaches_the_end_of_the_run() -> None:
    [line] = places(line_chart("Loss", [Series("a", [(0, 1), (50, 2)])], x_label="step", x_end=100))
    assert line[-1][0] == (LEFT + RIGHT) / 2


def test_what_is_not_finite_is_left_out() -> None:
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]
    chart = line_chart(
        "Loss", [Series("a", points)], x_label="", references=[Reference(math.nan, "none")]
    )
    assert [len(line) for line in places(chart)] == [2]
    assert "nan" not in chart
    assert "inf" not in chart


@pytest.mark.parametrize("points", [[], [(0, math.nan)]])
def test_no_data(points: list[tuple[float, float]]) -> None:
    chart = line_chart("Loss", [Series("a", points)], x_label="step")
    assert "No data yet." in chart
    assert "<svg" not in chart


@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
def test_one_point_and_constant_series(value: float) -> None:
    noise = [(step, value * (1 + 1e-12 * step)) for step in range(5)]
    for points in ([(7, value)], noise):
        chart = line_chart("Loss", [Series("a", points)], x_label="step")
        assert {y for line in places(chart) for _, y in line} == {(TOP + BOTTOM) / 2}
        assert len([text for text in texts(chart) if text]) > 4, "ticks are there"


@pytest.mark.parametrize(
    ("score", "top"), [(1.0, "1.0"), (0.9, "1.0"), (100.0, "100"), (95.0, "100")]
)
def test_the_axis_of_a_constant_score_ends_at_the_best_score(score: float, top: str) -> None:
    axis = axis_over([score], BOTTOM, TOP, log=False, loose=True)
    assert (axis.high, axis.marks()[-1][1]) == (float(top), top)


def test_text_is_escaped() -> None:
    chart = line_chart("<b>", [Series("</svg><script>", [(0, 1)])], x_label="&")
    assert "<script>" not in chart
    assert "<b><b>" not in chart
    drawn(chart)
