"""Which recipe for `bertsmith-small`? Candidates, each by the clock on the same corpus.

    python benchmarks/small/proxies.py CORPUS --minutes 2 --out OUT
    python benchmarks/small/proxies.py CORPUS --minutes 2 --out OUT --only adamw mask-40
    python benchmarks/small/proxies.py CORPUS --tokens 80_000_000 --jobs 6 --out OUT
    python benchmarks/small/proxies.py CORPUS --try-out --out OUT

A candidate is a first guess at the recipe with a few changes (recipes/bertsmith-small.toml is what
came of it). Each trains in a process of its own and writes one row to OUT/rows/NAME.json; those
that have one are not run again. All rows are then scored alike: whatever a model was trained on,
15% of held-out tokens are masked for it, so that losses of different rates and objectives can be
compared. OUT/proxies.json and OUT/proxies.md hold the whole. With several --jobs they share the
device, and only --tokens is fair to all: their speed is then no measure. `--try-out` makes two
steps of tiny batches instead, on any machine: does every candidate run, and is it small enough?
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RECIPE = "bertsmith-small"
MOST = 16_000_000  # parameters of the model that is stored
RATE = 0.15  # of held-out tokens that are masked to compare models
TOKENS = 262_144  # held-out tokens


def shape(layers: int, width: int, inner: int) -> list[str]:
    """Another depth and width; heads stay 64 wide."""
    return [
        f"model.settings.num_hidden_layers={layers}",
        f"model.settings.hidden_size={width}",
        f"model.settings.num_attention_heads={width // 64}",
        f"model.settings.intermediate_size={inner}",
    ]


def batch(tokens: int) -> list[str]:
    """Another number of tokens in a step, in one pass."""
    return [f"train.batch_tokens={tokens}", f"train.micro_tokens={tokens}"]


BASE = [  # the first guess
    *shape(13, 256, 768),
    *batch(131_072),
    "model.settings.classifier_pooling=cls",
    "data.length=128",
    "stages=[]",
    "train.matrix_learning_rate=0.02",
    "train.schedule=stable",
    "train.decay=0.3",
    f"evaluate.tokens={TOKENS}",
]
BERT = [  # BERT's own block: learned positions, post-norm, GELU, biases; a factorised table
    "model.size=electra-small",
    "model.settings={num_hidden_layers=12, embedding_size=128, hidden_dropout_prob=0.0,"
    " attention_probs_dropout_prob=0.0, max_position_embeddings=512}",
]
ADAMW = ["train.optimizer=adamw", "train.learning_rate=1e-3", "train.warmup=0.05"]
CANDIDATES: dict[str, list[str]] = {
    "base": [],
    "base-again": ["train.seed=1"],  # how much chance alone is worth
    "bert-block": BERT,
    "bert-block-adamw": BERT + ADAMW,
    "adamw": ADAMW,
    "mask-15": ["masking.rate=0.15"],
    "mask-20": ["masking.rate=0.2"],
    "mask-40": ["masking.rate=0.4"],
    "whole-word": ["masking.unit=word"],
    "all-masked": ["masking.mask=1.0", "masking.random=0.0"],
    "12x256": shape(12, 256, 768),
    "14x256": shape(14, 256, 704),
    "10x320": shape(10, 320, 640),
    "9x320": shape(9, 320, 768),
    "6x384": shape(6, 384, 768),
    "batch-65k": batch(65_536),
    "batch-262k": batch(262_144),
    "matrix-rate-0.01": ["train.matrix_learning_rate=0.01"],
    "matrix-rate-0.04": ["train.matrix_learning_rate=0.04"],
    "table-rate-1e-3": ["train.learning_rate=1e-3"],
    "table-rate-6e-3": ["train.learning_rate=6e-3"],
    "weight-decay-0": ["train.weight_decay=0.0"],
    "weight-decay-0.1": ["train.weight_decay=0.1"],
    "linear": ["train.schedule=linear"],
    "average": ["train.ema=0.98"],
    "windows": ["model.settings.global_attn_every_n_layers=3"],
    "joined": ["data.format=joined"],
    "long-last": ["stages=[{length=128, steps=500}, {length=512}]"],
    "ramp": ["train.ramp_from=32768", "train.ramp_steps=700", "train.micro_tokens=32768"],
    "replaced-too": ["objectives.replaced=20.0", "generator.depth=0.5"],
    "replaced-same-pass": [
        *("objectives.replaced=20.0", "generator.depth=0.5"),
        *("generator.fills=0.5", "masking.rate=0.4"),
    ],
}


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="a folder that `bertsmith prepare` made")
    parser.add_argument("--out", type=Path, required=True, help="rows, runs and tables")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--tokens", type=int, default=0, help="so many tokens instead of minutes")
    parser.add_argument("--jobs", type=int, default=1, help="candidates that train at once")
    parser.add_argument("--only", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--set", nargs="+", default=[], help="changes to every candidate")
    parser.add_argument("--warm", action="store_true", help="compile before the clock starts")
    parser.add_argument("--try-out", action="store_true", help="two steps of tiny batches")
    return parser.parse_args()


def changes(name: str, asked: argparse.Namespace) -> list[str]:
    """All that differs from the recipe."""
    from bertsmith.train import load_recipe

    made = [*BASE, *CANDIDATES[name], f"data.corpus={asked.corpus}", *asked.set]
    if asked.try_out:
        made += ["train.minutes=0", "train.steps=2", "train.compile=false", "evaluate.tokens=2048"]
        made += [*batch(2048), "evaluate.pseudo=0", "data.workers=1", "stages=[]"]
    elif asked.tokens:
        count = steps_for(load_recipe(RECIPE, made).train, asked.tokens)
        made += [f"train.steps={count}", "train.minutes=0"]
    else:
        made += ["train.steps=0", f"train.minutes={asked.minutes}"]
    return made


def steps_for(train: Any, tokens: int) -> int:
    """How many steps read so many tokens, the ramp's smaller ones among them."""
    grow = train.ramp_steps if train.ramp_from else 0
    ramp = grow * (train.ramp_from + train.batch_tokens) // 2
    return int(grow + (tokens - ramp) // train.batch_tokens)


# ------------------------------------------------------------------ one candidate


def warm(name: str, asked: argparse.Namespace) -> None:
    """A few steps of a candidate, which leave behind what was compiled."""
    from bertsmith.train import load_recipe, pretrain

    few = ["train.minutes=0", "train.steps=3", "evaluate.tokens=0", "evaluate.pseudo=0"]
    recipe = load_recipe(RECIPE, changes(name, asked) + few)
    pretrain(recipe, emptied(asked.out / "warm" / name), show="none")


def learn(name: str, asked: argparse.Namespace) -> None:
    """Train a candidate and write its row."""
    from bertsmith.train import load_recipe, pretrain

    run = emptied(asked.out / "runs" / name)
    summary = pretrain(load_recipe(RECIPE, changes(name, asked)), run, show="none")
    steps = [json.loads(line) for line in (run / "timing.jsonl").open(encoding="utf-8")]
    row = {
        "name": name,
        "changes": CANDIDATES[name] + asked.set,
        **{key: value for key, value in summary.items() if key not in ("model", "finished")},
        "tokens_per_second": speed([step for step in steps if "seconds" in step]),
        **scored(run / "model", asked.corpus, 2048 if asked.try_out else TOKENS),
    }
    path = asked.out / "rows" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1) + "\n", "utf-8")


