"""The corpus of `bertsmith-small`: text without what the benchmarks ask about.

    python benchmarks/small/corpus.py --out OUT \
        --text DATA/corpus_enwiki_extract DATA/corpus_simplewiki \
        --spare DATA/squad_dev DATA/glue_* DATA/conll2003_en DATA/ud_english_ewt

Each folder of text holds files of documents separated by blank lines, and may hold `index.jsonl.xz`
with their titles in the same order. Left out are articles whose title SQuAD's dev set has, and
documents that share twenty words in a row with a dev, validation or test file of the folders to
spare. From the rest a WordPiece vocabulary is learned (uncased), and the corpus is prepared:
OUT/text.txt, OUT/tokenizer, OUT/corpus, and OUT/counts.json with what was left out and why.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.checkpoint import locate
from bertsmith.corpus import prepare
from bertsmith.tokenizer import Tokenizer, train

RUN = 20  # words that two texts share in a row, where one is taken from the other
WORD = re.compile(r"[^\W_]+")
HELD_BACK = re.compile(r"dev|valid|test")  # in the names of files that models are scored on
EMPTY = re.compile(r"\s?\([\s,;]*\)")  # parentheses whose content was a template
BATCH = 1 << 20  # words that are compared at once

Document = list[str]


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="folders of documents")
    parser.add_argument("--spare", type=Path, nargs="+", required=True, help="benchmarks' folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--alphabet", type=int, default=256, help="characters that are learned")
    parser.add_argument("--titles", action="store_true", help="titles are first lines")
    parser.add_argument("--tokenizer", help="a model whose vocabulary is used; none is learned")
    parser.add_argument("--held-out", type=float, default=0.005)
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


# ------------------------------------------------------------------ what benchmarks hold


def spared(folders: list[Path]) -> tuple[set[str], list[str]]:
    """The titles of SQuAD's articles, and every text of the files that models are scored on."""
    titles: set[str] = set()
    texts: list[str] = []
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        if not HELD_BACK.search(path.name):
            continue
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            raw = stream.read()
        if ".json" in path.name:
            articles = json.loads(raw)["data"]
            titles |= {article["title"].replace("_", " ").casefold() for article in articles}
            texts += [part["context"] for one in articles for part in one["paragraphs"]]
        elif ".conllu" in path.name:
            texts += [line for line in raw.splitlines() if line.startswith("# text =")]
        elif ".tsv" in path.name:
            texts += [field for line in raw.splitlines() for field in line.split("\t")]
        else:  # a word a line, with its tags; sentences are parted by blank lines
            for sentence in raw.split("\n\n"):
                texts.append(" ".join(line.split(" ")[0] for line in sentence.splitlines()))
    return titles, texts


class Shared:
    """Tells which documents share so many words in a row with texts that are known."""

    def __init__(self, texts: list[str]) -> None:
        self.numbers: dict[str, int] = {}
        factors = np.random.default_rng(0).integers(1 << 63, size=RUN, dtype=np.uint64)
        self.factors = factors | np.uint64(1)
        known = [self.runs(self.words(text)) for text in texts]
        self.known = np.unique(np.concatenate(known))

    def words(self, text: str) -> list[int]:
        """The words of a text as numbers from 1; 0 is between texts and in none of them."""
        numbers = self.numbers
        return [numbers.setdefault(w, len(numbers) + 1) for w in WORD.findall(text.casefold())]

    def runs(self, words: list[int]) -> Any:
        """One number for each run of words."""
        row = np.asarray(words, np.uint64)
        total = np.zeros(max(0, len(row) - RUN + 1), np.uint64)
        for place, factor in enumerate(self.factors):
            total += row[place : place + len(total)] * factor
        return total

    def which(self, documents: list[list[int]]) -> set[int]:
        """The places of documents that share a run."""
        row: list[int] = []
        starts = []
        for words in documents:
            starts.append(len(row))
            row += [*words, 0]
        found = self.runs(row)
        near = np.searchsorted(self.known, found).clip(max=len(self.known) - 1)
        hits = np.flatnonzero(self.known[near] == found)
        return set((np.searchsorted(starts, hits, "right") - 1).tolist())


# ------------------------------------------------------------------ documents


def documents(folder: Path) -> Iterator[tuple[str, Document]]:
    """The documents of a folder with their titles, as many as documents; "" without an index."""
    index = folder / "index.jsonl.xz"
    if not index.exists():
        return (("", document) for document in texts_of(folder))
    titles = (json.loads(line)["title"] for line in lines_of([index]))
    return zip(titles, texts_of(folder), strict=True)


def lines_of(paths: list[Path]) -> Iterator[str]:
    """The lines of compressed files, blank ones too."""
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            yield from (line.rstrip("\n") for line in stream)


def texts_of(folder: Path) -> Iterator[Document]:
    """The lines of each document, without parentheses that hold nothing."""
    document: Document = []
    for line in lines_of(sorted(folder.glob("*.txt.xz"))):
        if line:
            document.append(EMPTY.sub("", line))
        elif document:
            yield document
            document = []
    if document:
        yield document


def kept(
    folder: Path, titles: set[str], shared: Shared, counts: Counter[str], titled: bool = False
) -> Iterator[Document]:
    """The documents that no benchmark holds; `titled`: their titles are their first lines."""
    waiting: list[Document] = []
    numbered: list[list[int]] = []
    words = 0

    def compared() -> Iterator[Document]:
        taken = shared.which(numbered)
        counts["share words with a benchmark"] += len(taken)
        yield from (one for place, one in enumerate(waiting) if place not in taken)
        waiting.clear()
        numbered.clear()

    for title, document in documents(folder):
        counts["documents"] += 1
        if title.casefold() in titles:
            counts["have a title of SQuAD's"] += 1
            continue
        waiting.append([title, *document] if titled and title else document)
        numbered.append(shared.words("\n".join(document)))
        words += len(numbered[-1])
        if words > BATCH:
            yield from compared()
            words = 0
    yield from compared()


def main() -> None:
    """Choose documents, learn the vocabulary, prepare the corpus."""
    asked = options()
    asked.out.mkdir(parents=True, exist_ok=True)
    titles, texts = spared(asked.spare)
    shared = Shared(texts)
    counts: dict[str, Any] = {"runs of words to spare": len(shared.known)}
    text = asked.out / "text.txt"
    with text.open("w", encoding="utf-8") as out:
        for folder in asked.text:
            counted: Counter[str] = Counter()
            for document in kept(folder, titles, shared, counted, asked.titles):
                out.write("\n".join(document) + "\n\n")
            counts[folder.name] = dict(counted)
            print(folder.name, dict(counted), flush=True)
    if asked.tokenizer:
        made = Tokenizer.load(locate(asked.tokenizer))
    else:
        made = train([text], "wordpiece", size=asked.vocabulary, alphabet=asked.alphabet)
    made.save(asked.out / "tokenizer")
    summary = prepare(
        [text],
        made,
        asked.out / "corpus",
        duplicates="exact",
        held_out=asked.held_out,
        workers=asked.workers,
    )
    for name, split in summary.splits.items():
        counts[name] = {"documents": split.documents, "tokens": split.tokens}
    counts["prepared"] = summary.ledger
    (asked.out / "counts.json").write_text(json.dumps(counts, indent=1) + "\n", "utf-8")
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
