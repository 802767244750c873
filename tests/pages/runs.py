"""Folders of runs as `pretrain` leaves them, made up."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
RECIPE = """about = 'A small run {hostile}'

[model]
size = "bert-tiny"

[train]
steps = 40
optimizer = "{optimizer}"
"""


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def training_row(step: int) -> dict[str, Any]:
    loss = 2 + 7 * 0.9**step
    return {
        "step": step,
        "masked_lm": loss,
        "masked_lm_accuracy": step / 100,
        "next_sentence": 0.6,
        "next_sentence_accuracy": 0.7,
        "loss": loss + 0.6,
        "gradient_norm": 1.5,
        "learning_rate": 1e-3 * step / 40,
        "samples": 8 * step,
        "tokens": 100 * step,
    }


def evaluation_row(step: int, loss: float) -> dict[str, Any]:
    guesses = [[["germany", 0.31], ["france", 0.22], [HOSTILE, 0.1]], [["seine", 0.9]]]
    text = f"The capital of [MASK] lies on the [MASK] {HOSTILE}"
    return {
        "step": step,
        "held_out_masked_lm": loss,
        "held_out_masked_lm_accuracy": 0.25,
        "samples": [{"text": text, "targets": ["france", "seine"], "guesses": guesses}],
    }


def make_run(
    folder: Path, *, steps: int = 40, optimizer: str = "adamw", unigram: float = 6.5
) -> Path:
    """A finished run, evaluated every ten steps; its steps take 0.5 seconds, the slow ones 2."""
    folder.mkdir(parents=True)
    recipe = RECIPE.format(hostile=HOSTILE, optimizer=optimizer)
    (folder / "recipe.toml").write_text(recipe, "utf-8")
    log, timing = [], []
    for step in range(1, steps + 1):
        log.append(training_row(step))
        seconds = 2.0 if step % 10 == 1 else 0.5
        timing.append({"step": step, "seconds": seconds, "tokens": 100, "elapsed": step * 0.65})
        if step % 10 == 0:
            log.append(evaluation_row(step, 8.0 - step / 10))
            timing.append({"step": step, "evaluated": True})
    write_lines(folder / "log.jsonl", log)
    write_lines(folder / "timing.jsonl", timing)
    (folder / "ledger.json").write_text(json.dumps({"documents too short": 1234}), "utf-8")
    summary = {"finished": True, "steps": steps, "tokens": 100 * steps, "minutes": 0.4}
    summary |= {"pseudo_perplexity": 81.25, "unigram_entropy": unigram, "ranks": 2}
    summary |= {"useful_share": 0.975, "useful_tokens_per_rank": 50.0}
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    return folder
