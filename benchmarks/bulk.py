"""Speed of `embed` over a folder of parquet files: texts a second, with several numbers of workers.

    python benchmarks/bulk.py MODEL... --texts corpus.jsonl.xz --count 1024 --workers 0 2

Texts are the column `text` of any source. Each run starts from an empty folder; the time includes
starting workers and loading the model. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bertsmith.bulk import run_folder
from bertsmith.tasks.read import open_data
from bertsmith.tokenizer import Tokenizer

FILES = 8


def main() -> None:
    """Measure and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bulk.json"))
    options = parser.parse_args()
    texts = list(islice(open_data(options.texts, "text").texts(), options.count))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts").mkdir()
        for number in range(FILES):
            table = pa.table({"text": texts[number::FILES]})
            pq.write_table(table, folder / "texts" / f"{number}.parquet")
        for model in options.models:
            rows += [measure(model, folder, texts, count) for count in options.workers]
    found = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "runs": rows}
    options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def measure(model: str, folder: Path, texts: list[str], workers: int) -> dict[str, Any]:
    """One run over all files."""
    path = Path(model)
    tokens = 0
    if path.is_dir():
        words = Tokenizer.load(path)
        tokens = sum(len(words.encode(text).ids) for text in texts)
    begin = time.perf_counter()
    run_folder("embed", model, folder / "texts", folder / "out", workers=workers, long="cut")
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder / "out")
    row = {"model": path.name, "workers": workers, "texts": len(texts), "seconds": seconds}
    row |= {"texts_per_second": len(texts) / seconds, "tokens_per_text": tokens / len(texts)}
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
