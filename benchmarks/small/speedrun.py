"""Quality against minutes: train for so many minutes of one GPU, score, verify, draw.

    python benchmarks/small/speedrun.py train CORPUS --minutes 5 --out ENTRY
    python benchmarks/small/speedrun.py train CORPUS --minutes 5 --library transformers --out OTHER
    python benchmarks/small/speedrun.py score ENTRY --data DATA --device cuda --jobs 15
    python benchmarks/small/speedrun.py verify ENTRY --data DATA --corpus CORPUS --device cuda
    python benchmarks/small/speedrun.py draw                  # the picture of all stored entries

An ENTRY is a folder: `entry.json` says who and with what commands, `model` is the trained model,
and `runs` has the folder of each run in order, without checkpoints. docs/speedrun.md has the rules,
which `verify` checks one by one; then it fine-tunes the model again and compares the scores with
those of the entry. `score` adds the entry to benchmarks/results/speedrun.json.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bertsmith import load
from bertsmith.files import digest

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "speedrun.json"
CORPUS = "bc4d6da60b40752a1cd40c7d3ac3629d6ee7e15b39687a0b2347820b5982b03d"  # its manifest's sum
PARAMETERS, MINUTES = 25_000_000, 40.0  # at most
TASKS = {
    "sst2": "accuracy",
    "cola": "mcc",
    "mrpc": "accuracy",
    "stsb": "spearman",
    "rte": "accuracy",
}
OTHERS = {"conll2003_en": "f1"}  # reported, and not in the mean
WEIGHTS = "model.safetensors"
FINETUNE = {"learning_rate": 4e-4, "optimizer": "muon"}  # of all entries
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student's t by degrees of freedom
# Of the recipes on one H200: steps a minute with rows of 128, and minutes until the first of them.
STEPS, COMPILED, SHORT = {"bertsmith-small": 2250, "bertsmith-small-replaced": 1400}, 0.45, 0.86
FIRST, BOTH = 0.365, 4.0  # masked LM's share of the minutes; a second run from so many minutes on
Entry = dict[str, Any]


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    train = verbs.add_parser("train", help="train for so many minutes")
    train.add_argument("corpus", type=Path)
    train.add_argument("--minutes", type=float, required=True)
    train.add_argument("--library", choices=("bertsmith", "transformers"), default="bertsmith")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--set", action="append", default=[], help="for each run of bertsmith")
    for name in ("score", "verify"):
        verb = verbs.add_parser(name)
        verb.add_argument("entry", type=Path)
        verb.add_argument("--data", type=Path, required=True, help="folders of GLUE and CoNLL")
        verb.add_argument("--device", default="cpu")
        verb.add_argument("--dtype", default="bfloat16")
        verb.add_argument("--jobs", type=int, default=1)
        verb.add_argument("--seeds", type=int, default=5)
        verb.add_argument("--tasks", nargs="+", default=[*TASKS, *OTHERS])
        if name == "verify":
            verb.add_argument("--corpus", type=Path, required=True)
    verbs.add_parser("draw")
    asked = parser.parse_args()
    if getattr(asked, "seeds", 2) < 2:
        parser.error("intervals need at least two seeds")
    return asked


# ------------------------------------------------------------------ training


def phases(minutes: float) -> list[tuple[str, float, int]]:
    """The recipe of each run, its minutes, and its steps of rows of 128; rows of 512 follow."""
    parts = [("bertsmith-small", minutes)]
    if minutes >= BOTH:
        first = round(FIRST * minutes, 2)
        parts = [
            ("bertsmith-small", first),
            ("bertsmith-small-replaced", round(minutes - first, 2)),
        ]
    return [
        (recipe, own, max(1, int(SHORT * max(own - COMPILED, 0.1) * STEPS[recipe])))
        for recipe, own in parts
    ]


def train(asked: argparse.Namespace) -> None:
    """Run all phases and lay out the entry."""
    runs: Path = asked.out / "runs"
    runs.mkdir(parents=True)
    commands, model = [], Path()
    if asked.library == "transformers":
        script = str(HERE / "transformers_mlm.py")
        given = [
            "--minutes",
            f"{asked.minutes:g}",
            "--rate",
            "0.3",
            "--rows",
            "768",
            "--long",
            "0.12",
        ]
        commands.append(
            [sys.executable, script, str(asked.corpus), *given, "--out", str(runs / "1")]
        )
        model = runs / "1" / "model"
        subprocess.run(commands[-1], check=True)
    else:
        for number, (recipe, minutes, steps) in enumerate(phases(asked.minutes), 1):
            stages = f"stages=[{{length=128,steps={steps}}},{{length=512}}]"
            changes = [f"train.minutes={minutes:g}", stages, "evaluate.pseudo=0", *asked.set]
            command = [sys.executable, "-m", "bertsmith", "pretrain", recipe]
            command += ["--data", str(asked.corpus), "--out", str(runs / str(number))]
            command += ["--from", str(model)] if number > 1 else []
            command += [part for change in changes for part in ("--set", change)]
            subprocess.run(command, check=True)
            commands.append(command)
            model = runs / str(number) / "model"
    if asked.library == "transformers":
        load(model, device="cpu").save(asked.out / "model")
    else:
        shutil.copytree(model, asked.out / "model")
    notes = asked.out / "model" / "bertsmith.json"
    known = json.loads(notes.read_text("utf-8")) | {"finetune": FINETUNE}
    notes.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    for folder in runs.glob("*/checkpoints"):
        shutil.rmtree(folder)
    content = {"name": asked.out.name, "library": asked.library, "minutes": asked.minutes}
    content["commands"] = [" ".join(command[1:]) for command in commands]
    (asked.out / "entry.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")


# ------------------------------------------------------------------ scores


def fine_tuned(asked: argparse.Namespace, out: Path) -> dict[str, list[float]]:
    """The score of each seed on each task, as scores.py measures it; runs are stored in `out`."""
    command = [sys.executable, str(HERE / "scores.py"), "--data", str(asked.data)]
    command += ["--models", f"entry={asked.entry / 'model'}", "--tasks", *asked.tasks]
    command += ["--seeds", str(asked.seeds), "--jobs", str(asked.jobs), "--device", asked.device]
    subprocess.run([*command, "--dtype", asked.dtype, "--out", str(out)], check=True)
    measures = TASKS | OTHERS
    rows = sorted(json.loads(out.read_text("utf-8")), key=lambda row: row["seed"])
    return {
        task: [row["scores"][measures[task]] for row in rows if row["task"] == task]
        for task in asked.tasks
    }


def interval(scores: dict[str, list[float]]) -> tuple[float, float]:
    """The mean of the five tasks in percent over seeds, and half of its 95% interval."""
    seeds = [100 * mean(values) for values in zip(*(scores[task] for task in TASKS), strict=True)]
    return mean(seeds), T95[min(len(seeds) - 2, len(T95) - 1)] * stdev(seeds) / math.sqrt(
        len(seeds)
    )


def score(asked: argparse.Namespace) -> None:
    """Score an entry and store it."""
    entry = json.loads((asked.entry / "entry.json").read_text("utf-8"))
    entry["parameters"] = parameters(asked.entry / "model")
    entry["scores"] = fine_tuned(asked, asked.entry / "scores.json")
    (asked.entry / "entry.json").write_text(json.dumps(entry, indent=1) + "\n", "utf-8")
    entries = [one for one in stored() if one["name"] != entry["name"]]
    RESULTS.write_text(json.dumps([*entries, entry], indent=1) + "\n", "utf-8")
    print("mean of five {:.1f} ± {:.1f}".format(*interval(entry["scores"])))


def stored() -> list[Entry]:
    """All entries that were scored."""
    entries: list[Entry] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return entries


def parameters(model: Path) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in load(model, device="cpu").model.parameters())


# ------------------------------------------------------------------ rules


def broken(entry: Path, corpus: Path) -> Iterator[str]:
    """The rules that an entry breaks."""
    content = json.loads((entry / "entry.json").read_text("utf-8"))
    manifest = json.loads((corpus / "manifest.json").read_text("utf-8"))
    if manifest["sha256"] != CORPUS:
        yield f"{corpus} is not the corpus of the rules"
    if (count := parameters(entry / "model")) > PARAMETERS:
        yield f"{count:,} parameters, at most {PARAMETERS:,}"
    if content["library"] != "bertsmith":
        yield "the runs of other libraries have no logs that this script can read"
        return
    total, before, weights = 0.0, "", entry / "model" / WEIGHTS
    for run in sorted((entry / "runs").iterdir(), key=lambda run: int(run.name)):
        recipe = tomllib.loads((run / "recipe.toml").read_text("utf-8"))
        timing = [
            json.loads(line) for line in (run / "timing.jsonl").read_text("utf-8").splitlines()
        ]
        total += timing[-1]["elapsed"] / 60
        tokens = manifest["splits"]["train"]["tokens"]
        if f"corpus of {tokens:,} tokens" not in (run / "model" / "README.md").read_text("utf-8"):
            yield f"run {run.name} learned from another corpus"
        start = recipe["model"].get("start", "")
        if Path(start).parts[-2:] != Path(before).parts[-2:]:
            other = before or "random weights"
            yield f"run {run.name} starts from {start or 'random weights'}, not from {other}"
        for part in ("generator", "teacher"):
            if recipe.get(part, {}).get("model", "") not in ("", "start"):
                yield f"run {run.name} has a {part} from outside"
        before = f"{run.name}/model"
        weights = run / "model" / WEIGHTS
    if digest(weights) != digest(entry / "model" / WEIGHTS):
        yield "the model is not the one that the last run wrote"
    if total > min(MINUTES, content["minutes"] + 0.2):
        yield f"{total:.1f} minutes, at most {min(MINUTES, content['minutes']):g}"


def verify(asked: argparse.Namespace) -> int:
    """Check the rules, then the scores; 1 if anything is wrong."""
    wrong = list(broken(asked.entry, asked.corpus))
    content = json.loads((asked.entry / "entry.json").read_text("utf-8"))
    print(*(f"FAIL {reason}" for reason in wrong), sep="\n")
    claimed, width = interval(content["scores"])
    with tempfile.TemporaryDirectory() as folder:
        found, own = interval(fine_tuned(asked, Path(folder) / "scores.json"))
    print(f"mean of five: {claimed:.2f} ± {width:.2f} claimed, {found:.2f} ± {own:.2f} measured")
    good = abs(found - claimed) <= math.hypot(width, own)
    print("verified" if good and not wrong else "NOT verified")
    return int(not good or bool(wrong))


def draw() -> None:
    """The picture: minutes and the mean of five tasks, with intervals over seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for library, color in (("bertsmith", "tab:blue"), ("transformers", "tab:orange")):
        own = sorted((e for e in stored() if e["library"] == library), key=lambda e: e["minutes"])
        points = [(entry["minutes"], *interval(entry["scores"])) for entry in own]
        if points:
            minutes, means, widths = zip(*points, strict=True)
            axes.errorbar(minutes, means, widths, marker="o", capsize=3, label=library, color=color)
    axes.set_xscale("log")
    axes.set_xticks(ticks := [1, 2, 5, 10, 20, 40], [str(tick) for tick in ticks])
    axes.set_xlabel("minutes of one H200, from raw text")
    axes.set_ylabel("mean of five GLUE tasks (dev)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS.with_suffix(".png"), dpi=120)


def main() -> int:
    """Do what was asked for."""
    asked = options()
    if asked.verb == "verify":
        return verify(asked)
    if asked.verb == "draw":
        draw()
    else:
        {"train": train, "score": score}[asked.verb](asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
