"""Indexing speed of models on a CPU, beside all-MiniLM-L6-v2 in sentence-transformers.

    python benchmarks/embed/speed.py --minilm FOLDER --collection cran.all.1400.xz \
        bertsmith-embed student=FOLDER

Every model makes indexes of the same documents in float32 and in int8: reading, splitting,
embedding and writing count. sentence-transformers only embeds the same passages, in its order by
length and its batches of 32. Passages have at most 800 characters, so that none is cut. Contenders
take turns, and the best turn counts. With `--clock cpu` and one thread, CPU seconds are counted: on
a machine that others use at the same time only these can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SIZE = 800  # characters of a passage
GOALS = {"float32": 1.5, "int8": 3.0}  # times the speed of sentence-transformers
PEER = "all-MiniLM-L6-v2 in sentence-transformers"


def options() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME[=FOLDER]")
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--collection", type=Path, required=True, help="documents to index")
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/embed_speed.json"))
    return parser.parse_args()


def index(rows: list[dict[str, Any]], model: str, precision: str) -> None:
    """Index documents with a model that is loaded already."""
    from bertsmith.search.build import BuildSettings, add_documents
    from bertsmith.search.encoder import TextEncoder, search_prompts

    encoder = ENCODERS.setdefault(
        (model, precision), TextEncoder(model, "cpu", precision, prompts=search_prompts(model))
    )
    settings = BuildSettings(encoder=encoder, passage_size=SIZE, overlap=0)
    with tempfile.TemporaryDirectory() as folder:
        add_documents(Path(folder) / "index", rows, settings)


ENCODERS: dict[tuple[str, str], Any] = {}


def main() -> None:
    """Measure all contenders in turns, and store the results."""
    given = options()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import torch
    from sentence_transformers import SentenceTransformer

    from bertsmith.ledger import Ledger
    from bertsmith.search.documents import read_documents
    from bertsmith.search.passages import Chunking, cut, joined_text

    torch.set_num_threads(given.threads)
    documents = list(read_documents(given.collection, Ledger()))[: given.documents]
    rows = [{"id": one.id, "title": one.title, "text": one.text} for one in documents]
    passages = [
        joined_text(one.title, passage.heading, passage.text)
        for one in documents
        for passage in cut(one, Chunking(SIZE, 0))
    ]
    peer = SentenceTransformer(str(given.minilm), device="cpu")
    contenders: dict[str, Callable[[], Any]] = {PEER: partial(peer.encode, passages)}
    for model in given.models:
        name, _, folder = model.partition("=")
        for precision in GOALS:
            contenders[f"{name} {precision}"] = partial(index, rows, folder or name, precision)
    now = time.process_time if given.clock == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(given.turns + 1):  # the first one loads and is not counted
        for name, run in contenders.items():
            began = now()
            run()
            if turn:
                seconds[name].append(now() - began)
    rates = {name: len(passages) / min(own) for name, own in seconds.items()}
    result = {
        "passages": len(passages),
        "threads": given.threads,
        "clock": given.clock,
        "machine": platform.processor(),
        "load": os.getloadavg()[0],
        "passages_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "times_sentence_transformers": {
            name: round(rate / rates[PEER], 2) for name, rate in rates.items() if name != PEER
        },
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
