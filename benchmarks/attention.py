"""The attention page and the numbers about heads: time, size and memory, beside BertViz.

    python benchmarks/attention.py MODEL [--treebank FILE.conllu.xz] [--long 8192]

The same model and the same text of 512 tokens. bertsmith's page has every view; BertViz makes one
page for its head view and one for its model view, from attentions that `transformers` computes.
In headless Chromium, where one is found: the time until the page is drawn. The numbers about heads
are taken over 1,000 sentences; BertViz has none. Memory is measured on fresh models
(ModernBERT-base, and BERT of two sizes with more positions) with a text of `--long` tokens, each in
a process of its own: what the resident memory rises to above what it was with the model loaded, for
the plain forward pass, for a row and a column of all heads, and for the page.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import bertsmith as bs
from bertsmith.analysis import attention
from bertsmith.analysis.heads import measure, parsed
from bertsmith.batch import Batch
from bertsmith.tasks.tagging.conll import read_treebank

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("model", type=Path)
parser.add_argument("--treebank", type=Path)
parser.add_argument("--long", type=int, default=8192)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/attention.json"))
parser.add_argument("--contender", default="", help=argparse.SUPPRESS)
POSITIONS = {"max_position_embeddings": 8192}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
LONG: dict[str, tuple[str, dict[str, int]]] = {  # models that read long texts
    "ModernBERT-base": ("modernbert-base", {}),
    "BERT-base": ("bert-base-uncased", POSITIONS),
    "BERT 6x384": ("bert-tiny", {**MINILM, "intermediate_size": 1536, **POSITIONS}),
}
WORDS = "the river bank was muddy after a flood and people walked home talking about money . "


def timed(call: Any, times: int = 3) -> tuple[float, Any]:
    """The shortest of several runs."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return best, result


def text_of(bert: bs.Bert, tokens: int) -> str:
    """A text of just so many tokens."""
    words = (WORDS * (tokens // 10)).split()
    fits = bisect_left(
        range(1, len(words)),
        tokens + 1,
        key=lambda count: len(bert.tokenizer.encode(" ".join(words[:count]))),
    )
    return " ".join(words[:fits])


def page(bert: bs.Bert, text: str, folder: Path) -> dict[str, Any]:
    path = folder / "ours.html"
    seconds, _ = timed(lambda: attention(bert, text).save(path))
    return {
        "seconds": seconds,
        "bytes": path.stat().st_size,
        **opened(path, "html[data-ready=yes]"),
    }


def bertviz_pages(model: Path, bert: bs.Bert, text: str, folder: Path) -> dict[str, Any]:
    from bertviz import head_view, model_view
    from transformers import AutoModel

    theirs = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    encoding = bert.tokenizer.encode(text)
    tokens = [bert.tokenizer.token(id_) for id_ in encoding.ids]
    found = {}
    for name, view in (("head_view", head_view), ("model_view", model_view)):

        def make(view: Any = view) -> str:
            with torch.no_grad():
                ids = torch.tensor([encoding.ids])
                maps = theirs(ids, output_attentions=True).attentions
            return view(maps, tokens, html_action="return").data

        seconds, content = timed(make, 1)
        found[name] = {"seconds": seconds, "bytes": len(content.encode())}
    return found


def opened(path: Path, ready: str) -> dict[str, Any]:
    """Seconds from asking for the page until it is drawn, where there is a browser."""
    try:
        from playwright.sync_api import sync_playwright

        from analysis.browser import QUIET, program
    except ImportError:
        return {}
    with sync_playwright() as playwright:
        found = program(playwright)
        if found is None:
            return {}
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        tab = browser.new_page()
        start = time.perf_counter()
        tab.goto(path.as_uri())
        tab.wait_for_selector(ready)
        seconds = time.perf_counter() - start
        browser.close()
    return {"opens_in_seconds": seconds}


# ------------------------------------------------------------------ memory


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def contender(options: Any) -> None:
    """One measurement of memory, in this process."""
    from tasks.words import tokenizer

    name, _, asked = options.contender.partition(": ")
    size, settings = LONG[name]
    words = tokenizer(size.partition("-")[0])
    words.max_length = None
    bert = bs.Bert(bs.create(size, vocab_size=words.size, **settings), words)
    text = text_of(bert, options.long)
    short = attention(bert, "the river")
    short.page().html()
    view = attention(bert, text)
    top, running = [resident()], [True]

    def watch() -> None:
        while running[0]:
            top[0] = max(top[0], resident())
            time.sleep(0.005)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    if asked == "forward":
        with torch.inference_mode():
            bert.model.encoder(Batch.of([view.ids], [view.segments]))
    elif asked == "row":
        view.rows([len(view) // 2])
    elif asked == "column":
        view.columns([len(view) // 2])
    else:
        one = attention(bert, text, layers=[0, 5])
        with tempfile.TemporaryDirectory() as folder:
            one.save(Path(folder) / "page.html")
    seconds = time.perf_counter() - start
    running[0] = False
    watcher.join()
    print(json.dumps({"tokens": len(view), "seconds": seconds, "bytes": top[0] - before}))


def memory(options: Any) -> dict[str, Any]:
    found = {}
    asked = ("forward", "row", "column", "page of two layers")
    for name in (f"{model}: {one}" for model in LONG for one in asked):
        command = [sys.executable, __file__, str(options.model), "--long", str(options.long)]
        command += ["--threads", str(options.threads), "--contender", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.contender:
        contender(options)
        return
    bert = bs.load(options.model, device="cpu")
    text = text_of(bert, 512)
    results: dict[str, Any] = {
        "machine": {"processor": platform.machine(), "threads": options.threads},
        "versions": {"torch": torch.__version__, "bertsmith": bs.__version__},
        "model": repr(bert),
    }
    with tempfile.TemporaryDirectory() as name:
        results["page of 512 tokens"] = page(bert, text, Path(name))
        try:
            results["versions"]["bertviz"] = version("bertviz")
            results["bertviz"] = bertviz_pages(options.model, bert, text, Path(name))
        except PackageNotFoundError:
            results["bertviz"] = "not installed"
    if options.treebank:
        inputs = parsed(bert, islice(read_treebank(options.treebank), 1000))
        seconds, numbers = timed(lambda: measure(bert, inputs), 1)
        results["heads"] = {"seconds": seconds, "inputs": numbers.inputs, "tokens": numbers.tokens}
    results["memory"] = memory(options)
    options.out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
