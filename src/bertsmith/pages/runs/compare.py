"""Runs side by side: results, and the recipe keys in which they differ."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.pages import Reference, Series, line_chart, page
from bertsmith.pages.runs.page import NAMES, WORDS, duration, plain, term_name
from bertsmith.pages.runs.run import HELD, LAST, PretrainingRun

LONGEST = 60  # characters of a title that lists the runs
LABELS = {  # of measures that are called otherwise than their key
    "minutes": "time",
    "tokens_per_second": "speed (median step)",
    "useful_share": "useful share of tokens computed",
    "probe": "accuracy of the probe",
    "probe_majority": "most frequent label of the probe",
    "pseudo_perplexity": "pseudo-perplexity",
    "unigram_entropy": "word frequencies alone",
}


@dataclass(frozen=True)
class RunComparison:
    """Runs beside each other: a value for each run in every row."""

    runs: tuple[PretrainingRun, ...]
    names: tuple[str, ...]
    measures: dict[str, list[Any]]  # by the keys of summary.json; None where a run has none
    recipe: dict[str, list[Any]]  # the keys of the recipes that differ
    notes: list[str]

    def rows(self) -> list[tuple[str, list[str]]]:
        """The measures as people read them."""
        return [
            (_label(key), [_measure(key, value) for value in values])
            for key, values in self.measures.items()
        ]

    def differences(self) -> list[tuple[str, list[str]]]:
        """The differing keys of the recipes as people read them."""
        return [
            (key, ["–" if value is None else plain(value) for value in values])
            for key, values in self.recipe.items()
        ]

    def tree(self) -> list[str]:
        """The runs as a tree, a line for each, if any of them branches off from another."""
        if not any(run.branch for run in self.runs):
            return []
        paths = [str(run.path.resolve()) for run in self.runs]
        origins = [run.branch[0] if run.branch else "" for run in self.runs]

        def lines(number: int, within: bool) -> list[str]:
            run, name = self.runs[number], self.names[number]
            where = "" if run.branch is None else f"from step {run.branch[1]:,}"
            where += f" of {run.branch[0]}" if run.branch and not within else ""
            below = [n for n, origin in enumerate(origins) if origin == paths[number]]
            drawn = [f"{name}: {where}{', ' if where else ''}{run.step:,} steps"]
            for child in below:
                first, *rest = lines(child, True)
                last = child == below[-1]
                drawn += [("└── " if last else "├── ") + first]
                drawn += [("    " if last else "│   ") + line for line in rest]
            return drawn

        roots = [n for n, origin in enumerate(origins) if origin not in paths]
        return [line for root in roots for line in lines(root, False)]

    def html(self) -> str:
        """A page with tables and overlaid curves."""
        title = "Runs " + ", ".join(self.names)
        terms = dict.fromkeys(term for run in self.runs for term in run.terms())
        return page(
            "runs.html",
            title if len(title) <= LONGEST else f"{len(self.names)} runs compared",
            names=self.names,
            rows=self.rows(),
            differences=self.differences(),
            notes=self.notes,
            tree=self.tree(),
            objectives=[(term_name(term), self._charts(term)) for term in terms],
        )

    def _charts(self, term: str) -> list[str]:
        chart = partial(line_chart, x_label="tokens", x_end=max(map(_tokens, self.runs)))
        named = list(zip(self.names, self.runs, strict=True))

        def series(key: str, scale: float = 1.0) -> list[Series]:
            return [Series(n, _by_tokens(run, key, scale), dots=HELD in key) for n, run in named]

        lines = self._baselines(term) if term in WORDS else []
        drawn: list[str] = []
        for prefix, where in ((HELD, "held-out text"), ("", "training")):
            loss, accuracy = series(prefix + term), series(f"{prefix}{term}_accuracy", 100)
            drawn.append(chart(f"Loss, {where}", loss, y_label="nats", references=lines))
            drawn.append(chart(f"Accuracy, {where}", accuracy, unit="%", from_zero=True))
        return drawn

    def _baselines(self, term: str) -> list[Reference]:
        """One line where all runs share it, else one for each."""
        lines = [
            Reference(value, f"word frequencies alone, {name}")
            for name, run in zip(self.names, self.runs, strict=True)
            if term in run.terms() and (value := run.last("unigram_entropy")) is not None
        ]
        if len({f"{line.value:.2f}" for line in lines}) == 1:
            return [Reference(lines[0].value, "word frequencies alone")]
        return lines


def _short_paths(paths: Sequence[Path]) -> tuple[str, ...]:
    """Paths without the leading folders that all of them share."""
    every = [path.absolute() for path in paths]
    shared = os.path.commonpath([path.parent for path in every])
    return tuple(path.relative_to(shared).as_posix() for path in every)


def compare_runs(runs: Sequence[PretrainingRun]) -> RunComparison:
    """Put runs beside each other."""
    names = tuple(run.name for run in runs)
    if len(set(names)) < len(names):
        names = _short_paths([run.path for run in runs])
    measures = [run.measures() for run in runs]
    recipes = [run.settings() for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key != "about")
    values = {key: [recipe.get(key) for recipe in recipes] for key in keys}
    notes = [f"{name}: {note}" for name, run in zip(names, runs, strict=True) for note in run.notes]
    unigrams = [row["unigram_entropy"] for row in measures if "unigram_entropy" in row]
    if unigrams and max(unigrams) - min(unigrams) > 0.005:
        notes.append(
            "the runs have different unigram entropies: their text or vocabulary differs, and"
            " losses per token cannot be compared directly"
        )
    # In the order of `measures`, which runs with other objectives interleave.
    known = dict.fromkeys(key for row in measures for key in row)
    ordered = sorted(known, key=lambda key: (key in LAST, key.startswith(HELD)))
    return RunComparison(
        tuple(runs),
        names,
        {key: [row.get(key) for row in measures] for key in ordered},
        {key: row for key, row in values.items() if any(value != row[0] for value in row)},
        notes,
    )


def _tokens(run: PretrainingRun) -> float:
    return run.last("tokens") or 0.0


def _by_tokens(run: PretrainingRun, key: str, scale: float) -> list[tuple[float, float]]:
    """A curve over the tokens that were read, instead of steps."""
    steps, tokens = zip((0, 0), *run.points("tokens"), (run.step, _tokens(run)), strict=True)
    points = run.points(key, scale)
    read = np.interp([step for step, _ in points], steps, tokens).tolist()
    return [(at, y) for at, (_, y) in zip(read, points, strict=True)] if _tokens(run) else []


def _label(key: str) -> str:
    if not key.startswith(HELD):
        return LABELS.get(key, key.replace("_", " "))
    name, slash, held = key.removeprefix(HELD).partition("/")
    held = f" ({held})" if slash else ""  # a set that has a name
    for term in sorted(NAMES, key=len, reverse=True):
        if f"{name}_".startswith(f"{term}_"):
            return f"held-out {name[len(term) + 1 :] or 'loss'}, {NAMES[term]}{held}"
    return f"held-out {name.replace('_', ' ')}{held}"


def _measure(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "minutes":
        return duration(value)
    if key.partition("/")[0].endswith(("_accuracy", "_recall", "_share", "probe", "_majority")):
        return f"{value:.1%}"
    if key == "tokens_per_second":
        return f"{value:,.0f} tokens/s"
    if key == "pseudo_perplexity":
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f} nats"
