"""nanobert.py in two minutes of one core: masked accuracy on held-out documents, and its guesses.

python benchmarks/nanobert.py [MINUTES]      # BERTSMITH_DATA: the folder with corpus_simplewiki

The clock is the CPU time of one thread, so that other programs on the machine change nothing: two
minutes are two minutes of one core that has nothing else to do.
"""

import contextlib
import io
import json
import lzma
import os
import re
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
import nanobert  # noqa: E402 - an example, not a package

CHARACTERS = 3_000_000
SENTENCES = (
    "It is one of the largest cities in the [MASK].",
    "He was born in the United [MASK] of America.",
    "The team plays in the national football [MASK].",
    "She [MASK] born in 1950.",
    "Berlin is the capital of [MASK].",
)


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    data = Path(os.environ.get("BERTSMITH_DATA", ROOT / "../shared/data"))
    with lzma.open(data / "corpus_simplewiki/corpus_simplewiki-000.txt.xz", "rt") as file:
        text = file.read(CHARACTERS)
    torch.set_num_threads(1)
    nanobert.time.monotonic = time.process_time
    torch.manual_seed(0)
    begin = time.process_time()
    tokenizer = nanobert.Tokenizer.train(text, 4096)
    vocabulary_seconds, begin = time.process_time() - begin, time.process_time()
    model = nanobert.Bert(len(tokenizer.tokens))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        accuracy = nanobert.pretrain(model, tokenizer, text, minutes)
    losses = [float(one) for one in re.findall(r"loss (\S+)", shown.getvalue())]
    result = {
        "text": f"Simple English Wikipedia, the first {CHARACTERS:,} characters",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "minutes": minutes,
        "vocabulary_cpu_seconds": round(vocabulary_seconds, 1),
        "training_cpu_seconds": round(time.process_time() - begin, 1),
        "losses": losses,  # of single batches, every tenth of the time
        "masked_accuracy": round(accuracy, 4),
        "guesses": {
            one: [[token, round(p, 4)] for token, p in nanobert.fill(model, tokenizer, one)]
            for one in SENTENCES
        },
    }
    path = ROOT / "benchmarks" / "results" / "nanobert.json"
    path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
