"""The documents that `bertsmith-embed` learns from: a file of titles and texts.

    python benchmarks/embed/texts.py --out documents.jsonl \
        --text DATA/corpus_enwiki_extract=1 DATA/corpus_simplewiki=1 DATA/corpus_books=0.25 \
               DATA/corpus_dialogue=1 \
        --spare DATA/squad_dev DATA/glue_* DATA/conll2003_en DATA/ud_english_ewt

Folders are those of benchmarks/small/corpus.py, with the share of their documents that is taken;
documents that share twenty words in a row with a dev or test file of the benchmarks are left out.
`--most 1000` takes the first thousand of each folder, for a trial. After them come texts of other
kinds: captions, headlines, reviews and questions from the training files below, without their
labels and without texts that a dev or test file beside them has, too (`--lines DATA`).
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "small"))
from corpus import HELD_BACK, Shared, kept, spared  # type: ignore[import-not-found]

# Training files, the columns of their texts, and the share of rows that is taken.
LINES: dict[str, tuple[tuple[int | str, ...], float]] = {
    "glue_stsb/train.tsv.xz": ((7, 8), 1.0),
    "glue_mrpc/train_rebuilt.tsv.xz": ((3, 4), 1.0),
    "glue_rte/train.tsv.xz": ((1, 2), 1.0),
    "glue_cola/train.tsv.xz": ((3,), 1.0),
    "glue_sst2/train.tsv.xz": ((0,), 0.3),
    "banking77/train.csv.xz": ((0,), 1.0),
    "imdb_sample/train.jsonl.xz": (("text",), 1.0),
    **{
        f"subjqa/{name}__train.csv.xz": ((8, 13), 1.0)
        for name in ("electronics", "grocery", "restaurants", "tripadvisor")
    },
}


def rows_of(path: Path) -> Iterator[list[str] | dict[str, str]]:
    """The rows of a file: lists of fields, or objects."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as stream:
        if ".jsonl" in path.name:
            yield from map(json.loads, stream)
        elif ".csv" in path.name:
            yield from csv.reader(stream)
        else:
            yield from (line.rstrip("\r\n").split("\t") for line in stream)


def lines(data: Path, most: int | None) -> Iterator[str]:
    """The texts of training files, each once, without those of the dev and test files."""
    seen: set[str] = set()
    for path in sorted({one for name in LINES for one in (data / name).parent.iterdir()}):
        if HELD_BACK.search(path.name):
            for row in rows_of(path):
                seen |= {
                    str(one).strip() for one in (row if isinstance(row, list) else [row["text"]])
                }
    for name, (columns, share) in LINES.items():
        draws = random.Random(0)
        for row in islice(rows_of(data / name), most):
            for column in columns if draws.random() < share else ():
                text = row[column].replace("<br />", " ").strip()  # type: ignore[call-overload, index]
                if text not in seen and " " in text:
                    seen.add(text)
                    yield text


def write_documents(
    texts: list[str], spare: list[Path], out: Path, most: int | None, data: Path | None = None
) -> None:
    """Write the documents of folders (FOLDER=SHARE) and the lines of training files, one a line."""
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
        for count, line in enumerate(lines(data, most) if data else (), 1):
            stream.write(json.dumps({"text": line}, ensure_ascii=False) + "\n")
            counts = Counter(lines=count)
        print(dict(counts), flush=True)


def main() -> None:
    """Write the documents that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True, help="FOLDER=SHARE of documents")
    parser.add_argument("--spare", type=Path, nargs="+", required=True, help="benchmarks' folders")
    parser.add_argument("--lines", type=Path, help="the folder of the training files' folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="documents of a folder")
    given = parser.parse_args()
    write_documents(given.text, given.spare, given.out, given.most, given.lines)


if __name__ == "__main__":
    main()
