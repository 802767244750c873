"""What a run came to: read from its folder, as a page, and beside other runs."""

from __future__ import annotations

import json
import math
import tomllib
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, write_text
from bertsmith.pages import Reference, Series, line_chart, page, short

MOST = 75  # a curve has at most twice as many points
COLUMNS = 6  # evaluations whose mask samples are shown
HELD = "held_out_"
NAMES = {
    "masked_lm": "Masked LM",
    "following_lm": "Causal LM",
    "generator": "Generator (masked LM)",
    "next_sentence": "Next sentence prediction",
    "sentence_order": "Sentence order prediction",
    "replaced": "Replaced token detection",
}
WORDS = ("masked_lm", "following_lm", "generator")  # what predicts tokens, as a unigram model does


class Curve:
    """A series of any length as means over buckets, which grow with it."""

    def __init__(self) -> None:
        self.size = 1  # values in a full bucket
        self.buckets: list[list[float]] = []  # count, sum of x, weighted sum of y, weight
        self.last = math.nan

    def add(self, x: float, y: float, weight: float = 1.0) -> None:
        """Take the next value."""
        self.last = y
        if not self.buckets or self.buckets[-1][0] >= self.size:
            if len(self.buckets) == 2 * MOST:
                pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
                self.buckets = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
                self.size *= 2
            self.buckets.append([0, 0.0, 0.0, 0.0])
        bucket = self.buckets[-1]
        bucket[0] += 1
        bucket[1] += x
        bucket[2] += y * weight
        bucket[3] += weight

    def points(self) -> list[tuple[float, float]]:
        """The mean x and y of each bucket."""
        return [(x / count, y / weight) for count, x, y, weight in self.buckets if weight]


@dataclass
class Run:
    """What a run has left in its folder so far."""

    path: Path
    recipe: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] | None = None
    curves: dict[str, Curve] = field(default_factory=dict)  # by the keys of log.jsonl, over steps
    speed: Curve = field(default_factory=Curve)  # tokens a second, over steps
    median_speed: float | None = None  # tokens a second
    samples: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)  # by step
    skipped: Counter[str] = field(default_factory=Counter)  # steps, by reason
    step: int = 0
    minutes: float | None = None
    parameters: int | None = None
    notes: list[str] = field(default_factory=list)  # what could not be read

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.resolve().name or str(self.path)

    @property
    def finished(self) -> bool:
        """Has it come to its end?"""
        return bool(self.summary.get("finished"))

    def terms(self) -> list[str]:
        """The loss terms, each of which has an accuracy."""
        found = (key.removeprefix(HELD) for key in self.curves if key.endswith("_accuracy"))
        return list(dict.fromkeys(key.removesuffix("_accuracy") for key in found))

    def last(self, key: str) -> float | None:
        """The last value of a key of the log, or of the summary."""
        value = self.curves[key].last if key in self.curves else _number(self.summary.get(key))
        return value if value is None or math.isfinite(value) else None

    def measures(self) -> dict[str, Any]:
        """The numbers that matter, by the keys of summary.json; those that are known."""
        tokens = _number(self.summary.get("tokens")) or self.last("tokens")
        values = {
            "finished": self.finished,
            "steps": self.step,
            "tokens": None if tokens is None else int(tokens),
            "minutes": self.minutes,
            "tokens_per_second": self.median_speed,
            "ranks": _number(self.summary.get("ranks")),
            "useful_share": _number(self.summary.get("useful_share")),
            "parameters": self.parameters,
        }
        values |= {key: self.last(key) for key in self.curves if key.startswith(HELD)}
        values |= {key: self.last(key) for key in ("pseudo_perplexity", "unigram_entropy")}
        return {key: value for key, value in values.items() if value is not None}


