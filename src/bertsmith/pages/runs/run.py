"""A run, read from its folder: logs of any length, finished or not."""

import json
import math
import tomllib
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import cause, reading
from bertsmith.foreign import read_table
from bertsmith.store import flat

MOST = 75  # a curve has at most twice as many points
KEPT = 100  # evaluations whose mask samples are kept
HELD = "held_out_"
LAST = ("probe", "probe_majority", "pseudo_perplexity", "unigram_entropy")


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
class PretrainingRun:
    """What a run has left in its folder so far."""

    path: Path
    recipe: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] | None = None
    # By the keys of log.jsonl, over steps.
    curves: dict[str, Curve] = field(default_factory=lambda: defaultdict(Curve))
    speed: Curve = field(default_factory=Curve)  # tokens a second, over steps
    median_speed: float | None = None  # tokens a second
    samples: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)  # by step
    skipped: Counter[str] = field(default_factory=Counter)  # steps, by reason
    step: int = 0
    minutes: float | None = None
    parameters: int | None = None
    notes: list[str] = field(default_factory=list)  # what could not be read
    branch: tuple[str, int] | None = None  # the run and the step that it branches off from

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.resolve().name or str(self.path)

    @property
    def finished(self) -> bool:
        """Has it come to its end?"""
        return bool(self.summary.get("finished"))

    def settings(self) -> dict[str, Any]:
        """The recipe with dotted keys, such as train.steps."""
        return flat(self.recipe)

    def terms(self) -> list[str]:
        """The loss terms, each of which has an accuracy."""
        keys = (key.removeprefix(HELD) for key in self.curves if key.endswith("_accuracy"))
        return list(dict.fromkeys(key.removesuffix("_accuracy") for key in keys))

    def points(self, key: str, scale: float = 1.0) -> list[tuple[float, float]]:
        """The curve of a key of the log over steps; empty where there is none."""
        points = self.curves[key].points() if key in self.curves else []
        return [(x, y * scale) for x, y in points]

    def last(self, key: str) -> float | None:
        """The last value of a key of the log, or of the summary."""
        value = self.curves[key].last if key in self.curves else number(self.summary.get(key))
        return value if value is None or math.isfinite(value) else None

    def measures(self) -> dict[str, Any]:
        """The numbers that matter, by the keys of summary.json; those that are known."""
        tokens = number(self.summary.get("tokens")) or self.last("tokens")
        values = {
            "finished": self.finished,
            "steps": self.step,
            "tokens": None if tokens is None else int(tokens),
            "minutes": self.minutes,
            "tokens_per_second": self.median_speed,
            "ranks": number(self.summary.get("ranks")),
            "useful_share": number(self.summary.get("useful_share")),
            "parameters": self.parameters,
        }
        values |= {key: self.last(key) for key in self.curves if key.startswith(HELD)}
        values |= {key: self.last(key) for key in LAST}
        return {key: value for key, value in values.items() if value is not None}


def read_run(path: str | Path) -> PretrainingRun:
    """Read the folder of a run, finished or not; logs of any length."""
    run = PretrainingRun(Path(path))
    if not any((run.path / name).is_file() for name in ("recipe.toml", "log.jsonl")):
        problem = "contains no run" if run.path.is_dir() else "no such folder"
        raise BertsmithError(
            f"{path}: {problem}; name a folder that pretrain wrote ({setting_name('out')})"
        )
    run.recipe = _table(run, "recipe.toml") or {}
    run.summary = _table(run, "summary.json") or {}
    run.ledger = _table(run, "ledger.json")
    origin = (read_table(run.path / "start.json") or {}).get("branch")
    if isinstance(origin, dict) and isinstance(origin.get("step"), int):
        run.branch = str(origin.get("run")), origin["step"]
    for row in rows(run, "log.jsonl"):
        _take(run, row)
    logged, timed = run.step, _read_timing(run)
    run.step = int(number(run.summary.get("steps")) or max(logged, timed))
    if logged < run.step:
        ends = f"ends at step {logged:,}" if logged else "is missing or empty"
        run.notes.append(f"log.jsonl {ends}, but the run has {run.step:,} steps")
    elif run.finished and _changed(run.path):
        run.notes.append("log.jsonl was changed since the run ended")
    run.minutes = number(run.summary.get("minutes")) or run.minutes
    run.parameters = _parameters(run.path / "model" / "model.safetensors")
    return run


def _table(run: PretrainingRun, name: str) -> dict[str, Any] | None:
    path = run.path / name
    if not path.exists():
        return None
    with reading(path):
        data = path.read_bytes()
    try:
        content = tomllib.loads(data.decode()) if path.suffix == ".toml" else json.loads(data)
        if not isinstance(content, dict):
            raise ValueError("it is not a table")
    except (ValueError, RecursionError) as error:
        run.notes.append(f"{name} is damaged and left out ({cause(error)})")
        return None
    return content


def _changed(folder: Path) -> bool:
    """Whether the log of a finished run differs from its checksum in the last checkpoint."""
    last = max(folder.glob("checkpoints/step-????????/state.json"), default=None)
    state = read_table(last) if last else None
    known = flat(state or {}).get("sums.log.jsonl")
    log = folder / "log.jsonl"
    return known is not None and log.is_file() and zlib.crc32(log.read_bytes()) != known


def rows(run: PretrainingRun, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a log; a last line that is cut off is normal, other bad ones are counted."""
    path, bad = run.path / name, 0
    if not path.exists():
        return
    with reading(path), path.open("rb") as stream:
        for line in stream:
            try:
                row = json.loads(line)
                row["step"] = int(row["step"])
            except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
                bad += line.endswith(b"\n")
                continue
            yield row
    if bad:
        lines = "line is" if bad == 1 else "lines are"
        run.notes.append(f"{name}: {bad:,} damaged {lines} left out")


def _take(run: PretrainingRun, row: dict[str, Any]) -> None:
    step = run.step = row["step"]
    if isinstance(row.get("samples"), list):
        samples = [sample for sample in row["samples"] if isinstance(sample, dict)]
        samples = [
            sample
            for sample in samples
            if isinstance(sample.get("text"), str) and isinstance(sample.get("targets"), list)
        ]
        run.samples.append((step, samples))
        if len(run.samples) > KEPT:  # leave out the one with the nearest neighbours
            steps = [at for at, _ in run.samples]
            del run.samples[min(range(1, KEPT), key=lambda i: steps[i + 1] - steps[i - 1])]
    if "skipped" in row:
        run.skipped[str(row["skipped"])] += 1
    for key, value in row.items():
        if key != "step" and number(value) is not None:
            run.curves[key].add(step, value)


def _read_timing(run: PretrainingRun) -> int:
    """Read how long steps took; returns the last of them."""
    speeds, step = array("d"), 0
    for row in rows(run, "timing.jsonl"):
        step, seconds, tokens = row["step"], number(row.get("seconds")), number(row.get("tokens"))
        if seconds and tokens is not None and seconds > 0:
            run.speed.add(step, tokens / seconds, seconds)
            speeds.append(tokens / seconds)
        if (elapsed := number(row.get("elapsed"))) is not None:
            run.minutes = elapsed / 60
    run.median_speed = median(speeds) if speeds else None
    return step


def _parameters(path: Path) -> int | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as weights:
            slices = map(weights.get_slice, weights.keys())
            return sum(math.prod(tensor.get_shape()) for tensor in slices)
    except (OSError, SafetensorError):
        return None


def number(value: object) -> float | None:
    """A finite number (of a size that can be summed), or None for all else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < 1e300 else None
    return None
