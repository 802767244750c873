"""The demo's page, index.html."""

from collections.abc import Sequence
from typing import Any

from bertsmith.demo.steps import AttentionHead, score_bars
from bertsmith.pages import MarkedPart, Series, bar_list, heat_map, highlighted, line_chart, shade
from bertsmith.pages import page as render_page
from bertsmith.pages.runs.run import PretrainingRun
from bertsmith.reports.report import KINDS
from bertsmith.tasks.task import Display

MOMENTS = 6  # columns of the table of guesses
PUBLISHED = 1_000_000 * 256 * 512  # tokens that BERT was trained on: steps, sequences, length


def page(
    results: dict[str, Any],
    run: PretrainingRun,
    head: AttentionHead,
    shown: Sequence[Sequence[Display]],
    own: bool,
) -> str:
    """Render the page of results, with examples that classifier and tagger predicted."""
    met, training = results["met"], results["pretraining"]
    last = len(training["guesses"]) - 1
    moments = sorted({round(last * n / (MOMENTS - 1)) for n in range(MOMENTS)})
    best, second, third = zip(*met["guesses"], strict=True)
    return render_page(
        "demo.html",
        "A BERT from scratch, in a few minutes",
        results=results,
        own=own,
        shade=shade,
        ranks=[[[guess] for guess in column] for column in (best, second, third)],
        moments=[training["guesses_after"][n] for n in moments],
        columns=[*(training["guesses"][n] for n in moments), training["longer"]],
        charts=_charts(run),
        published=PUBLISHED // max(training["tokens"], 1) // 1000 * 1000,
        tasks=_tasks(results, shown, own),
        starts=_bars([(row["name"], row["f1"]) for row in results["few_labels"]["starts"]], [0]),
        areas=bar_list([(name, n, f"{n:,}") for name, n in results["text"]["areas"].items()]),
        head=head,
        map=heat_map(
            head.weights.tolist(),
            rows=head.tokens,
            columns=head.tokens,
            label=f"attention of layer {head.layer}, head {head.head}",
            most=1.0,
            numbers=False,
        ),
    )


def _charts(run: PretrainingRun) -> list[str]:
    terms = {"masked tokens": "masked_lm", "next sentence": "next_sentence"}
    accuracy = [
        Series(name, run.points(f"{key}_accuracy", scale=100)) for name, key in terms.items()
    ]
    loss = [Series("loss", run.points("masked_lm"))]
    return [
        line_chart("Loss on masked tokens", loss, x_label="step"),
        line_chart("Accuracy", accuracy, x_label="step", unit="%", from_zero=True),
    ]


def _tasks(
    results: dict[str, Any], shown: Sequence[Sequence[Display]], own: bool
) -> list[dict[str, Any]]:
    classifier, tagger = results["classifier"], results["tagger"]
    names = "names" if own else "names in code"
    words = f"sentences; F1 of the {names}; accuracy over all words {tagger['accuracy']:.1%}"
    return [
        {
            "title": f"Which {'part of the text' if own else 'area of the library'} is it from?",
            "tuned": classifier,
            "bars": _bars(score_bars(classifier)),
            "counted": "texts; accuracy",
            "lines": [_labelled(display) for display in shown[0]],
            "legend": [],
        },
        {
            "title": f"Which words are {names}?",
            "tuned": tagger,
            "bars": _bars(score_bars(tagger)),
            "counted": words,
            "lines": [_tagged(display) for display in shown[1]],
            "legend": [MarkedPart(*kind) for kind in KINDS.items()],
        },
    ]


def _bars(rows: Sequence[tuple[str, float]], weak: Sequence[int] | None = None) -> str:
    """Scores as bars; the last one stands out, or those that are not `weak`."""
    bars = [(name, value, f"{value:.1%}") for name, value in rows]
    return bar_list(bars, most=1.0, weak=range(len(rows) - 1) if weak is None else weak)


def _labelled(display: Display) -> list[MarkedPart]:
    correct, confidence = display.label == display.prediction, f"{display.confidence:.0%}"
    note = confidence if correct else f"{confidence}, label: {display.label}"
    text, prediction = display.passages[0].text, display.prediction or ""
    return [MarkedPart(f"{text} "), MarkedPart(prediction, "good" if correct else "bad", note)]


def _tagged(display: Display) -> list[MarkedPart]:
    sentence = display.passages[0]
    marks = ((mark.start, mark.end, KINDS[mark.kind], "") for mark in sentence.marks)
    return highlighted(sentence.text, marks)
