"""Terminal output of the demo: pre-training, tokens, scores, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bertsmith.demo.forging import Lesson, Piece
from bertsmith.demo.meeting import Met
from bertsmith.demo.tuning import Shown, Tuned, Words
from bertsmith.demo.worth import Worth

EIGHTHS = " ▁▂▃▄▅▆▇█"
MASK = "[MASK]"
SEGMENTS = ("cyan", "magenta")
# Is a word a name, and does the model say so: how that is shown, and where there is no colour.
MARKS = {
    (True, True): ("bold green", "[]"),
    (True, False): ("underline red", "<>"),
    (False, True): ("yellow", "{}"),
}


def pretraining(lesson: Lesson, width: int, height: int) -> RenderableType:
    """The loss, what is right, and the guesses, as high as a terminal allows."""
    rows = max(4, min(9, height - 17))
    words, pairs = lesson.recent
    numbers = Text.assemble(
        "masked tokens ",
        (f"{words:.0%}", "bold green"),
        " accuracy   next sentence ",
        (f"{pairs:.0%}", "bold green"),
        (f"   {lesson.tokens:,} tokens, {lesson.speed:,.0f} a second", "dim"),
    )
    bar = Table.grid(padding=(0, 1))
    left = clock(lesson.left) + " left" if lesson.done < 1 else "done"
    bar.add_row(ProgressBar(1.0, lesson.done, width=width - 12), Text(left, "dim"))
    return Group(chart(lesson.curve, width, rows), numbers, bar, Text(), guesses(lesson, width))


def line(lesson: Lesson) -> str:
    """Pre-training in one line."""
    words, pairs = lesson.recent
    loss = f"loss {lesson.curve[-1][1]:.2f}" if lesson.curve else "nothing learned yet"
    return (
        f"{lesson.seconds:3.0f} s  step {lesson.step:,}  {loss}  masked tokens {words:.0%}  "
        f"next sentence {pairs:.0%}"
    )


def chart(points: Sequence[tuple[float, float]], width: int, height: int) -> Text:
    """A curve of (share of the time, loss) as columns; its highest and lowest value beside it."""
    room = width - 7
    columns: list[list[float]] = [[] for _ in range(room)]
    for share, value in points:
        columns[min(room - 1, int(share * room))].append(value)
    means = _filled([sum(column) / len(column) if column else None for column in columns])
    known = [mean for mean in means if mean is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    reach = max(high - low, 1e-9)
    made = Text(no_wrap=True)
    for row in range(height):
        label = f"{high:5.2f} " if row == 0 else f"{low:5.2f} " if row == height - 1 else " " * 6
        made.append(("loss  " if row == 1 else label) + "│", "dim")
        floor = (height - 1 - row) * 8
        # The lowest column is one eighth high, so that it is seen.
        tops = [0 if m is None else 1 + (m - low) / reach * (8 * height - 1) for m in means]
        made.append("".join(EIGHTHS[max(0, min(8, round(top - floor)))] for top in tops), "cyan")
        made.append("\n")
    made.append(" " * 6 + "╰" + "─" * room, "dim")
    return made


def _filled(means: Sequence[float | None]) -> list[float | None]:
    """Columns between two known ones take the value of the one before them."""
    last = max((place for place, mean in enumerate(means) if mean is not None), default=-1)
    made: list[float | None] = []
    for place, mean in enumerate(means):
        before = made[-1] if made else None
        made.append(mean if mean is not None or place > last else before)
    return made


def guesses(lesson: Lesson, width: int) -> RenderableType:
    """Each sentence with the best guess in place, and the guesses that came before."""
    before = []
    for number in range(len(lesson.sentences)):
        best = (one.guesses[number][0][0] for one in lesson.rounds)
        story = [token for token, _ in groupby(best)]  # an unchanged guess is shown once
        path = " ← ".join(reversed(story[-4:-1]))
        before.append(f"← {path}" if path else "")
    last = [ranked[0] for ranked in lesson.rounds[-1].guesses]
    return _in_place(lesson.sentences, last, before, width)


def filled(met: Met, width: int) -> RenderableType:
    """Each sentence with the best guess in place, and the next best."""
    others = ["or " + ", ".join(token for token, _ in ranked[1:]) for ranked in met.guesses]
    return _in_place(met.sentences, [ranked[0] for ranked in met.guesses], others, width)


def _in_place(
    sentences: Sequence[str], best: Sequence[tuple[str, float]], notes: Sequence[str], width: int
) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    longest = max(map(len, sentences)) + 4  # a guess may be longer than the mask's name
    table.add_column(no_wrap=True, width=longest)
    table.add_column(justify="right", no_wrap=True, width=4)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(10, width - longest - 10))
    for sentence, (token, score), note in zip(sentences, best, notes, strict=True):
        before, _, after = sentence.partition(MASK)
        shown = Text.assemble(before, (token, "bold magenta"), after)
        table.add_row(shown, Text(f"{score:.0%}", "magenta"), Text(note, "dim"))
    return table


def near(met: Met, width: int) -> RenderableType:
    """Sentences with the one that is nearest to each."""
    table = Table.grid(padding=(0, 1))
    for _ in range(2):
        table.add_column(max_width=width // 2 - 5)
    for one in met.near:
        table.add_row(Text(one.text), Text(f"→ {one.nearest}", "cyan"), f"{one.cosine:.2f}")
    return table


def embedding(pieces: Sequence[Piece], width: int) -> RenderableType:
    """Tokens over their segments and positions: what is added up for each."""
    parts: list[RenderableType] = []
    rest = list(pieces)
    while rest:
        row: list[Piece] = []
        while rest and (not row or sum(len(one.token) + 2 for one in [*row, rest[0]]) < width - 10):
            row.append(rest.pop(0))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=len("+ position"))
        for _ in row:
            table.add_column(justify="center")
        colour = [SEGMENTS[one.segment % 2] for one in row]
        pairs = list(zip(row, colour, strict=True))
        table.add_row(Text("token", "dim"), *(Text(one.token, f"bold {c}") for one, c in pairs))
        table.add_row(
            Text("+ segment", "dim"), *(Text("AB"[one.segment % 2], c) for one, c in pairs)
        )
        table.add_row(Text("+ position", "dim"), *(Text(str(one.position)) for one in row))
        parts += [table, Text()]
    return Group(*parts[:-1])


def scores(tuned: Tuned, what: str) -> RenderableType:
    """The score of the model and of its baselines."""
    table = Table.grid(padding=(0, 1))
    for number, (name, value) in enumerate(tuned.bars, 1):
        style = "green" if number == len(tuned.bars) else "dim"
        bar = ProgressBar(1.0, value, width=24, complete_style=style, finished_style=style)
        table.add_row(Text(name, style), bar, Text(f"{value:.1%} {what}", f"bold {style}"))
    return table


def starts(worth: Worth) -> RenderableType:
    """The F1 of the tagger by the model it was trained from."""
    table = Table.grid(padding=(0, 1))
    for start, style in zip(worth.starts, ("dim", "yellow", "green"), strict=True):
        bar = ProgressBar(1.0, start.f1, width=24, complete_style=style, finished_style=style)
        table.add_row(Text(start.name, style), bar, Text(f"{start.f1:.1%} F1", f"bold {style}"))
    return table


def texts(shown: Sequence[Shown], width: int) -> RenderableType:
    """Held-out texts with what the model says, and what is right where that is something else."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=width - 30)
    for one in shown:
        right = one.gold == one.said
        said = Text(f"{one.said} {one.sure:.0%}", "green" if right else "red")
        table.add_row(Text(one.text), said, Text("" if right else f"is {one.gold}", "dim"))
    return table


def tagged(sentences: Sequence[Words], coloured: bool) -> RenderableType:
    """Held-out sentences: names that are correct, missed and wrong."""
    lines = []
    for one in sentences:
        line = Text("· ", "dim")
        for word, gold, said in one.words:
            line.append_text(_marked(word, MARKS.get((gold, said)), coloured))
            line.append(" ")
        lines.append(line)
    legend = Text("  ").join(
        _marked(name, mark, coloured)
        for name, mark in zip(("correct", "missed", "wrong"), MARKS.values(), strict=True)
    )
    return Group(*lines, legend)


def _marked(word: str, mark: tuple[str, str] | None, coloured: bool) -> Text:
    if mark is None:
        return Text(word)
    style, signs = mark
    return Text(word, style) if coloured else Text(f"{signs[0]}{word}{signs[1]}")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
