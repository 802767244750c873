"""Terminal output of the demo: a live display on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from bertsmith.demo.introduction import Introduction
from bertsmith.demo.pretraining import Pretraining
from bertsmith.demo.vocabulary import Piece
from bertsmith.pages import highlighted
from bertsmith.tasks.task import Display

OFTEN = 0.5  # seconds between pictures: to draw takes time from training
SELDOM = 10.0  # seconds between lines where there is no terminal
EIGHTHS = " ▁▂▃▄▅▆▇█"
MASK = "[MASK]"
SEGMENTS = ("cyan", "magenta")
# How names are shown, and where there is no colour.
MARKS = {
    "correct": ("bold green", "[]"),
    "missed": ("underline red", "<>"),
    "wrong": ("yellow", "{}"),
}

Update = Callable[[Callable[[], RenderableType], str], None]


class Terminal:
    """Headings and results that stay, and below them what is going on."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps, self.number = console, steps, 0
        self.width, self.live = min(console.width, 100) - 2, console.is_terminal
        self.began = time.monotonic()

    def heading(self, title: str, meaning: str) -> None:
        """Begin a step, and say what it means."""
        self.number += 1
        spent = clock(time.monotonic() - self.began)
        self.console.print()
        name = Text.assemble((f" {self.number} of {self.steps} ", "bold cyan"), (title, "bold"))
        self.console.print(
            Rule(Text.assemble(name, (f"  {spent} ", "dim")), align="left", style="dim")
        )
        self.show(Text(meaning, "dim"))

    def say(self, *parts: str | tuple[str, str]) -> None:
        """A line of result; with nothing in it, an empty one."""
        self.show(Text.assemble(*parts or [" "]))

    def copied(self, command: str) -> None:
        """A command as it is typed, however narrow the terminal: it is there to be copied."""
        self.console.print(f"   {command}", style="cyan", markup=False, soft_wrap=True)

    def show(self, picture: RenderableType) -> None:
        """A result of several lines."""
        self.console.print(_indented(picture))

    @contextmanager
    def moving(self, what: str) -> Iterator[Update]:
        """A place for a picture that changes; where there is no terminal, a line now and then."""
        spinner = Spinner("dots", Text(what, "dim"))
        live = Live(spinner, console=self.console, refresh_per_second=4) if self.live else None
        last: Callable[[], RenderableType] | None = None
        drawn = 0.0

        def update(make: Callable[[], RenderableType], line: str) -> None:
            nonlocal drawn, last
            last = make
            if time.monotonic() - drawn < (OFTEN if live else SELDOM):
                return
            drawn = time.monotonic()
            if live:
                live.update(_indented(make()))
            else:
                self.say(line)

        with live or nullcontext():
            yield update
            if live and last:
                live.update(_indented(last()))
            elif live:
                live.transient = True  # nothing to keep


class Progress:
    """Shows the progress of a fine-tuning run."""

    def __init__(self, update: Update) -> None:
        self.update, self.scores = update, ""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""
        count = f"step {done:,} of {total:,}"

        def picture() -> RenderableType:  # drawn again at the end, with the last epoch's scores
            row = Table.grid(padding=(0, 1))
            status = Text(f"loss {loss:.3f}  {self.scores}", "dim")
            row.add_row(ProgressBar(total, done, width=20), count, status)
            return row

        self.update(picture, f"{count}, loss {loss:.3f}")

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        name = next((one for one in ("f1", "accuracy") if one in row), None)
        scores = f": {name} {row[name]:.1%}" if name else ""  # without dev data there are none
        self.scores = f"epoch {row['epoch']}{scores}"


def pretraining(run: Pretraining, width: int, height: int) -> RenderableType:
    """The loss, what is right, and the guesses, as high as a terminal allows."""
    rows = max(4, min(9, height - 17))
    words, pairs = run.recent
    numbers = Text.assemble(
        "masked tokens ",
        (f"{words:.0%}", "bold green"),
        " accuracy   next sentence ",
        (f"{pairs:.0%}", "bold green"),
        (f"   {run.tokens:,} tokens, {run.speed:,.0f} a second", "dim"),
    )
    bar = Table.grid(padding=(0, 1))
    left = clock(run.left) + " left" if run.done < 1 else "done"
    bar.add_row(ProgressBar(1.0, run.done, width=width - 12), Text(left, "dim"))
    return Group(chart(run.curve, width, rows), numbers, bar, Text(), guesses(run, width))


def line(run: Pretraining) -> str:
    """Pre-training in one line."""
    words, pairs = run.recent
    loss = f"loss {run.curve[-1][1]:.2f}" if run.curve else "nothing learned yet"
    return (
        f"{run.seconds:3.0f} s  step {run.step:,}  {loss}  masked tokens {words:.0%}  "
        f"next sentence {pairs:.0%}"
    )


