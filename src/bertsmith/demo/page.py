"""The demo's page, index.html."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertsmith.demo.forging import Lesson, Round
from bertsmith.demo.story import Story
from bertsmith.demo.tuning import Shown, Tuned, Words
from bertsmith.pages import Part, Series, bar_list, heat_map, line_chart, shade, smoothed
from bertsmith.pages import page as render_page

MOMENTS = 6  # columns of the table of guesses
PUBLISHED = 1_000_000 * 256 * 512  # tokens that BERT was trained on: steps, sequences, length
KINDS = {(True, True): "good", (True, False): "label", (False, True): "bad"}


def page(story: Story) -> str:
    """Render the page."""
    own = story.reading.own
    return render_page(
        "demo.html",
        "A BERT from scratch, in a few minutes",
        tiles=_tiles(story),
        met=_met(story),
        vocabulary=f"{story.reading.vocabulary:,}",
        pieces=story.reading.pieces,
        pretraining=_pretraining(story),
        tasks=_tasks(story),
        worth=_worth(story),
        kind="part of the text" if own else "area of the library",
        areas=bar_list([(name, n, f"{n:,}") for name, n in story.reading.areas.items()]),
        inside=_inside(story),
        commands=story.commands,
    )


def _tiles(story: Story) -> list[tuple[str, str, str, str]]:
    model = story.pretraining
    return [
        ("text", f"{story.reading.characters / 1e6:.1f} M", "characters", story.reading.source),
        (
            "model",
            f"{model.parameters / 1e6:.2f} M",
            "parameters",
            f"BERT of {model.layers} layers",
        ),
        (
            "masked tokens",
            f"{model.lesson.recent[0]:.0%}",
            "accuracy",
            "at the end of pre-training",
        ),
        ("time", f"{story.seconds / 60:.1f}", "minutes", "from text to this page, on a CPU"),
    ]


def _met(story: Story) -> dict[str, Any]:
    met = story.met
    return {
        "name": met.name,
        "size": f"{met.parameters / 1e6:.0f}",
        "rows": [
            _guesses(sentence, [[guess] for guess in ranked])
            for sentence, ranked in zip(met.sentences, met.guesses, strict=True)
        ],
        "near": [(one.text, one.nearest, f"{one.cosine:.2f}") for one in met.near],
    }


def _pretraining(story: Story) -> dict[str, Any]:
    lesson = story.pretraining.lesson
    loss = smoothed([(100 * share, value) for share, value in lesson.curve], 40)
    words = [(100 * share, 100 * value) for share, value, _ in lesson.accuracy]
    pairs = [(100 * share, 100 * value) for share, _, value in lesson.accuracy]
    series = [
        Series("masked tokens", smoothed(words, 40)),
        Series("next sentence", smoothed(pairs, 40)),
    ]
    held = story.pretraining.summary.get("held_out_masked_lm_accuracy")
    moments = _moments(lesson.rounds)
    return {
        "charts": [
            line_chart(
                "Loss on masked tokens",
                [Series("loss", smoothed(loss, 40))],
                x_label="% of the run",
            ),
            line_chart("Accuracy", series, x_label="% of the run", unit="%", from_zero=True),
        ],
        "moments": [*(f"{one.seconds:.0f} s" for one in moments), story.met.name],
        "rows": [
            _guesses(
                sentence,
                [*(one.guesses[number] for one in moments), story.pretraining.longer[number]],
            )
            for number, sentence in enumerate(lesson.sentences)
        ],
        "counts": _counts(lesson),
        "held": "" if held is None else f"{held:.0%}",
    }


def _counts(lesson: Lesson) -> str:
    often = PUBLISHED // max(lesson.tokens, 1) // 1000 * 1000
    return (
        f"The model of this page read {lesson.tokens:,} tokens in {lesson.seconds:.0f} seconds, "
        f"the published BERT {often:,} times as many."
    )


def _guesses(sentence: str, cells: Sequence[Sequence[tuple[str, float]]]) -> dict[str, Any]:
    """A sentence around its mask, and in each cell the best guess; all guesses on hover."""
    before, _, after = sentence.partition("[MASK]")
    return {
        "before": before,
        "after": after,
        "cells": [
            (
                ranked[0][0],
                shade(ranked[0][1]),
                ", ".join(f"{token} {score:.0%}" for token, score in ranked),
            )
            for ranked in cells
        ],
    }


def _moments(rounds: Sequence[Round]) -> list[Round]:
    """Choose a few rounds, more of them early, when predictions change most."""
    if len(rounds) <= MOMENTS:
        return list(rounds)
    last = len(rounds) - 1
    places = {round(last * (number / (MOMENTS - 1)) ** 1.5) for number in range(MOMENTS)}
    return [rounds[place] for place in sorted(places)]


def _tasks(story: Story) -> list[dict[str, Any]]:
    kind = "part of the text" if story.reading.own else "area of the library"
    names = "names" if story.reading.own else "names in code"
    tuning = story.tuning
    return [
        {
            "title": f"Which {kind} is it from?",
            "bars": _bars(tuning.classifier),
            "counts": f"{_split(tuning.classifier)} texts; accuracy",
            "lines": [_labelled(one) for one in tuning.texts],
            "legend": [],
            "folder": tuning.classifier.folder,
        },
        {
            "title": f"Which words are {names}?",
            "bars": _bars(tuning.tagger),
            "counts": f"{_split(tuning.tagger)} sentences; F1 of the {names}; accuracy over all "
            f"words {tuning.tagger.accuracy:.1%}",
            "lines": [_tagged(one) for one in tuning.words],
            "legend": [Part("correct", "good"), Part("missed", "label"), Part("wrong", "bad")],
            "folder": tuning.tagger.folder,
        },
    ]


def _worth(story: Story) -> dict[str, Any]:
    """The tagger from three starts, on few labelled sentences."""
    worth = story.tuning.worth
    rows = [(one.name, one.f1, f"{one.f1:.1%}") for one in worth.starts]
    return {
        "bars": bar_list(rows, most=1.0, weak=[0]),
        "counts": f"{worth.learned_from:,} training and {worth.held_out:,} held-out sentences; F1",
    }


def _bars(tuned: Tuned) -> str:
    rows = [(name, value, f"{value:.1%}") for name, value in tuned.bars]
    return bar_list(rows, most=1.0, weak=range(len(rows) - 1))


def _split(tuned: Tuned) -> str:
    return f"{tuned.learned_from:,} training and {tuned.held_out:,} held-out"


def _labelled(one: Shown) -> list[Part]:
    right = one.gold == one.said
    note = f"{one.sure:.0%}" if right else f"{one.sure:.0%}, label: {one.gold}"
    return [Part(f"{one.text} "), Part(one.said, "good" if right else "bad", note)]


def _tagged(one: Words) -> list[Part]:
    parts = []
    for word, name, predicted in one.words:
        parts += [Part(word, KINDS.get((name, predicted), "")), Part(" ")]
    return parts


def _inside(story: Story) -> dict[str, Any]:
    looked = story.inside.looked
    return {
        "layer": looked.layer,
        "head": looked.head,
        "map": heat_map(
            looked.weights.tolist(),
            rows=looked.tokens,
            columns=looked.tokens,
            label=f"attention of layer {looked.layer}, head {looked.head}",
            most=1.0,
            zeros=False,
        ),
        "word": story.inside.word,
        "groups": [
            (one.count, ", ".join(one.words[:5]), one.examples) for one in story.inside.groups
        ],
    }
