"""The film of a run in Chromium: size, time of a step of the slider, agreement with torch.

    python benchmarks/film.py RUN [--html film.html] [--out FILE]

RUN is a folder of `bertsmith pretrain` whose recipe has checkpoint.film = true. The slider is moved
with the keyboard over all steps and back; a step lasts from the key to the frame after the panels
on the screen were drawn; with `chrt -r 5` before the command, other jobs do not disturb it.
`difference` is the largest one of a probability of any token at a mask, between the page and torch
with the weights that the run kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

from bertsmith.batch import Batch
from bertsmith.compare.work import cpu_name
from bertsmith.explorer import film
from bertsmith.explorer.film import load_step
from bertsmith.infer.opening import open_model
from bertsmith.train.state import Checkpoints

TEXTS = [
    "The city is one of [MASK] largest in the north of the country.",
    "He was born in the United [MASK].",
    "It is a member [MASK] the European Union.",
    "She [MASK] born in 1950 and died in [MASK].",
    "The city is in the north [MASK] the country.",
]
SCHEDULING = {os.SCHED_OTHER: "normal", os.SCHED_RR: "real time (chrt -r 5)"}
KEY = """async (key) => {
  const root = document.documentElement, slider = document.getElementById("checkpoint");
  window.drawnBefore = root.dataset.drawn; window.pressed = null;
  slider.addEventListener("keydown", () => { window.pressed = performance.now(); }, { once: true });
}"""
DRAWN = """async () => {
  const root = document.documentElement;
  const same = () => root.dataset.drawn === window.drawnBefore;
  while (same()) await new Promise((done) => setTimeout(done, 0));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - window.pressed;
}"""
LOGITS = "async (message) => (await ask('logits', message)).logits.map((row) => Array.from(row))"


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started, such as those of the browser."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    for _ in range(8):
        own |= {process for process, (parent, _) in stats.items() if parent in own}
    ticks = sum(stats[process][1] for process in own - {os.getpid()} if process in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def slide(page: Page, count: int) -> list[float]:
    """Milliseconds of every step of the slider, to the first and back to the last."""
    page.focus("#checkpoint")
    times = []
    for key in ["ArrowLeft"] * (count - 1) + ["ArrowRight"] * (count - 1):
        page.evaluate(KEY, key)
        page.keyboard.press(key)
        times.append(page.evaluate(DRAWN))
    return times


def differences(page: Page, run: Path, steps: list[int]) -> dict[int, float]:
    """The largest difference of a probability at each step."""
    bert, checkpoints = open_model(run / "model", device="cpu"), Checkpoints(run / "film")
    worst = dict.fromkeys(steps, 0.0)
    for number, step in enumerate(steps):
        load_step(bert, checkpoints, step)
        for text in TEXTS:
            encoding = bert.tokenizer.encode(text, spelled="mask")
            rows = [at for at, id_ in enumerate(encoding.ids) if id_ == bert.tokenizer.mask_id]
            with torch.inference_mode():
                batch = Batch.of([encoding.ids], [encoding.segments])
                ours = bert.model(batch, "masked_lm", torch.tensor(rows)).softmax(-1)
            message = {"head": "masked_lm", "first": text, "rows": rows, "checkpoint": number}
            theirs = torch.tensor(page.evaluate(LOGITS, message)).softmax(-1)
            worst[step] = max(worst[step], float((ours - theirs).abs().max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--html", type=Path, default=Path("film.html"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/film.json"))
    parser.add_argument("--name", help="the title of the page")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = film(given.run, given.html, name=given.name, examples=TEXTS)
    results: dict[str, Any] = {
        "what": "the film of a run in headless Chromium, opened as a file",
        "scheduling": SCHEDULING[os.sched_getscheduler(0)],
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "parameters": done["parameters"],
        "steps": done["steps"],
        "megabytes": round(done["bytes"] / 1e6, 2),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(given.html.resolve().as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        page.fill("#first", TEXTS[0])
        page.wait_for_timeout(4000)  # until the guesses of all steps are there
        before = cpu_seconds()
        times = sorted(slide(page, len(done["steps"])))
        cpu = (cpu_seconds() - before) / len(times)
        results["tokens"] = page.locator("#tokens button").count()
        results["milliseconds_of_a_step"] = {
            "median": round(statistics.median(times), 1),
            "least": round(times[0], 1),
            "most": round(times[-1], 1),
            "cpu_of_all_processes": round(1000 * cpu, 1),
        }
        found = differences(page, given.run, done["steps"])
        results["difference"] = {str(step): round(value, 5) for step, value in found.items()}
        browser.close()
    results["load_average_at_the_end"] = [round(value, 1) for value in os.getloadavg()]
    given.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
