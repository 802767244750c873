"""Runs the five parts of the demo one after the other."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path

import torch
from rich.console import Console

from bertsmith.bert import Bert, load
from bertsmith.demo import pictures
from bertsmith.demo.folder import begin, write_mark
from bertsmith.demo.forging import forge, learn_vocabulary, pieces, write_documents
from bertsmith.demo.looking import AMBIGUOUS, group_senses, look
from bertsmith.demo.material import Material, own_material, standard_material
from bertsmith.demo.meeting import MODEL, Met, guesses_of, meet
from bertsmith.demo.pace import Pace, fastest_threads
from bertsmith.demo.page import page
from bertsmith.demo.story import Inside, Pretraining, Reading, Story, Tuning
from bertsmith.demo.tuning import tune_classifier, tune_tagger
from bertsmith.demo.view import Progress, View
from bertsmith.demo.worth import compare_starts
from bertsmith.files import write_text, writing
from bertsmith.tokenizer import Tokenizer

STEPS = 5


def run(out: Path, text: Path | None, pace: Pace, console: Console) -> Story:
    """Run the demo in the folder `out`, on the library's text or on a folder of one's own."""
    began, threads = time.monotonic(), torch.get_num_threads()
    view = View(console, STEPS)
    try:
        torch.set_num_threads(fastest_threads(threads))
        with writing(out):
            story = _story(out, text, pace, view, threads)
            story.seconds = time.monotonic() - began
            write_text(out / "index.html", page(story))
            write_mark(out, story.described())
    finally:
        torch.set_num_threads(threads)
    _close(view, story, out)
    return story


def _story(out: Path, text: Path | None, pace: Pace, view: View, threads: int) -> Story:
    met = _meet(view)
    view.heading("Words become tokens", VOCABULARY)
    with view.moving("reading"):
        material = standard_material() if text is None else own_material(text)
        begin(out)
    reading, tokenizer = _read(out, material, pace, view)
    pretraining, bert = _pretrain(out, material, tokenizer, pace, view)
    tuning = _tune(out, material, tokenizer, pretraining.speed, pace, view, threads)
    inside = _look(out, material, bert, pace, view)
    commands = _commands(out, material.sentences(tokenizer)[0])
    return Story(met, reading, pretraining, tuning, inside, commands)


def _meet(view: View) -> Met:
    view.heading("Meet a trained BERT", MEETING)
    with view.moving(f"opening {MODEL}"):
        met = meet()
    view.show(pictures.filled(met, view.width))
    view.say()
    view.show(pictures.near(met, view.width))
    return met


def _read(out: Path, material: Material, pace: Pace, view: View) -> tuple[Reading, Tokenizer]:
    with view.moving("learning a vocabulary"):
        characters = write_documents(material.documents, out / "text.txt")
        tokenizer = learn_vocabulary(out / "text.txt", out / "vocabulary", pace)
    reading = Reading(
        source=material.source,
        own=material.own,
        documents=len(material.documents),
        characters=characters,
        areas=dict(Counter(area for _, area in material.areas).most_common()),
        vocabulary=tokenizer.size,
        pieces=pieces(tokenizer, *material.pair()),
    )
    view.say(
        (f"{characters / 1e6:.1f} million characters", "bold"),
        f" of {material.source} → ",
        (f"{tokenizer.size:,} tokens", "bold"),
    )
    view.show(pictures.embedding(reading.pieces, view.width))
    return reading, tokenizer


def _pretrain(
    out: Path, material: Material, tokenizer: Tokenizer, pace: Pace, view: View
) -> tuple[Pretraining, Bert]:
    view.heading("Pre-training", PRETRAINING)
    sentences = material.sentences(tokenizer)
    with view.moving("preparing") as update:
        lesson, summary = forge(
            out / "text.txt",
            tokenizer,
            out,
            pace,
            sentences,
            lambda lesson: update(
                lambda: pictures.pretraining(lesson, view.width, view.console.height),
                pictures.line(lesson),
            ),
        )
    if not view.live:
        view.show(pictures.guesses(lesson, view.width))
    bert = load(out / "model", device="cpu", progress=False)
    parameters = sum(parameter.numel() for parameter in bert.model.parameters())
    longer = guesses_of(MODEL, sentences)
    return Pretraining(pace.layers, pace.width, parameters, lesson, summary, longer), bert


def _tune(
    out: Path,
    material: Material,
    tokenizer: Tokenizer,
    speed: float,
    pace: Pace,
    view: View,
    threads: int,
) -> Tuning:
    view.heading("Fine-tuning", OWN_TUNING if material.own else TUNING)
    torch.set_num_threads(fastest_threads(threads))  # other programs may have started or ended
    with view.moving("reading labels") as update:
        watch = Progress(update)
        classifier, texts = tune_classifier(out, material.areas, tokenizer, speed, pace, watch)
    view.show(pictures.scores(classifier, "accuracy on held-out texts"))
    view.show(pictures.texts(texts, view.width))
    view.say()
    with view.moving("reading labels") as update:
        watch = Progress(update)
        tagger, words = tune_tagger(out, material.names, tokenizer, speed, pace, watch)
    view.show(pictures.scores(tagger, "F1 on held-out sentences"))
    view.show(pictures.tagged(words, view.live))
    view.say()
    with view.moving("comparing three starts") as update:
        worth = compare_starts(out, pace, lambda: Progress(update))
    view.say(f"the same tagger, trained on only {worth.learned_from} labelled sentences:")
    view.show(pictures.starts(worth))
    return Tuning(classifier, texts, tagger, words, worth)


def _look(out: Path, material: Material, bert: Bert, pace: Pace, view: View) -> Inside:
    view.heading("Looking inside", OWN_LOOKING if material.own else LOOKING)
    groups = []
    with view.moving("drawing"):
        looked = look(bert, *material.pair(), out / "attention.html")
        if not material.own:  # of a person's text nobody knows which word has two senses
            groups = group_senses(bert, material.documents, pace.occurrences, out / "senses.html")
    for number, group in enumerate(groups, 1):
        about = ", ".join(group.words[:5])
        view.say(f"“{AMBIGUOUS}”, group {number}: {group.count} times near ", (about, "bold"))
        view.say(("  " + group.examples[0], "dim"))
    pages = ["attention.html", *(["senses.html"] if groups else [])]
    pages += ["classifier/report.html", "tagger/report.html"]
    view.say("pages: ", (", ".join(pages), "cyan"))
    return Inside(looked, AMBIGUOUS if groups else "", groups)


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


def _close(view: View, story: Story, out: Path) -> None:
    """The last lines."""
    view.say()
    view.say(
        (f"Done in {story.seconds / 60:.1f} minutes. ", "bold"),
        "Open ",
        (str(out / "index.html"), "bold cyan"),
    )
    view.say("Try next:")
    for command in story.commands:
        view.copied(command)


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
