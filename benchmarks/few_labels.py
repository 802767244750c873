"""Few rows: `finetune --auto` beside TF-IDF, frozen vectors, SetFit and full fine-tuning.

    python benchmarks/few_labels.py --data ../shared/data --model MINILM --out results.json
    python benchmarks/few_labels.py ... --tasks sst2 --shots 8 --draws 2 --methods words auto
    python benchmarks/few_labels.py ... --setfit VENV/bin/python   # SetFit in its own environment

Rows of each label are drawn from the training file (sentences of treebanks and CoNLL: as many as
`shots` times the labels), and scored on `--test-rows` of the test file (of the dev file where the
labels of the test file are not public). All methods learn the same rows; every process has the same
number of threads. A result is written at once, so that an interrupted run keeps what it has.
With --jobs several processes compute rows at once: for scores, not for seconds. SetFit has 20 pairs
of each kind a row, fewer where 20,000 rows would be too many steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

FILES = {
    "banking77": ("banking77/train.csv.xz", "banking77/test.csv.xz"),
    "ag_news": ("ag_news_partial/alps_dev.tsv.xz", "ag_news_partial/alps_test.tsv.xz"),
    "sst2": ("glue_sst2/train.tsv.xz", "glue_sst2/dev.tsv.xz"),
    "ud": ("ud_english_ewt/en_ewt-ud-train.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz"),
    "conll": ("conll2003_en/train.txt.xz", "conll2003_en/valid.txt.xz"),
}
METHODS = ("words", "vectors", "model_vectors", "auto", "full", "setfit")
SETFIT = """
import json, sys, time
rows = json.load(open(sys.argv[1]))
import torch
torch.set_num_threads(int(sys.argv[3]))
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
began = time.perf_counter()
model = SetFitModel.from_pretrained(sys.argv[2], labels=sorted({r["label"] for r in rows["train"]}))
arguments = TrainingArguments(batch_size=16, num_epochs=1, num_iterations=int(sys.argv[4]), seed=0,
    report_to="none", save_strategy="no", output_dir=sys.argv[1] + ".out")
Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows["train"])).train()
seconds = time.perf_counter() - began
found = [str(one) for one in model.predict([one["text"] for one in rows["test"]])]
print(json.dumps({"predictions": found, "seconds": seconds, "cpu": time.process_time()}))
"""


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--model", required=True, help="the encoder of all methods that have one")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file; existing rows stay")
    parser.add_argument("--tasks", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--shots", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--test-rows", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5.0, help="of --auto")
    parser.add_argument("--setfit", help="the Python of an environment with SetFit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args()


def read_task(asked: argparse.Namespace, name: str) -> tuple[Any, Any]:
    """Rows to draw from, and rows to score."""
    from bertsmith.tasks.read import read_data

    train, test = FILES[name]
    reading: dict[str, Any] = {}
    if name == "ag_news":
        reading = {"header": False, "columns": {"text": "1", "label": "2"}}
    learned = read_data(asked.data / train, **reading)
    scored = read_data(asked.data / test, learned.task, **reading)
    chosen = random.Random(1).sample(scored.gold(), min(asked.test_rows, len(scored.gold())))
    return learned, replace(scored, examples=chosen, known_labels=())


def draw(learned: Any, shots: int, number: int) -> Any:
    """So many rows of each label, or sentences for it."""
    examples = learned.gold()
    random.Random(f"{shots}-{number}").shuffle(examples)
    if len(examples[0].label_names) != 1 or hasattr(examples[0], "tags"):
        names = {name.split("-")[-1] for one in examples for name in one.label_names}
        return replace(learned, examples=examples[: shots * len(names)])
    counts: dict[str, int] = {}
    kept = []
    for one in examples:
        (name,) = one.label_names
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= shots:
            kept.append(one)
    return replace(learned, examples=kept)


def measured(asked: argparse.Namespace, method: str, train: Any, test: Any) -> dict[str, Any]:
    """The score of a method, its seconds by the clock and of CPU time."""
    from bertsmith.finetuning import Splits, finetune
    from bertsmith.finetuning.frozen import FrozenEncoder
    from bertsmith.reports.baseline import VECTORS, fitted_words
    from bertsmith.tasks.registry import task_named

    task = task_named(train.task)
    metric = task.metrics(train)[0]
    began, cpu, more = time.perf_counter(), time.process_time(), {}
    if method == "setfit":
        return setfit(asked, train, test, metric)
    if method == "words":
        predictions = fitted_words(train)(test.examples)
        scores = task.scorer(test, predictions)(None)
    elif method in ("vectors", "model_vectors"):
        encoder = FrozenEncoder(VECTORS if method == "vectors" else asked.model, train.task)
        scores = encoder.fit(train).evaluate(test).scores
    elif method == "auto":
        result = finetune(asked.model, Splits(train), auto=True, minutes=asked.minutes)
        spent, spent_cpu = time.perf_counter() - began, time.process_time() - cpu
        from bertsmith.tasks.evaluate import evaluate

        scores = evaluate(result.bert, test).scores
        auto = result.extras["auto"]
        more = {"chosen": auto["chosen"].split(" of ")[0], "candidates": auto["candidates"]}
        more["model"] = "package" if VECTORS in auto["chosen"] else "given"
        return {
            "score": scores[metric],
            "metric": metric,
            "seconds": spent,
            "cpu": spent_cpu,
            **more,
        }
    else:
        scores = finetune(asked.model, Splits(train, None, test)).kept.scores["test"] or {}
    return {
        "score": scores[metric],
        "metric": metric,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
    }


def setfit(asked: argparse.Namespace, train: Any, test: Any, metric: str) -> dict[str, Any]:
    """SetFit with its defaults, but 20 pairs a row instead of all, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        content = {
            name: [{"text": one.text, "label": one.label} for one in data.examples]
            for name, data in (("train", train), ("test", test))
        }
        rows.write_text(json.dumps(content), "utf-8")
        pairs = max(2, min(20, 20_000 // len(train.examples)))
        command = [asked.setfit, "-c", SETFIT, str(rows), asked.model]
        command += [str(asked.threads), str(pairs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    pairs = zip(found["predictions"], test.examples, strict=True)
    score = sum(value == one.label for value, one in pairs) / len(test.examples)
    return {"score": score, "metric": metric, "seconds": found["seconds"], "cpu": found["cpu"]}


def cell(asked: argparse.Namespace, wanted: tuple[str, int, int, str]) -> dict[str, Any]:
    """One row: a task, so many rows a label, a draw, a method."""
    import torch

    torch.set_num_threads(asked.threads)
    name, shots, number, method = wanted
    learned, test = read_task(asked, name)
    train = draw(learned, shots, number)
    row = {"task": name, "shots": shots, "draw": number, "method": method}
    return row | {"rows": len(train.examples)} | measured(asked, method, train, test)


def cells(asked: argparse.Namespace) -> list[tuple[str, int, int, str]]:
    """All rows that are asked for; TF-IDF and SetFit have no tagging."""
    return [
        (name, shots, number, method)
        for number in range(asked.draws)
        for shots in sorted(asked.shots, reverse=asked.jobs > 1)  # the longest first
        for name in asked.tasks
        for method in asked.methods
        if method not in ("words", "setfit") or name not in ("ud", "conll")
        if method != "setfit" or asked.setfit
    ]


def main() -> None:
    """Run what is not in the file yet."""
    asked = options()
    os.environ.setdefault("OMP_NUM_THREADS", str(asked.threads))
    content: dict[str, Any] = {"rows": []}
    if asked.out.exists():
        content = json.loads(asked.out.read_text("utf-8"))
    content |= {
        "machine": platform.processor() or platform.machine(),
        "threads": asked.threads,
        "jobs": asked.jobs,
        "test_rows": asked.test_rows,
        "model": Path(asked.model).parent.name if "/" in asked.model else asked.model,
    }
    done = {(r["task"], r["shots"], r["draw"], r["method"]) for r in content["rows"]}
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        rows = {pool.submit(cell, asked, one): one for one in cells(asked) if one not in done}
        for ended in as_completed(rows):
            if ended.exception():
                print(*rows[ended], repr(ended.exception()), flush=True)
                continue
            row = ended.result()
            content["rows"].append(row)
            asked.out.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
            shown = {key: row[key] for key in ("score", "seconds", "cpu")}
            print(*rows[ended], shown, row.get("chosen", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