def chart(points: Sequence[tuple[float, float]], width: int, height: int) -> Text:
    """A curve of (share of the time, loss) as columns; its highest and lowest value beside it."""
    room = width - 7
    columns: list[list[float]] = [[] for _ in range(room)]
    for share, value in points:
        columns[min(room - 1, int(share * room))].append(value)
    while columns and not columns[-1]:  # the time that is left
        columns.pop()
    means: list[float] = []
    for column in columns:  # an empty one takes the value of the one before it
        if column or means:
            means.append(sum(column) / len(column) if column else means[-1])
    ahead = " " * (len(columns) - len(means))
    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    reach = max(high - low, 1e-9)
    # The lowest column is one eighth high, so that it is seen.
    tops = [1 + (mean - low) / reach * (8 * height - 1) for mean in means]
    made = Text(no_wrap=True)
    for row in range(height):
        label = f"{high:5.2f} " if row == 0 else f"{low:5.2f} " if row == height - 1 else " " * 6
        made.append(("loss  " if row == 1 else label) + "│" + ahead, "dim")
        floor = (height - 1 - row) * 8
        made.append("".join(EIGHTHS[max(0, min(8, round(top - floor)))] for top in tops), "cyan")
        made.append("\n")
    made.append(" " * 6 + "╰" + "─" * room, "dim")
    return made


def guesses(run: Pretraining, width: int) -> RenderableType:
    """Each sentence with the best guess in place, and the guesses that came before."""
    before = []
    for number in range(len(run.sentences)):
        best = (one.guesses[number][0][0] for one in run.rounds)
        history = [token for token, _ in groupby(best)]  # an unchanged guess is shown once
        path = " ← ".join(reversed(history[-4:-1]))
        before.append(f"← {path}" if path else "")
    last = [ranked[0] for ranked in run.rounds[-1].guesses]
    return _in_place(run.sentences, last, before, width)


def filled(shown: Introduction, width: int) -> RenderableType:
    """Each sentence with the best guess in place, and the next best."""
    others = ["or " + ", ".join(token for token, _ in ranked[1:]) for ranked in shown.guesses]
    return _in_place(shown.sentences, [ranked[0] for ranked in shown.guesses], others, width)


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


def near(shown: Introduction, width: int) -> RenderableType:
    """Sentences with the one that is nearest to each."""
    table = Table.grid(padding=(0, 1))
    for _ in range(2):
        table.add_column(max_width=width // 2 - 5)
    for one in shown.near:
        table.add_row(Text(one.text), Text(f"→ {one.nearest}", "cyan"), f"{one.cosine:.2f}")
    return table


def embedding(pieces: Sequence[Piece], width: int) -> RenderableType:
    """Tokens over their segments and positions: what is added up for each."""
    rows: list[list[Piece]] = [[]]
    for piece in pieces:
        if rows[-1] and sum(len(one.token) + 2 for one in [*rows[-1], piece]) >= width - 10:
            rows.append([])
        rows[-1].append(piece)
    parts: list[RenderableType] = []
    for row in rows:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=len("+ position"))
        for _ in row:
            table.add_column(justify="center")
        pairs = [(one, SEGMENTS[one.segment % 2]) for one in row]
        table.add_row(Text("token", "dim"), *(Text(one.token, f"bold {c}") for one, c in pairs))
        letters = (Text("AB"[one.segment % 2], c) for one, c in pairs)
        table.add_row(Text("+ segment", "dim"), *letters)
        table.add_row(Text("+ position", "dim"), *(Text(str(one.position)) for one in row))
        parts += [table, Text()]
    return Group(*parts[:-1])


def bars(rows: Sequence[tuple[str, float]], what: str, styles: Sequence[str]) -> RenderableType:
    """Named scores as bars, each in its style."""
    table = Table.grid(padding=(0, 1))
    for (name, value), style in zip(rows, styles, strict=True):
        bar = ProgressBar(1.0, value, width=24, complete_style=style, finished_style=style)
        table.add_row(Text(name, style), bar, Text(f"{value:.1%} {what}", f"bold {style}"))
    return table


def labelled(shown: Sequence[Display], width: int) -> RenderableType:
    """Held-out texts with the prediction, and the label where that is another."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=width - 30)
    for one in shown:
        right = one.label == one.prediction
        said = Text(f"{one.prediction} {one.confidence:.0%}", "green" if right else "red")
        note = Text("" if right else f"is {one.label}", "dim")
        table.add_row(Text(one.passages[0].text), said, note)
    return table


def tagged(shown: Sequence[Display], coloured: bool) -> RenderableType:
    """Held-out sentences: names that are correct, missed and wrong."""
    lines = []
    for sentence in (one.passages[0] for one in shown):
        spans = ((mark.start, mark.end, mark.kind, "") for mark in sentence.marks)
        parts = [_marked(*part[:2], coloured) for part in highlighted(sentence.text, spans)]
        lines.append(Text.assemble(("· ", "dim"), *parts))
    legend = Text("  ").join(_marked(kind, kind, coloured) for kind in MARKS)
    return Group(*lines, legend)


def _marked(text: str, kind: str, coloured: bool) -> Text:
    if not kind:
        return Text(text)
    style, signs = MARKS[kind]
    return Text(text, style) if coloured else Text(f"{signs[0]}{text}{signs[1]}")


def _indented(picture: RenderableType) -> Padding:
    return Padding(picture, (0, 1), expand=False)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
