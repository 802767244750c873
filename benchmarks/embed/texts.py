"""The documents that `bertsmith-embed` learns from: a file of titles and texts.

    python benchmarks/embed/texts.py --out documents.jsonl \
        --text DATA/corpus_enwiki_extract=1 DATA/corpus_simplewiki=1 DATA/corpus_books=0.25 \
               DATA/corpus_dialogue=1 \
        --spare DATA/squad_dev DATA/glue_* DATA/conll2003_en DATA/ud_english_ewt

Folders are those of benchmarks/small/corpus.py, with the share of their documents that is taken;
documents that share twenty words in a row with a dev or test file of the benchmarks are left out.
`--most 1000` takes the first thousand of each folder, for a trial.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "small"))
from corpus import Shared, kept, spared  # type: ignore[import-not-found]


def write_documents(texts: list[str], spare: list[Path], out: Path, most: int | None) -> None:
    """Write the documents of folders (FOLDER=SHARE), one a line."""
    titles, known = spared(spare)
    shared, draws = Shared(known), random.Random(0)
    with out.open("w", encoding="utf-8") as stream:
        for text in texts:
            folder, _, share = text.rpartition("=")
            counts: Counter[str] = Counter()
            documents = kept(Path(folder), titles, shared, counts, titled=True)
            for document in islice(documents, most):
                if draws.random() < float(share):
                    counts["kept"] += 1
                    row = {"text": "\n".join(document)}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(folder, dict(counts), flush=True)


def main() -> None:
    """Write the documents that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True, help="FOLDER=SHARE of documents")
    parser.add_argument("--spare", type=Path, nargs="+", required=True, help="benchmarks' folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="documents of a folder")
    given = parser.parse_args()
    write_documents(given.text, given.spare, given.out, given.most)


if __name__ == "__main__":
    main()
