"""The documents that `bertsmith-embed` learns from: a file of titles and texts.

    python benchmarks/embed/texts.py --out documents.jsonl \
        --text DATA/corpus_enwiki_extract=1 DATA/corpus_simplewiki=1 DATA/corpus_books=0.25 \
               DATA/corpus_dialogue=1 \
        --spare DATA/squad_dev DATA/glue_* DATA/conll2003_en DATA/ud_english_ewt

Folders are those of benchmarks/small/corpus.py, with the share of their documents that is taken;
documents that share twenty words in a row with a dev or test file of the benchmarks are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "small"))
from corpus import Shared, kept, spared  # type: ignore[import-not-found]


def main() -> None:
    """Write the documents, one a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True, help="FOLDER=SHARE of documents")
    parser.add_argument("--spare", type=Path, nargs="+", required=True, help="benchmarks' folders")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    titles, texts = spared(asked.spare)
    shared, draws = Shared(texts), random.Random(0)
    with asked.out.open("w", encoding="utf-8") as out:
        for one in asked.text:
            folder, _, share = one.rpartition("=")
            counts: Counter[str] = Counter()
            for document in kept(Path(folder), titles, shared, counts, titled=True):
                if draws.random() < float(share):
                    counts["kept"] += 1
                    out.write(json.dumps({"text": "\n".join(document)}, ensure_ascii=False) + "\n")
            print(folder, dict(counts), flush=True)


if __name__ == "__main__":
    main()
