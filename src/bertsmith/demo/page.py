"""The demo's page, index.html."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertsmith.demo.pretraining import Pretraining, Round
from bertsmith.demo.results import Results
from bertsmith.pages import (
    Part,
    Series,
    bar_list,
    heat_map,
    highlighted,
    line_chart,
    shade,
    smoothed,
)
from bertsmith.pages import page as render_page
from bertsmith.reports.report import KINDS
from bertsmith.tasks.task import Display

MOMENTS = 6  # columns of the table of guesses
PUBLISHED = 1_000_000 * 256 * 512  # tokens that BERT was trained on: steps, sequences, length


def page(results: Results) -> str:
    """Render the page."""
    introduction, run, head = results.introduction, results.pretraining, results.inspection.head
    moments = _moments(run.rounds)
    return render_page(
        "demo.html",
        "A BERT from scratch, in a few minutes",
        results=results,
        shade=shade,
        ranks=[[[guess] for guess in column] for column in zip(*introduction.guesses, strict=True)],
        times=[f"{one.seconds:.0f} s" for one in moments],
        moments=[*(one.guesses for one in moments), run.longer],
        charts=_charts(run),
        published=PUBLISHED // max(run.tokens, 1) // 1000 * 1000,
        tasks=_tasks(results),
        starts=_bars([(one.name, one.f1) for one in results.starts.starts], weak=[0]),
        areas=bar_list([(name, n, f"{n:,}") for name, n in results.reading.areas.items()]),
        map=heat_map(
            head.weights.tolist(),
            rows=head.tokens,
            columns=head.tokens,
            label=f"attention of layer {head.layer}, head {head.head}",
            most=1.0,
            zeros=False,
        ),
    )


def _charts(run: Pretraining) -> list[str]:
    """Loss and accuracy over the run."""
    loss = smoothed([(100 * share, value) for share, value in run.curve], 40)
    words = [(100 * share, 100 * value) for share, value, _ in run.accuracy]
    pairs = [(100 * share, 100 * value) for share, _, value in run.accuracy]
    series = [
        Series("masked tokens", smoothed(words, 40)),
        Series("next sentence", smoothed(pairs, 40)),
    ]
    losses, axis = [Series("loss", smoothed(loss, 40))], "% of the run"
    return [
        line_chart("Loss on masked tokens", losses, x_label=axis),
        line_chart("Accuracy", series, x_label=axis, unit="%", from_zero=True),
    ]


def _moments(rounds: Sequence[Round]) -> list[Round]:
    """Choose a few rounds, more of them early, when predictions change most."""
    if len(rounds) <= MOMENTS:
        return list(rounds)
    last = len(rounds) - 1
    places = {round(last * (number / (MOMENTS - 1)) ** 1.5) for number in range(MOMENTS)}
    return [rounds[place] for place in sorted(places)]


def _tasks(results: Results) -> list[dict[str, Any]]:
    """The two fine-tuned models with their scores and some predictions."""
    own, classifier, tagger = results.reading.own, results.classifier, results.tagger
    names = "names" if own else "names in code"
    return [
        {
            "title": f"Which {'part of the text' if own else 'area of the library'} is it from?",
            "tuned": classifier,
            "bars": _bars(classifier.bars),
            "counted": "texts; accuracy",
            "lines": [_labelled(one) for one in classifier.shown],
            "legend": [],
        },
        {
            "title": f"Which words are {names}?",
            "tuned": tagger,
            "bars": _bars(tagger.bars),
            "counted": f"sentences; F1 of the {names}; accuracy over all words "
            f"{tagger.accuracy:.1%}",
            "lines": [_tagged(one) for one in tagger.shown],
            "legend": [Part(*kind) for kind in KINDS.items()],
        },
    ]


def _bars(rows: Sequence[tuple[str, float]], weak: Sequence[int] | None = None) -> str:
    """Scores as bars; the last one stands out, or those that are not `weak`."""
    shown = [(name, value, f"{value:.1%}") for name, value in rows]
    return bar_list(shown, most=1.0, weak=range(len(rows) - 1) if weak is None else weak)


def _labelled(one: Display) -> list[Part]:
    right, sure = one.label == one.prediction, f"{one.confidence:.0%}"
    note = sure if right else f"{sure}, label: {one.label}"
    text, prediction = one.passages[0].text, one.prediction or ""
    return [Part(f"{text} "), Part(prediction, "good" if right else "bad", note)]


def _tagged(one: Display) -> list[Part]:
    sentence = one.passages[0]
    marks = ((mark.start, mark.end, KINDS[mark.kind], "") for mark in sentence.marks)
    return highlighted(sentence.text, marks)