def emptied(folder: Path) -> Path:
    """A folder in which nothing is left of a run that did not end."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def speed(steps: list[dict[str, Any]]) -> float:
    """Tokens a second over the second half of the steps: what is compiled, is by then."""
    half = steps[len(steps) // 2 :]
    return float(sum(s["tokens"] for s in half) / max(sum(s["seconds"] for s in half), 1e-9))


def scored(
    model: Path, corpus: Path, tokens: int, after: int = 0, split: str = "held_out"
) -> dict[str, float]:
    """Parameters, and loss and accuracies (first, first five) on the same masked tokens.

    `after` so many held-out tokens: those that no candidate was chosen by.
    """
    import torch
    import torch.nn.functional as F

    from bertsmith.checkpoint import read
    from bertsmith.corpus import Corpus
    from bertsmith.examples import Examples, Masking, Spans

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = read(model, heads=["masked_lm"])
    bert = checkpoint.model.to(device).eval()
    held = Corpus.open(corpus, split)
    masking = Masking(held.tokenizer, rate=RATE, mask=1.0, random=0.0)
    examples = Examples(Spans(held, length=128), masking, checkpoint.config.segments)
    begin = examples.plan(0, tokens=after, micro_tokens=after).end if after else 0
    plan = examples.plan(begin, tokens=tokens, micro_tokens=16_384)
    loss = first = five = count = 0.0
    for samples in plan.micro_batches[0]:
        example = examples.make(samples).to(device)
        with torch.no_grad():
            logits = bert(example.batch, "masked_lm", example.rows).float()
        best = logits.topk(5).indices == example.targets[:, None]
        loss += float(F.cross_entropy(logits, example.targets, reduction="sum"))
        first, five = first + float(best[:, 0].sum()), five + float(best.sum())
        count += len(example.targets)
    return {
        "parameters": sum(p.numel() for p in bert.parameters()),
        "masked_15_loss": loss / count,
        "masked_15_first": first / count,
        "masked_15_five": five / count,
    }


# ------------------------------------------------------------------ all of them


def attempt(name: str, asked: argparse.Namespace) -> bool:
    """Run a candidate in processes of its own, unless it has a row; whether it is good."""
    path = asked.out / "rows" / f"{name}.json"
    for part in () if path.exists() else (warm, learn) if asked.warm else (learn,):
        process = multiprocessing.get_context("spawn").Process(target=part, args=(name, asked))
        process.start()
        process.join()
        if process.exitcode:
            print(f"{name}: failed with exit status {process.exitcode}", flush=True)
            return False
    row = json.loads(path.read_text("utf-8"))
    print(line(row), flush=True)
    if row["parameters"] > MOST:
        print(f"{name}: {row['parameters']:,} parameters are too many", flush=True)
    return bool(row["parameters"] <= MOST)


def main() -> int:
    """Run what has no row yet; 1 where one failed or is too large."""
    asked = options()
    good = True
    with ThreadPoolExecutor(asked.jobs) as pool:
        for fine in pool.map(lambda name: attempt(name, asked), asked.only):
            good &= fine
            write(asked)  # after each, so that what is known can be fetched at any time
    return int(not good)


HEADINGS = (
    "| candidate | parameters | minutes | k tokens/s | steps | M tokens | loss | top 1 | top 5 |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [
        row["name"],
        f"{row['parameters'] / 1e6:.1f} M",
        f"{row['minutes']:.1f}",
        f"{row['tokens_per_second'] / 1e3:,.0f}",
        f"{row['steps']:,}",
        f"{row['tokens'] / 1e6:,.0f}",
        f"{row['masked_15_loss']:.4f}",
        f"{row['masked_15_first']:.2%}",
        f"{row['masked_15_five']:.2%}",
    ]
    return "| " + " | ".join(cells) + " |"


def write(asked: argparse.Namespace) -> None:
    """All rows there are, the best first, as JSON and as a table."""
    import torch

    found = [asked.out / "rows" / f"{name}.json" for name in CANDIDATES]
    rows = [json.loads(path.read_text("utf-8")) for path in found if path.exists()]
    rows.sort(key=lambda row: float(row["masked_15_loss"]))
    gpu = torch.cuda.is_available()
    written = {
        "device": torch.cuda.get_device_name() if gpu else platform.machine() + " CPU",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "jobs": asked.jobs,
        "rows": rows,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "proxies.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    said = f"{written['device']}, {asked.jobs} at once; {RATE:.0%} of held-out tokens are hidden."
    (asked.out / "proxies.md").write_text(
        "\n".join([said, "", *HEADINGS, *map(line, rows), ""]), "utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
