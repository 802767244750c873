"""The page of a run: report.html."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.files import write_text
from bertsmith.pages import Reference, Series, line_chart, page, short
from bertsmith.pages.runs.run import HELD, PretrainingRun, number, read_run

COLUMNS = 6  # evaluations whose mask samples are shown
NAMES = {
    "masked_lm": "Masked LM",
    "following_lm": "Causal LM",
    "generator": "Generator (masked LM)",
    "next_sentence": "Next sentence prediction",
    "sentence_order": "Sentence order prediction",
    "replaced": "Replaced token detection",
}
WORDS = ("masked_lm", "following_lm", "generator")  # what predicts tokens, as a unigram model does


SAME = 0.02  # relative difference of losses that says nothing


def write_report(run: str | Path) -> Path:
    """Write report.html into the folder of a run."""
    out = Path(run) / "report.html"
    write_text(out, report_page(read_run(run)))
    return out


def report_page(run: PretrainingRun) -> str:
    """The page of a run as HTML."""
    return page(
        "run.html",
        f"Run {run.name}",
        about=str(run.recipe.get("about", "")),
        state=_state(run),
        verdict=_verdict(run),
        tiles=list(_tiles(run)),
        objectives=[(term_name(term), _objective_charts(run, term)) for term in run.terms()],
        probe=_probe_chart(run),
        probe_data=run.settings().get("probe.data", ""),
        corpora=run.summary.get("corpora") or [],
        optimization=_optimization_charts(run),
        evaluations=[step for step, _ in _shown_samples(run)],
        samples=_sample_table(run),
        ledger=run.ledger,
        skipped=run.skipped,
        notes=run.notes,
        recipe=_recipe_tables(run),
    )


def term_name(term: str) -> str:
    """Name a loss term for people."""
    return NAMES.get(term, term.replace("_", " ").capitalize())


def _state(run: PretrainingRun) -> str:
    if run.finished:
        return f"Finished after {run.step:,} steps"
    planned = number(run.settings().get("train.steps"))
    of = f" of {planned:,.0f}" if planned else ""
    return f"Not finished: {run.step:,}{of} steps so far"


def _predicting(run: PretrainingRun) -> tuple[str, float] | None:
    """The term that predicts tokens, and its last loss on held-out text."""
    losses = ((term, run.last(f"{HELD}{term}")) for term in WORDS)
    return next(((term, loss) for term, loss in losses if loss is not None), None)


def _verdict(run: PretrainingRun) -> tuple[bool, str] | None:
    """Has it learned more than how often each token occurs?"""
    unigram, scored = run.last("unigram_entropy"), _predicting(run)
    if unigram is None or scored is None:
        return None
    term, loss = scored
    who = "generator" if term == "generator" else "model"
    numbers = f"{loss:.2f} against {unigram:.2f} nats per token on held-out text"
    if abs(loss - unigram) < SAME * unigram:
        return False, f"The {who} predicts tokens about as well as word frequencies do: {numbers}."
    if loss < unigram:
        return True, f"The {who} predicts tokens better than word frequencies alone: {numbers}."
    return False, f"The {who} has not learned more than word frequencies yet: {numbers}."


def _tiles(run: PretrainingRun) -> Iterator[tuple[str, str, str, str]]:
    """The headline: (label, number, unit, more)."""
    unigram, scored = run.last("unigram_entropy"), _predicting(run)
    if scored is not None:
        term, loss = scored
        more = "" if unigram is None else f"; word frequencies alone: {unigram:.2f}"
        yield "Held-out loss", f"{loss:.3f}", "nats/token", term_name(term) + more
    for term in run.terms():
        if (accuracy := run.last(f"{HELD}{term}_accuracy")) is not None:
            yield "Held-out accuracy", f"{accuracy:.1%}", "", term_name(term)
    if (perplexity := run.last("pseudo_perplexity")) is not None:
        yield "Pseudo-perplexity", f"{perplexity:,.1f}", "", "each token masked alone"
    measures, recipe = run.measures(), run.settings()
    model = recipe.get("model.start") or recipe.get("model.size") or ""
    if "parameters" in measures:
        yield "Parameters", short(measures["parameters"]), "", str(model)
    if "tokens" in measures:
        yield "Tokens", short(measures["tokens"]), "", f"in {run.step:,} steps"
    if run.minutes is not None:
        yield "Time", duration(run.minutes), "", str(run.summary.get("hardware") or "")
    if run.median_speed is not None:
        ranks, share = measures.get("ranks", 1), measures.get("useful_share")
        more = "median step" if ranks == 1 else f"median step, on {ranks} ranks"
        more += "" if share is None else f"; {share:.0%} of tokens useful"
        yield "Speed", f"{run.median_speed:,.0f}", "tokens/s", more


def _objective_charts(run: PretrainingRun, term: str) -> list[str]:
    unigram = run.last("unigram_entropy") if term in WORDS else None
    line = [] if unigram is None else [Reference(unigram, "word frequencies alone")]
    chart = partial(line_chart, x_label="step", x_end=run.step)
    loss = _pair(run, term, "") + _sets(run, term)
    accuracy = _pair(run, f"{term}_accuracy", "", 100) + _sets(run, f"{term}_accuracy", 100)
    for key in run.curves:  # such as replaced_recall
        name = key.removeprefix(HELD).removeprefix(f"{term}_")
        if key == f"{term}_{name}" and name != "accuracy":
            accuracy += _pair(run, key, f", {name.replace('_', ' ')}", 100, color=2)
    return [
        chart("Loss", loss, y_label="nats", references=line),
        chart("Accuracy", accuracy, unit="%", from_zero=True),
    ]


def _pair(
    run: PretrainingRun, key: str, what: str, scale: float = 1.0, color: int = 0
) -> list[Series]:
    train, held = run.points(key, scale), run.points(HELD + key, scale)
    return [
        Series(f"training{what}", train, quiet=True, color=color),
        Series(f"held-out{what}", held, dots=True, color=color + 1),
    ]


def _sets(run: PretrainingRun, key: str, scale: float = 1.0) -> list[Series]:
    keys = [name for name in run.curves if name.startswith(f"{HELD}{key}/")]
    return [
        Series(name.partition("/")[2], run.points(name, scale), dots=True, color=number)
        for number, name in enumerate(keys, 2)
    ]


def _probe_chart(run: PretrainingRun) -> str:
    points, majority = run.points("probe", 100), run.last("probe_majority")
    if not points or majority is None:
        return ""
    lines = [Reference(100 * majority, "most frequent label")]
    series = [Series("accuracy", points, dots=True, color=1)]
    return line_chart(
        "Accuracy", series, x_label="step", x_end=run.step, unit="%", references=lines
    )


def _optimization_charts(run: PretrainingRun) -> list[str]:
    rate, norm = run.points("learning_rate"), run.points("gradient_norm")
    middle = [] if run.median_speed is None else [Reference(run.median_speed, "median step")]
    speed = [Series("speed", run.speed.points(), color=2)]
    chart = partial(line_chart, x_label="step", x_end=run.step)
    return [
        chart("Learning rate", [Series("learning rate", rate)], from_zero=True),
        chart("Gradient norm", [Series("before clipping", norm, color=3)], log_y=True),
        chart("Speed", speed, y_label="tokens/s", references=middle, from_zero=True),
    ]


def _shown_samples(run: PretrainingRun) -> list[tuple[int, list[dict[str, Any]]]]:
    """The evaluations whose samples are shown: the first, the last and some between."""
    steps = [step for step, _ in run.samples]
    if not steps:
        return []
    spread = np.linspace(steps[0], steps[-1], COLUMNS)
    places = {min(range(len(steps)), key=lambda i: abs(steps[i] - step)) for step in spread}
    return [run.samples[place] for place in sorted(places)]


def _sample_table(run: PretrainingRun) -> list[dict[str, Any]]:
    """Each text, and for each of its masked tokens the guesses at every evaluation."""
    shown = _shown_samples(run)
    table = []
    for place, sample in enumerate(shown[-1][1] if shown else []):
        targets = [str(target) for target in sample["targets"]]
        cells = [
            [_guesses(samples, place, mask) for _, samples in shown] for mask in range(len(targets))
        ]
        rows = list(zip(targets, cells, strict=True))
        table.append({"parts": _text_parts(str(sample["text"]), targets), "rows": rows})
    return table


def _guesses(samples: list[dict[str, Any]], place: int, mask: int) -> list[tuple[str, str]]:
    try:
        guesses = samples[place]["guesses"][mask]
        return [(str(token), f"{share:.0%}") for token, share in guesses[:3]]
    except (LookupError, TypeError, ValueError):
        return []


def _text_parts(text: str, targets: list[str]) -> list[tuple[str, str]]:
    """The text between masks, each part with the token that was masked after it."""
    for mask in ("[MASK]", "<mask>"):
        parts = text.split(mask)
        if len(parts) == len(targets) + 1:
            return list(zip(parts, [*targets, ""], strict=True))
    return [(text, "")]


def _recipe_tables(run: PretrainingRun) -> list[tuple[str, list[tuple[str, str]]]]:
    tables: dict[str, list[tuple[str, str]]] = {}
    for key, value in run.settings().items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append((name, plain(value)))
    tables.pop("", None)  # `about` heads the page
    return list(tables.items())


def plain(value: object) -> str:
    """Write a value of a recipe."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def duration(minutes: float) -> str:
    """Write a time with its two largest units."""
    seconds = round(60 * minutes)
    for size, unit, below, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // below} {part}"
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
