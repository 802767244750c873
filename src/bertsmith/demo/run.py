"""Runs the five steps of the demo one after the other, and prints their results."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bertsmith.demo import steps
from bertsmith.demo.budget import Budget, fastest_threads
from bertsmith.demo.folder import begin, write_mark
from bertsmith.demo.labels import read_text
from bertsmith.demo.page import page
from bertsmith.files import write_text, writing

LIBRARY = ("which area of the library a docstring is from", "which words are names in code")
OWN = ("which part of your text a paragraph is from", "which words are names")


def run(out: Path, text: Path | None, budget: Budget, console: Console) -> dict[str, Any]:
    """Run the demo in the folder `out`, on the library's text or on a folder of one's own."""
    began, threads = time.monotonic(), torch.get_num_threads()
    try:
        torch.set_num_threads(fastest_threads(threads))
        with writing(out):
            results, *shown = _steps(out, text, budget, StepPrinter(console), threads)
            results["seconds"] = round(time.monotonic() - began, 1)
            write_text(out / "index.html", page(results, *shown))
            write_mark(out, results)
    finally:
        torch.set_num_threads(threads)
    index = (str(out / "index.html"), "bold cyan")
    minutes = f"Done in {results['seconds'] / 60:.1f} minutes. "
    console.print(Text.assemble("\n", (minutes, "bold"), "Open ", index, ". Try next:"))
    for command in results["commands"]:  # as it is typed, however narrow the terminal
        console.print(f"   {command}", style="cyan", markup=False, soft_wrap=True)
    return results


def _steps(out: Path, text: Path | None, budget: Budget, printer: StepPrinter, threads: int) -> Any:
    """Run all steps; return their results, and what else the page shows."""
    with printer.step(
        "Meet a trained BERT",
        f"{steps.MODEL} comes with the package. It predicts masked words, and finds sentences on "
        "the same subject. The next steps show how such a model is made.",
    ):
        met = steps.introduce()
    printer.guesses(met["sentences"], [met["guesses"]])
    printer.rows(
        [(row["text"], f"→ {row['nearest']}", f"{row['cosine']:.2f}") for row in met["near"]]
    )

    with printer.step(
        "Words become tokens",
        "A model reads tokens, not letters. A frequent word is one token; a rare word is split "
        "into pieces, which begin with ##.",
    ):
        data = read_text(text)
        begin(out)
        source, tokenizer = steps.train_vocabulary(out, data, budget)
    size = f"{source['characters'] / 1e6:.1f} million characters of {source['source']}"
    printer.line(f"{size}: {source['vocabulary']:,} tokens")
    printer.line(" ".join(row["token"] for row in source["tokens"]))

    masked = data.sentences(tokenizer)
    with printer.step(
        "Pre-training",
        "No labels are needed: tokens are masked, and the model learns to predict them from both "
        "sides. It also learns whether the second of two sentences followed the first.",
        spinner=False,
    ):
        training, log, bert = steps.pretrain_model(out, tokenizer, budget, masked, printer.progress)
    printer.guesses(masked, training["guesses"])

    torch.set_num_threads(fastest_threads(threads))  # other programs may have started or ended
    speed = training["tokens"] / max(60 * training["minutes"], 1e-9)
    tuning = steps.DemoTuning(out, tokenizer, speed, budget, printer.progress == "live")
    areas, names = OWN if data.own else LIBRARY
    with printer.step(
        "Fine-tuning",
        f"A new layer on top and labelled examples: the model learns {areas}, and {names}.",
        spinner=False,
    ):
        classifier, labelled = tuning.classifier(data.areas)
        printer.bars(steps.score_bars(classifier), "accuracy on held-out texts")
        tagger, tagged = tuning.tagger(data.names)
        printer.bars(steps.score_bars(tagger), "F1 on held-out sentences")
        few = tuning.starts()
    printer.line(f"the same tagger, trained on only {few['learned_from']} labelled sentences:")
    printer.bars([(row["name"], row["f1"]) for row in few["starts"]], "F1")

    with printer.step("Looking inside", "Which tokens each head of each layer attends to."):
        head = steps.furthest_head(bert, *data.pair(), out / "attention.html")
        # Of a person's text nobody knows which word has two senses.
        lines = [] if data.own else data.lines()
        groups = steps.group_senses(bert, lines, budget.occurrences, out / "senses.html")
    for number, group in enumerate(groups["groups"]):
        near = ", ".join(group["words"][:5])
        printer.line(f"“{groups['word']}”, group {number}: {group['count']} times near {near}")
    results = {
        "finished": True,
        "met": met,
        "text": source,
        "pretraining": training,
        "classifier": classifier,
        "tagger": tagger,
        "few_labels": few,
        "senses": groups,
        "commands": _commands(out, masked[0]),
    }
    return results, log, head, (labelled, tagged), data.own


def _commands(out: Path, sentence: str) -> list[str]:
    model, classifier, file = (
        shlex.quote(str(out / name)) for name in ("model", "classifier", "areas/test.csv")
    )
    return [
        f"bertsmith fill-mask {model} {shlex.quote(sentence)}",
        f"bertsmith predict {classifier} {file}",
        f"bertsmith finetune {steps.MODEL} YOUR_FILE.csv --out my-model",
    ]


class StepPrinter:
    """Prints headings and results."""

    def __init__(self, console: Console) -> None:
        self.console, self.number = console, 0
        self.progress = "none" if console.quiet else "live" if console.is_terminal else "lines"

    @contextmanager
    def step(self, title: str, meaning: str, spinner: bool = True) -> Iterator[None]:
        """Print the heading of a step, and that it is at work."""
        self.number += 1
        self.console.print()
        self.console.rule(Text(f"{self.number} of 5  {title}", "bold"), align="left", style="dim")
        self.line(meaning, "dim")
        if spinner and self.progress == "live":
            with self.console.status("working"):
                yield
        else:
            yield

    def line(self, text: str, style: str = "") -> None:
        """Print a line of text."""
        self.console.print(Text(text, style))

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows in columns."""
        table = Table.grid(padding=(0, 2))
        for row in rows:
            table.add_row(*map(Text, row))
        self.console.print(table)

    def bars(self, rows: Sequence[tuple[str, float]], what: str) -> None:
        """Print named scores."""
        bars = [(name, "█" * round(20 * score), f"{score:.1%} {what}") for name, score in rows]
        self.rows(bars)

    def guesses(self, sentences: Sequence[str], moments: Sequence[steps.Guesses]) -> None:
        """Print each sentence with its last guess in place, and the different ones before it."""
        rows = []
        for number, sentence in enumerate(sentences):
            token, score = moments[-1][number][0]
            past = [name for name, _ in groupby(guesses[number][0][0] for guesses in moments)][
                -4:-1
            ]
            before = "← " + " ← ".join(reversed(past)) if past else ""
            rows.append((sentence.replace("[MASK]", token), f"{score:.0%}", before))
        self.rows(rows)