def read_run(path: str | Path) -> Run:
    """Read the folder of a run, finished or not; logs of any length."""
    run = Run(Path(path))
    if not any((run.path / name).is_file() for name in ("recipe.toml", "log.jsonl")):
        raise BertsmithError(f"{path}: no run is in it; give a folder that pretrain wrote (--out)")
    run.recipe = _table(run, "recipe.toml") or {}
    run.summary = _table(run, "summary.json") or {}
    run.ledger = _table(run, "ledger.json")
    for row in _rows(run, "log.jsonl"):
        _take(run, row)
    _read_timing(run)
    run.step = int(_number(run.summary.get("steps")) or run.step)
    run.minutes = _number(run.summary.get("minutes")) or run.minutes
    run.parameters = _parameters(run.path / "model" / "model.safetensors")
    return run


def write_report(run: str | Path) -> Path:
    """Write report.html into the folder of a run."""
    out = Path(run) / "report.html"
    write_text(out, report_page(read_run(run)))
    return out


# ------------------------------------------------------------------ reading


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BertsmithError(f"{path}: cannot be read ({cause(error)})") from error


def _table(run: Run, name: str) -> dict[str, Any] | None:
    text = _read(run.path / name)
    try:
        content = None if text is None else (tomllib if ".toml" in name else json).loads(text)
    except (ValueError, RecursionError) as error:
        run.notes.append(f"{name} is damaged and left out ({cause(error)})")
        return None
    return content if isinstance(content, dict) else None


