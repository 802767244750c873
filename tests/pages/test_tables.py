"""Tables, bar lists, heat maps, confusion matrices, and texts with marks."""

import math
import re

from bertsmith.pages import (
    bar_list,
    class_bars,
    confusion_matrix,
    heat_map,
    highlighted,
    number,
    render,
    scatter,
    shade,
    table,
)

HOSTILE = '"><script>alert(1)</script>'


def test_numbers() -> None:
    shown = [number(value) for value in (0.5, 0.0, 12.0, 1234, 1e-5, 0.12345, None, "text")]
    assert shown == ["0.5000", "0.0000", "12", "1,234", "1e-05", "0.1235", "", "text"]


def test_tables_align_numbers() -> None:
    text = table(("", "score", "kind"), [("a", 0.5, "long"), ("b", None, "<b>")])
    assert '<th scope="col" class="number">score</th><th scope="col">kind</th>' in text
    assert '<td class="number">0.5000</td><td>long</td>' in text
    assert "&lt;b&gt;" in text


def test_bars_are_as_long_as_their_values() -> None:
    text = bar_list([("a", 2.0, "two"), (HOSTILE, -1.0, "one"), ("c", 9.0, "nine")], most=4.0)
    assert re.findall(r'width="([\d.]+)"', text) == ["50.0", "25.0", "100.0"]
    assert re.findall(r'class="(weak|below)"', text) == ["below"]
    assert HOSTILE not in text
    assert "width" not in bar_list([])


def test_heat_maps_shade_and_number_every_cell() -> None:
    values = [[0.0, 0.5], [1.0, math.nan]]
    text = heat_map(values, rows=["0", "1"], columns=["0", "1"], label="x")
    cells = re.findall(r"<td(?: class=\"(s\d)\")?>([^<]*)</td>", text)
    assert cells == [("", "0"), ("s6", ".50"), ("s9", "1"), ("", "")]
    large = heat_map([[3.14159, 22.0]], rows=["0"], columns=["0", "1"], label="x")
    assert re.findall(r"<td[^>]*>([^<]*)</td>", large) == ["3", "22"]
    middle = heat_map([[2.71828]], rows=["0"], columns=["0"], label="x")
    assert ">2.7</td>" in middle
    bare = heat_map(values, rows=["a", HOSTILE], columns=["b", "c"], label="x", numbers=False)
    assert 'title="a → c: .50"' in bare
    assert HOSTILE not in bare


def test_confusion_matrices_turn_many_headings() -> None:
    few = confusion_matrix([[3, 1], [0, 2]], ["a", "b & c"])
    assert "turned" not in few
    assert few.count("data-cell=") == 3
    assert 'data-count="1" data-row="25.0" data-column="33.3"' in few
    assert 'data-cell="0-1" data-count="1"' in few
    assert 'title="a predicted as b &amp; c"' in few
    assert re.findall(r'<td class="(\w)\d">', few) == ["s", "n", "s"]
    names = [f"label {n}" for n in range(12)]
    many = confusion_matrix([[int(a == b) for b in range(12)] for a in range(12)], names)
    assert many.count('class="turned"') == 12


def test_heat_maps_turn_long_headings_only() -> None:
    numbers = [str(n) for n in range(12)]
    assert "turned" not in heat_map([[0.5] * 12], rows=["0"], columns=numbers, label="x")
    words = [f"word {n}" for n in range(12)]
    assert heat_map([[0.5] * 12], rows=["0"], columns=words, label="x").count('"turned"') == 12


def test_bars_of_classes() -> None:
    text = class_bars([("a & b", 0.5, 1.0, 0.6667, 10.0), ("c", 0.0, 0.0, 0.0, 5.0)])
    assert "a &amp; b" in text
    assert re.findall(r'width="([\d.]+)"', text)[:4] == ["66.7", "50.0", "100.0", "100.0"]
    assert "66.7%" in text
    assert "1,000" in class_bars([("a", 1.0, 1.0, 1.0, 1000.0)])


def test_shades() -> None:
    assert [shade(x) for x in (0, 0.01, 0.5, 1, 2, -0.5, -1)] == [0, 0, 4, 9, 9, -4, -9]


def marked(text: str, spans: list[tuple[int, int, str, str]]) -> str:
    example = {"passages": [(False, highlighted(text, spans))], "where": "", "label": None}
    example |= {"cell": "", "prediction": None}
    article = render("example.html", example=example)
    return article.partition("<p>")[2].partition("</p>")[0]


def test_marks() -> None:
    text = "a <b> in Paris, France"
    assert marked(text, [(9, 14, "good", "LOC"), (16, 22, "bad", "ORG")]) == (
        'a &lt;b&gt; in <mark class="good">Paris<small>LOC</small></mark>, '
        '<mark class="bad">France<small>ORG</small></mark>'
    )
    assert marked(text, [(9, 22, "label", "LOC"), (9, 14, "bad", "LOC")]).count("<mark") == 2
    assert marked(text, [(9, 22, "label", "LOC (missed)"), (9, 14, "bad", "PER (wrong)")]) == (
        'a &lt;b&gt; in <mark class="bad">Paris<small>PER (wrong)</small></mark>'
        '<mark class="label">, France<small>LOC (missed)</small></mark>'
    )
    twice = marked(text, [(9, 14, "label", "label"), (9, 22, "label", "label"), (9, 14, "bad", "")])
    assert twice.count("Paris") == twice.count("<small>") == 1
    far = marked("x" * 5000 + "Paris" + "y" * 5000, [(5000, 5005, "good", "LOC")])
    assert len(far) < 1000
    assert (far[0], far[-1]) == ("…", "…")


def test_points() -> None:
    text = scatter("a plane", [(0.0, 0.0, 0, HOSTILE), (1.0, 0.5, 9, "b")])
    assert re.findall(r'class="dot (c\d)"', text) == ["c0", "c1"]
    assert HOSTILE not in text
    named = scatter("two", [(0.0, 0.0, 0, "a"), (1.0, 0.5, 1, "b")], ["x & y", "z"])
    assert re.findall(r'class="name".*>(.*)</text>', named) == ["x &amp; y", "z"]
    assert 'text-anchor="start">x &amp; y' in named  # names near an edge grow inwards
    assert 'text-anchor="end">z' in named
    assert "<circle" in scatter("one", [(2.0, 2.0, 0, "a")])
    many = [(n % 10, n // 10, 0, "a") for n in range(100)] + [(1000.0, -1000.0, 0, "far")]
    drawn = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', scatter("an outlier", many))
    assert len({x for x, _ in drawn}) > 9  # others are not pushed together
