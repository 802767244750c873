"""What is drawn in a terminal."""

import io

import pytest
from rich.console import Console, RenderableType

from bertsmith.demo.introduction import Introduction, Near
from bertsmith.demo.pretraining import Pretraining, Round
from bertsmith.demo.terminal import (
    Progress,
    Terminal,
    chart,
    embedding,
    filled,
    guesses,
    near,
    pretraining,
    tagged,
)
from bertsmith.demo.vocabulary import Piece
from bertsmith.tasks.task import Display, Mark, Passage
from demo.conftest import Made


def drawn(picture: RenderableType, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(picture)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_a_chart_falls_with_the_loss() -> None:
    lines = drawn(chart([(n / 100, 8 - n / 20) for n in range(101)], 47, 5), 47)
    assert len(lines) == 6
    assert lines[0].startswith(" 7.95 │█")
    assert lines[4].startswith(" 3.")
    heights = [
        sum(line[7:][place : place + 1] not in ("", " ") for line in lines[:5])
        for place in range(40)
    ]
    assert heights == sorted(heights, reverse=True)
    assert (heights[0], heights[-1]) == (5, 1)


def test_a_chart_of_half_the_time_is_half_full() -> None:
    lines = drawn(chart([(n / 200, 8 - n / 20) for n in range(101)], 47, 5), 47)
    assert 26 <= len(lines[4]) <= 28


def test_a_chart_of_nothing() -> None:
    assert len(drawn(chart([], 47, 5), 47)) == 6


def test_guesses_tell_their_history() -> None:
    words = ["a", "a", "the", "list", "list"]
    rounds = [Round(float(n), [[(word, 0.25)]]) for n, word in enumerate(words)]
    (line,) = drawn(guesses(Pretraining(["Return [MASK] now."], rounds=rounds), 78), 78)
    assert line.split() == ["Return", "list", "now.", "25%", "←", "the", "←", "a"]


def test_a_meeting_tells_guesses_and_neighbours() -> None:
    ranked = [("tea", 0.5), ("milk", 0.25), ("soup", 0.1)]
    met = Introduction("a", 1, ["Hot [MASK]."], [ranked], [Near("One.", "Two.", 0.5)])
    assert drawn(filled(met, 78), 78)[0].split() == ["Hot", "tea.", "50%", "or", "milk,", "soup"]
    assert drawn(near(met, 78), 78) == ["One. → Two. 0.50"]


def test_the_demos_own_sentences_stand_on_a_line_each(made: Made) -> None:
    for picture in (filled(made.results.introduction, 78), near(made.results.introduction, 78)):
        assert len(drawn(picture, 78)) == 4


def test_a_line_of_nothing_is_an_empty_line() -> None:
    stream = io.StringIO()
    Terminal(Console(file=stream, width=60), 1).say()
    assert stream.getvalue().isspace()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30)])
def test_pretraining_fits_the_terminal(made: Made, width: int, height: int) -> None:
    picture = pretraining(made.results.pretraining, width - 2, height)
    lines = drawn(picture, width - 2)
    assert len(lines) <= height - 3
    assert all(len(line) <= width - 2 for line in lines)


def test_names_are_marked_where_there_is_no_colour() -> None:
    marks = (Mark(4, 7, "correct"), Mark(8, 11, "missed"), Mark(12, 13, "wrong"))
    shown = Display((Passage("see a_b c_d e", marks),))
    expected = ["· see [a_b] <c_d> {e}", "[correct]  <missed>  {wrong}"]
    assert drawn(tagged([shown], coloured=False), 60) == expected
    assert drawn(tagged([shown], coloured=True), 60)[0] == "· see a_b c_d e"


def test_tokens_wrap_where_the_terminal_ends() -> None:
    pieces = [Piece("token", 7, n // 12, n) for n in range(24)]
    lines = drawn(embedding(pieces, 60), 60)
    shown = [
        word for line in lines if "position" in line for word in line.split() if word.isdigit()
    ]
    assert shown == [str(n) for n in range(24)]
    assert sum(line.count(" A") for line in lines if "segment" in line) == 12


def test_a_live_view_keeps_its_last_picture() -> None:
    stream = io.StringIO()
    view = Terminal(Console(file=stream, width=60, force_terminal=True), 1)
    with view.moving("thinking") as update:
        update(lambda: "the first", "")
        update(lambda: "the last", "")  # too soon after the first to be drawn at once
    assert "the last" in stream.getvalue()


def test_without_a_terminal_lines_come_seldom() -> None:
    stream = io.StringIO()
    view = Terminal(Console(file=stream, width=60), 1)
    with view.moving("thinking") as update:
        for number in range(5):
            update(lambda: "picture", f"line {number}")
    assert stream.getvalue().split() == ["line", "0"]


def test_the_last_picture_of_fine_tuning_has_the_scores_of_the_last_epoch() -> None:
    stream = io.StringIO()
    view = Terminal(Console(file=stream, width=100, force_terminal=True), 1)
    with view.moving("training") as update:
        progress = Progress(update)
        progress.step(10, 10, 0.5)
        progress.epoch({"epoch": 1, "accuracy": 0.25})
    assert "epoch 1: accuracy 25.0%" in stream.getvalue()