def _rows(run: Run, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a log; a last line that is cut off is normal, other bad ones are counted."""
    bad = 0
    try:
        with (run.path / name).open("rb") as stream:
            for line in stream:
                try:
                    row = json.loads(line)
                    row["step"] = int(row["step"])
                except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
                    bad += line.endswith(b"\n")
                    continue
                yield row
    except FileNotFoundError:
        return
    except OSError as error:
        raise BertsmithError(f"{run.path / name}: cannot be read ({cause(error)})") from error
    if bad:
        run.notes.append(f"{bad:,} damaged lines of {name} are left out")


def _take(run: Run, row: dict[str, Any]) -> None:
    step = run.step = row["step"]
    if isinstance(row.get("samples"), list):
        run.samples.append((step, [one for one in row["samples"] if _is_sample(one)]))
        if len(run.samples) > 20 * COLUMNS:  # any evaluation may turn out to be the last
            run.samples = [*run.samples[:-1:2], run.samples[-1]]
    if "skipped" in row:
        run.skipped[str(row["skipped"])] += 1
    for key, value in row.items():
        if key != "step" and (number := _number(value)) is not None:
            if key not in run.curves:
                run.curves[key] = Curve()
            run.curves[key].add(step, number)


def _is_sample(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("text"), str)
        and isinstance(value.get("targets"), list)
    )


def _read_timing(run: Run) -> None:
    speeds = array("d")
    for row in _rows(run, "timing.jsonl"):
        seconds, tokens = _number(row.get("seconds")), _number(row.get("tokens"))
        if seconds and tokens is not None and seconds > 0:
            run.speed.add(row["step"], tokens / seconds, seconds)
            speeds.append(tokens / seconds)
        if (elapsed := _number(row.get("elapsed"))) is not None:
            run.minutes = elapsed / 60
    run.median_speed = median(speeds) if speeds else None


def _parameters(path: Path) -> int | None:
    """How many numbers a file of weights holds, by its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as weights:
            slices = map(weights.get_slice, weights.keys())
            return sum(math.prod(one.get_shape()) for one in slices)
    except (OSError, SafetensorError):
        return None


def _number(value: object) -> float | None:
    """A finite number (of a size that can be summed), or None for all else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < 1e300 else None
    return None


# ------------------------------------------------------------------ the page of a run


def report_page(run: Run) -> str:
    """The page of a run as HTML."""
    return page(
        "run.html",
        f"Run {run.name}",
        about=str(run.recipe.get("about", "")),
        state=_state(run),
        verdict=_verdict(run),
        tiles=list(_tiles(run)),
        objectives=[(_name(term), _objective_charts(run, term)) for term in run.terms()],
        optimization=_optimization_charts(run),
        evaluations=[step for step, _ in _shown_samples(run)],
        samples=_sample_table(run),
        ledger=run.ledger,
        skipped=run.skipped,
        notes=run.notes,
        recipe=_recipe_tables(run.recipe),
    )


def _name(term: str) -> str:
    return NAMES.get(term, term.replace("_", " ").capitalize())


def _state(run: Run) -> str:
    if run.finished:
        return f"Finished after {run.step:,} steps"
    planned = _number(_flat(run.recipe).get("train.steps"))
    of = f" of {planned:,.0f}" if planned else ""
    return f"Not finished: {run.step:,}{of} steps so far"


def _predicting(run: Run) -> tuple[str, float] | None:
    """The term that predicts tokens, and its last loss on held-out text."""
    losses = ((term, run.last(f"{HELD}{term}")) for term in WORDS)
    return next(((term, loss) for term, loss in losses if loss is not None), None)


def _verdict(run: Run) -> tuple[bool, str] | None:
    """Has it learned more than how often each token occurs?"""
    unigram, scored = run.last("unigram_entropy"), _predicting(run)
    if unigram is None or scored is None:
        return None
    term, loss = scored
    who = "generator" if term == "generator" else "model"
    numbers = f"{loss:.2f} against {unigram:.2f} nats per token on held-out text"
    if loss < unigram:
        return True, f"The {who} predicts tokens better than word frequencies alone: {numbers}."
    return False, f"The {who} has not learned more than word frequencies yet: {numbers}."


def _tiles(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """The headline: (label, number, unit, more)."""
    unigram, scored = run.last("unigram_entropy"), _predicting(run)
    if scored is not None:
        term, loss = scored
        more = "" if unigram is None else f"; word frequencies alone: {unigram:.2f}"
        yield "Held-out loss", f"{loss:.3f}", "nats/token", _name(term) + more
    for term in run.terms():
        if (accuracy := run.last(f"{HELD}{term}_accuracy")) is not None:
            yield "Held-out accuracy", f"{accuracy:.1%}", "", _name(term)
    if (perplexity := run.last("pseudo_perplexity")) is not None:
        yield "Pseudo-perplexity", f"{perplexity:,.1f}", "", "each token masked alone"
    measures = run.measures()
    if "parameters" in measures:
        yield "Parameters", short(measures["parameters"]), "", str(_model(run))
    if "tokens" in measures:
        yield "Tokens", short(measures["tokens"]), "", f"in {run.step:,} steps"
    if run.minutes is not None:
        yield "Time", duration(run.minutes), "", str(run.summary.get("hardware") or "")
    if run.median_speed is not None:
        ranks, share = measures.get("ranks", 1), measures.get("useful_share")
        more = "median step" if ranks == 1 else f"median step, on {ranks} ranks"
        more += "" if share is None else f"; {share:.0%} of tokens useful"
        yield "Speed", f"{run.median_speed:,.0f}", "tokens/s", more


def _model(run: Run) -> Any:
    flat = _flat(run.recipe)
    return flat.get("model.start") or flat.get("model.size") or ""


def _objective_charts(run: Run, term: str) -> list[str]:
    unigram = run.last("unigram_entropy") if term in WORDS else None
    line = [] if unigram is None else [Reference(unigram, "word frequencies alone")]
    chart = partial(line_chart, x_label="step", x_end=run.step)
    loss = _pair(run, term, "")
    accuracy = _pair(run, f"{term}_accuracy", "", 100)
    for key in run.curves:  # such as replaced_recall
        name = key.removeprefix(HELD).removeprefix(f"{term}_")
        if key == f"{term}_{name}" and name != "accuracy":
            accuracy += _pair(run, key, f", {name.replace('_', ' ')}", 100, color=2)
    return [
        chart("Loss", loss, y_label="nats", references=line),
        chart("Accuracy", accuracy, unit="%", from_zero=True),
    ]


def _pair(run: Run, key: str, what: str, scale: float = 1.0, color: int = 0) -> list[Series]:
    """The curves of a key in training and on held-out text."""
    train, held = ([(x, y * scale) for x, y in _points(run, one)] for one in (key, HELD + key))
    return [
        Series(f"training{what}", train, quiet=True, color=color),
        Series(f"held-out{what}", held, dots=True, color=color + 1),
    ]


def _points(run: Run, key: str) -> list[tuple[float, float]]:
    return run.curves[key].points() if key in run.curves else []


def _optimization_charts(run: Run) -> list[str]:
    rate, norm = _points(run, "learning_rate"), _points(run, "gradient_norm")
    middle = [] if run.median_speed is None else [Reference(run.median_speed, "median step")]
    speed = [Series("all ranks", run.speed.points(), color=2)]
    chart = partial(line_chart, x_label="step", x_end=run.step)
    return [
        chart("Learning rate", [Series("learning rate", rate)], from_zero=True),
        chart("Gradient norm", [Series("before clipping", norm, color=3)], log_y=True),
        chart("Speed", speed, y_label="tokens/s", references=middle, from_zero=True),
    ]


def _shown_samples(run: Run) -> list[tuple[int, list[dict[str, Any]]]]:
    """The evaluations whose samples are shown: the first, the last and some between."""
    last = len(run.samples) - 1
    count = min(COLUMNS, last + 1)
    return [run.samples[round(number * last / max(count - 1, 1))] for number in range(count)]


def _sample_table(run: Run) -> list[dict[str, Any]]:
    """Each text with its masked tokens, and for each of these the guesses at every evaluation."""
    shown = _shown_samples(run)
    table = []
    for place, sample in enumerate(shown[-1][1] if shown else []):
        targets = [str(target) for target in sample["targets"]]
        cells = [
            [_guesses(samples, place, number) for _, samples in shown]
            for number in range(len(targets))
        ]
        rows = list(zip(targets, cells, strict=True))
        table.append({"parts": _text_parts(str(sample["text"]), targets), "rows": rows})
    return table


def _guesses(samples: list[dict[str, Any]], place: int, number: int) -> list[tuple[str, str]]:
    try:
        guesses = samples[place]["guesses"][number]
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


def _recipe_tables(recipe: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    tables: dict[str, list[tuple[str, str]]] = {}
    for key, value in _flat(recipe).items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append((name, _shown(value)))
    tables.pop("", None)  # `about` heads the page
    return list(tables.items())


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for number, one in enumerate(value, 1):
                flat |= _flat(one, f"{prefix}{key} {number}.")
        else:
            flat[prefix + key] = value
    return flat


def duration(minutes: float) -> str:
    """Write a time with its two largest units."""
    seconds = round(60 * minutes)
    for size, unit, below, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // below} {part}"
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


# ------------------------------------------------------------------ several runs


@dataclass(frozen=True)
class Comparison:
    """Runs beside each other: a value for each run in every row."""

    runs: tuple[Run, ...]
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
            (key, ["–" if value is None else _shown(value) for value in values])
            for key, values in self.recipe.items()
        ]

    def html(self) -> str:
        """A page with tables and overlaid curves."""
        return page(
            "runs.html",
            "Runs " + ", ".join(self.names),
            names=self.names,
            rows=self.rows(),
            differences=self.differences(),
            notes=self.notes,
            objectives=[(_name(term), self._charts(term)) for term in self._terms()],
        )

    def _terms(self) -> list[str]:
        return list(dict.fromkeys(term for run in self.runs for term in run.terms()))

    def _charts(self, term: str) -> list[str]:
        lines = [] if term not in WORDS else self._baselines()
        end = max(run.last("tokens") or 0 for run in self.runs)
        charts = []
        for prefix, where in ((HELD, "held-out text"), ("", "training")):
            for suffix, what, scale, unit in (
                ("", "Loss", 1, ""),
                ("_accuracy", "Accuracy", 100, "%"),
            ):
                series = [
                    Series(
                        name, _by_tokens(run, f"{prefix}{term}{suffix}", scale), dots=bool(prefix)
                    )
                    for run, name in zip(self.runs, self.names, strict=True)
                ]
                charts.append(
                    line_chart(
                        f"{what}, {where}",
                        series,
                        x_label="tokens",
                        x_end=end,
                        y_label="" if suffix else "nats",
                        unit=unit,
                        references=[] if suffix else lines,
                        from_zero=bool(suffix),
                    )
                )
        return charts

    def _baselines(self) -> list[Reference]:
        """One line where all runs share it, else one for each."""
        known = {
            name: value
            for name, run in zip(self.names, self.runs, strict=True)
            if (value := run.last("unigram_entropy")) is not None
        }
        label = "word frequencies alone"
        if len({f"{value:.2f}" for value in known.values()}) <= 1:
            return [Reference(value, label) for value in list(known.values())[:1]]
        return [Reference(value, f"{label}, {name}") for name, value in known.items()]


def compare_runs(runs: Sequence[Run]) -> Comparison:
    """Put runs beside each other."""
    names = tuple(run.name for run in runs)
    if len(set(names)) < len(names):
        names = tuple(str(run.path) for run in runs)
    measures = [run.measures() for run in runs]
    recipes = [_flat(run.recipe) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key != "about")
    recipe = {key: [one.get(key) for one in recipes] for key in keys}
    notes = [f"{name}: {note}" for name, run in zip(names, runs, strict=True) for note in run.notes]
    unigrams = [one["unigram_entropy"] for one in measures if "unigram_entropy" in one]
    if unigrams and max(unigrams) - min(unigrams) > 0.005:
        notes.append(
            "the runs have different unigram entropies: their text or vocabulary differs, and"
            " losses per token cannot be compared directly"
        )
    return Comparison(
        tuple(runs),
        names,
        {key: [one.get(key) for one in measures] for key in _ordered(measures)},
        {key: values for key, values in recipe.items() if any(v != values[0] for v in values)},
        notes,
    )


def _ordered(measures: list[dict[str, Any]]) -> list[str]:
    """All keys, in the order of `Run.measures`: what is held out before what ends it."""
    keys = list(dict.fromkeys(key for one in measures for key in one))
    ends = ("pseudo_perplexity", "unigram_entropy")
    return sorted(keys, key=lambda key: (key in ends, key.startswith(HELD)))


def _by_tokens(run: Run, key: str, scale: float) -> list[tuple[float, float]]:
    """A curve over the tokens that were read, instead of steps."""
    known = [(0.0, 0.0), *_points(run, "tokens")]
    if "tokens" in run.curves:
        known.append((max(run.step, known[-1][0]), run.curves["tokens"].last))
    steps = [step for step, _ in known]

    def tokens(step: float) -> float:
        place = min(max(bisect(steps, step), 1), len(known) - 1)
        (low, first), (high, last) = known[place - 1], known[place]
        return first + (last - first) * (step - low) / ((high - low) or 1)

    return [(tokens(x), y * scale) for x, y in _points(run, key)] if len(known) > 1 else []


def _label(key: str) -> str:
    labels = {
        "minutes": "time",
        "tokens_per_second": "speed (median step)",
        "useful_share": "useful share of tokens computed",
        "pseudo_perplexity": "pseudo-perplexity",
        "unigram_entropy": "word frequencies alone",
    }
    if not key.startswith(HELD):
        return labels.get(key, key.replace("_", " "))
    name = key.removeprefix(HELD)
    for term in sorted(NAMES, key=len, reverse=True):
        if name == term:
            return f"held-out loss, {NAMES[term]}"
        if name.startswith(f"{term}_"):
            return f"held-out {name.removeprefix(term + '_')}, {NAMES[term]}"
    return f"held-out {name.replace('_', ' ')}"


def _measure(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "minutes":
        return duration(value)
    if key.endswith(("_accuracy", "_recall", "_share")):
        return f"{value:.1%}"
    if key == "tokens_per_second":
        return f"{value:,.0f} tokens/s"
    if key == "pseudo_perplexity":
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f} nats"
