"""Runs the five steps of the demo one after the other."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import torch
from rich.console import Console

from bertsmith.bert import Bert
from bertsmith.demo import terminal
from bertsmith.demo.budget import Budget, fastest_threads
from bertsmith.demo.data import Data, read_text
from bertsmith.demo.finetuning import Starts, Tuned, Tuning
from bertsmith.demo.folder import begin, write_mark
from bertsmith.demo.inspection import Inspection, inspect
from bertsmith.demo.introduction import MODEL, Introduction, introduce
from bertsmith.demo.page import page
from bertsmith.demo.pretraining import Pretraining, pretrain_model
from bertsmith.demo.results import Results
from bertsmith.demo.terminal import Progress, Terminal
from bertsmith.demo.vocabulary import train_vocabulary
from bertsmith.files import write_text, writing
from bertsmith.tokenizer import Tokenizer

STEPS = 5


def run(out: Path, text: Path | None, budget: Budget, console: Console) -> Results:
    """Run the demo in the folder `out`, on the library's text or on a folder of one's own."""
    began, threads = time.monotonic(), torch.get_num_threads()
    view = Terminal(console, STEPS)
    try:
        torch.set_num_threads(fastest_threads(threads))
        with writing(out):
            results = _results(out, text, budget, view, threads)
            results.seconds = time.monotonic() - began
            write_text(out / "index.html", page(results))
            write_mark(out, results.described())
    finally:
        torch.set_num_threads(threads)
    view.say()
    minutes = f"Done in {results.seconds / 60:.1f} minutes. "
    view.say((minutes, "bold"), "Open ", (str(out / "index.html"), "bold cyan"))
    view.say("Try next:")
    for command in results.commands:
        view.copied(command)
    return results


def _results(out: Path, text: Path | None, budget: Budget, view: Terminal, threads: int) -> Results:
    introduction = _introduce(view)
    view.heading("Words become tokens", VOCABULARY)
    with view.moving("reading"):
        data = read_text(text)
        begin(out)
    with view.moving("learning a vocabulary"):
        reading, tokenizer = train_vocabulary(out, data, budget)
    size, source = f"{reading.characters / 1e6:.1f} million characters", reading.source
    view.say((size, "bold"), f" of {source} → ", (f"{reading.vocabulary:,} tokens", "bold"))
    view.show(terminal.embedding(reading.pieces, view.width))
    masked = data.sentences(tokenizer)
    pretraining, bert = _pretrain(out, tokenizer, budget, masked, view)
    view.heading("Fine-tuning", OWN_TUNING if data.own else TUNING)
    torch.set_num_threads(fastest_threads(threads))  # other programs may have started or ended
    tuning = Tuning(out, tokenizer, pretraining.speed, budget)
    tuned = _tune(tuning, data, view)
    view.heading("Looking inside", OWN_LOOKING if data.own else LOOKING)
    inspection = _inspect(out, data, bert, budget, view)
    commands = _commands(out, masked[0])
    return Results(budget, introduction, reading, pretraining, *tuned, inspection, commands)


def _introduce(view: Terminal) -> Introduction:
    view.heading("Meet a trained BERT", MEETING)
    with view.moving(f"opening {MODEL}"):
        introduction = introduce()
    view.show(terminal.filled(introduction, view.width))
    view.say()
    view.show(terminal.near(introduction, view.width))
    return introduction


def _pretrain(
    out: Path, tokenizer: Tokenizer, budget: Budget, sentences: list[str], view: Terminal
) -> tuple[Pretraining, Bert]:
    view.heading("Pre-training", PRETRAINING)
    with view.moving("preparing") as update:

        def tell(run: Pretraining) -> None:
            height = view.console.height
            update(lambda: terminal.pretraining(run, view.width, height), terminal.line(run))

        pretraining, bert = pretrain_model(out, tokenizer, budget, sentences, tell)
    if not view.live:
        view.show(terminal.guesses(pretraining, view.width))
    return pretraining, bert


def _tune(tuning: Tuning, data: Data, view: Terminal) -> tuple[Tuned, Tuned, Starts]:
    with view.moving("reading labels") as update:
        classifier = tuning.classifier(data.areas, Progress(update))
    styles = [*["dim"] * (len(classifier.bars) - 1), "green"]
    view.show(terminal.bars(classifier.bars, "accuracy on held-out texts", styles))
    view.show(terminal.labelled(classifier.shown, view.width))
    view.say()
    with view.moving("reading labels") as update:
        tagger = tuning.tagger(data.names, Progress(update))
    view.show(terminal.bars(tagger.bars, "F1 on held-out sentences", ["dim", "green"]))
    view.show(terminal.tagged(tagger.shown, view.live))
    view.say()
    with view.moving("comparing three starts") as update:
        starts = tuning.starts(lambda: Progress(update))
    view.say(f"the same tagger, trained on only {starts.learned_from} labelled sentences:")
    scores = [(one.name, one.f1) for one in starts.starts]
    view.show(terminal.bars(scores, "F1", ["dim", "yellow", "green"]))
    return classifier, tagger, starts


def _inspect(out: Path, data: Data, bert: Bert, budget: Budget, view: Terminal) -> Inspection:
    with view.moving("drawing"):
        # Of a person's text nobody knows which word has two senses.
        lines = [] if data.own else data.lines()
        inspection = inspect(bert, data.pair(), lines, budget.occurrences, out)
    for number, group in enumerate(inspection.groups, 1):
        about, word = ", ".join(group.words[:5]), inspection.word
        view.say(f"“{word}”, group {number}: {group.count} times near ", (about, "bold"))
        view.say(("  " + group.examples[0], "dim"))
    pages = ["attention.html", *(["senses.html"] if inspection.groups else [])]
    pages += ["classifier/report.html", "tagger/report.html"]
    view.say("pages: ", (", ".join(pages), "cyan"))
    return inspection


def _commands(out: Path, sentence: str) -> list[str]:
    """Commands to try next."""
    model, classifier, file = (
        shlex.quote(str(out / name)) for name in ("model", "classifier", "areas/test.csv")
    )
    return [
        f"bertsmith fill-mask {model} {shlex.quote(sentence)}",
        f"bertsmith predict {classifier} {file}",
        f"bertsmith finetune {MODEL} YOUR_FILE.csv --out my-model",
    ]


MEETING = (
    f"{MODEL} comes with the package; it was pre-trained on Wikipedia, books and conversations. "
    "It predicts masked words, and finds sentences on the same subject. The next steps show how "
    "such a model is made."
)
VOCABULARY = (
    "A model reads tokens, not letters. A frequent word is one token, a rare word is split into "
    "pieces (##). The encoder reads the sum of three vectors: token, sentence and position."
)
PRETRAINING = (
    "No labels are needed: tokens are masked, and the model learns to predict them from both "
    "sides. It also learns whether the second of two sentences followed the first."
)
TUNING = (
    "A new layer on top and labelled examples: the model learns which area of the library a "
    "docstring is from, and which words are names in code."
)
OWN_TUNING = (
    "A new layer on top and labelled examples: the model learns which part of your text a "
    "paragraph is from, and which words are names (all text is in lower case)."
)
OWN_LOOKING = "Attention shows which tokens each head of each layer takes information from."
LOOKING = (
    "Attention shows which tokens each head takes information from; vectors of one word show "
    "which of its uses the model distinguishes."
)
