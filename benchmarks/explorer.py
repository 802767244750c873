"""The explorer page in Chromium: size, time to open, time of an answer, agreement with torch.

    python benchmarks/explorer.py --data DATA [--masks 1000] [--out FILE]

DATA holds squad_dev/dev-v1.1.json.xz, whose passages are cut into sentences; three tokens of each
are masked. Agreement is the share of masks for which the page's first guess is the package's;
`difference` is the largest difference of a logit, at float16. No text is stored.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

import bertsmith as bs
from bertsmith.batch import Batch
from bertsmith.compare.work import cpu_name

THIRTY = (
    "The keeper of the lighthouse wrote a long letter to his daughter every [MASK], and the ships"
)
THIRTY += " that passed at night saw his small lamp."
ASK = "([name, message]) => ask(name, message)"
BEST = (
    "async (message) => (await ask('run', message)).answers.masked_lm.map((one) => one.best[0].id)"
)


def masked_sentences(bert: bs.Bert, data: Path, count: int) -> list[str]:
    """Sentences of 12 to 40 tokens with three masks each, the same ones every time."""
    with lzma.open(data / "squad_dev" / "dev-v1.1.json.xz") as file:
        articles = json.load(file)["data"]
    passages = [part["context"] for article in articles for part in article["paragraphs"]]
    draw = random.Random(0)
    draw.shuffle(passages)
    texts: list[str] = []
    for passage in passages:
        sentence = draw.choice(passage.split(". "))
        words = sentence.split()
        size = len(bert.tokenizer.encode_ids([sentence])[0])
        if not 12 <= size <= 40 or len(words) < 8 or "[" in sentence:
            continue
        for place in draw.sample(range(len(words)), 3):
            words[place] = str(bert.tokenizer.mask_token)
        texts.append(" ".join(words) + ".")
        if len(texts) * 3 >= count:
            break
    return texts


def open_page(page: Page, file: Path) -> float:
    """Open a page and wait for its first answer; return the seconds it took."""
    start = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    return time.perf_counter() - start


def measure(
    bert: bs.Bert, texts: list[str], dtype: str, page: Page, folder: Path
) -> dict[str, Any]:
    """All numbers of one page."""
    file = folder / f"{dtype}.html"
    report = bert.explorer(file, dtype=dtype, name="bertsmith-small")
    seconds = open_page(page, file)
    runs = [page.evaluate(ASK, ["run", {"first": THIRTY}]) for _ in range(12)]
    times = sorted(run["milliseconds"] for run in runs[2:])
    done: dict[str, Any] = {
        "megabytes": round(report["bytes"] / 1e6, 2),
        "seconds_to_open": round(seconds, 2),
        "tokens": len(runs[0]["tokens"]),
        "milliseconds": {"median": round(statistics.median(times)), "least": round(times[0])},
    }
    same = total = 0
    for text in texts:
        expected = [guess.id for guess in bert.fill_mask(text, top=1)]
        first = page.evaluate(BEST, {"first": text})
        same += sum(one == other for one, other in zip(first, expected, strict=True))
        total += len(expected)
    done |= {"masks": total, "same_first_guess": round(same / total, 4)}
    if dtype == "float16":
        done["difference"] = max(difference(bert, page, text) for text in texts[:20])
    return done


def difference(bert: bs.Bert, page: Page, text: str) -> float:
    """The largest difference of a masked-LM logit in a text."""
    encoding = bert.tokenizer.encode(text)
    rows = [row for row, id_ in enumerate(encoding.ids) if id_ == bert.tokenizer.mask_id]
    with torch.inference_mode():
        batch = Batch.of([encoding.ids], [encoding.segments])
        ours = bert.model(batch, "masked_lm", torch.tensor(rows))
    script = (
        "async (message) => (await ask('logits', message)).logits.map((row) => Array.from(row))"
    )
    theirs = page.evaluate(script, {"head": "masked_lm", "first": text, "rows": rows})
    return float((torch.tensor(theirs) - ours).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--masks", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/explorer.json"))
    parser.add_argument("--browser", default="/usr/bin/chromium")
    given = parser.parse_args()
    torch.set_num_threads(1)
    bert = bs.load("bertsmith-small", device="cpu")
    texts = masked_sentences(bert, given.data, given.masks)
    results: dict[str, Any] = {
        "what": "the explorer of bertsmith-small in headless Chromium, opened as a file",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
    }
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        results["browser"] = browser.version
        for dtype, some in (("int8", texts), ("float16", texts[: len(texts) // 8])):
            page = browser.new_page()
            results[dtype] = measure(bert, some, dtype, page, Path(folder))
            page.close()
        browser.close()
    results["load_average_at_the_end"] = [round(value, 1) for value in os.getloadavg()]
    given.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
