"""Text added to a prepared corpus: as if it had been there, and readable all the time."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.corpus import Corpus, Manifest, add, check, prepare
from bertsmith.corpus import merge as merging
from bertsmith.corpus.workshop import Workshop
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, write

Preparation = import_module("bertsmith.corpus.prepare").Preparation  # hidden by the function
OPTIONS: dict[str, Any] = {"held_out": 0.1, "shard_tokens": 5000, "piece_bytes": 8000}


def content(folder: Path) -> dict[str, Any]:
    """All tokens and boundaries of both splits, and the sizes and the ledger."""
    manifest = Manifest.read(folder)
    result: dict[str, Any] = {"splits": manifest.splits, "ledger": manifest.ledger}
    for split, counts in manifest.splits.items():
        if counts.documents:
            corpus = Corpus.open(folder, split, check=True)
            starts, lengths = corpus.document_starts[:-1], np.diff(corpus.document_starts)
            result[split] = corpus.gather(starts, lengths).tolist()
            result[f"{split} sentences"] = corpus.sentence_starts.tolist()
            result[f"{split} documents"] = corpus.document_sentences.tolist()
    return result


@pytest.mark.parametrize("held_out", [0.1, 0.0])
def test_two_additions_equal_one_preparation(
    words: Tokenizer, tmp_path: Path, held_out: float
) -> None:
    sizes = {"a": 150, "b": 80, "c": 1}
    paths = [
        write(tmp_path / f"{name}.txt", documents(count, seed))
        for seed, (name, count) in enumerate(sizes.items())
    ]
    options = OPTIONS | {"held_out": held_out}
    prepare(paths, words, tmp_path / "whole", workers=0, **options)
    prepare(paths[:1], words, tmp_path / "out", workers=0, **options)
    before = (tmp_path / "out" / "train" / "tokens-00000.npy").stat()
    assert add(paths[1:2], tmp_path / "out", workers=0).added == 80
    assert add(paths[2:], tmp_path / "out", workers=2).added == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    after = (tmp_path / "out" / "train" / "tokens-00000.npy").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # a full shard
    assert check(tmp_path / "out")[1] == []
    stored = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.npy")}
    assert stored == {n for n in Manifest.read(tmp_path / "out").files if n.endswith(".npy")}
    assert not (tmp_path / "out" / "work").exists()
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert ledger["documents read"] == 231
    again = add(paths, tmp_path / "out", workers=0)  # it has all of them
    assert again.added == 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert prepare(paths[:1], words, tmp_path / "out", workers=0, **options).ledger == ledger


def test_an_interrupted_addition_continues_and_the_corpus_stays_readable(
    words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in every step: in the pieces, in the shards, before the manifest, after it."""
    first, second = (write(tmp_path / f"{n}.txt", documents(120, n)) for n in (0, 1))
    prepare([first, second], words, tmp_path / "whole", workers=0, **OPTIONS)
    out = tmp_path / "out"
    prepare([first], words, out, workers=0, **OPTIONS)
    before, process, done = content(out), Workshop.process, 0

    def stopping(workshop: Workshop, piece: Any) -> Any:
        nonlocal done
        done += 1
        if done == 3:
            raise KeyboardInterrupt
        return process(workshop, piece)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Workshop, "process", stopping)
        with pytest.raises(KeyboardInterrupt):
            add([second], out, workers=0)
    assert content(out) == before
    assert len(list((out / "work").glob("*.npz"))) == 2
    for owner, name in ((merging.SplitWriter, "finish"), (Manifest, "write")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stop)
            with pytest.raises(KeyboardInterrupt):
                add([second], out, workers=0)
        assert content(out) == before
    with pytest.raises(BertsmithError, match="add those files first"):
        add([write(tmp_path / "other.txt", documents(5, 7))], out, workers=0)
    with monkeypatch.context() as patch:
        patch.setattr(Preparation, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            add([second], out, workers=0)
    assert content(out) == content(tmp_path / "whole")
    assert add([second], out, workers=0).added == 0
    assert content(out) == content(tmp_path / "whole")
    assert not (out / "work").exists()


@pytest.mark.parametrize("duplicates", ["exact", "near"])
def test_duplicates_of_what_is_there_are_left_out(
    words: Tokenizer, tmp_path: Path, duplicates: str
) -> None:
    old, new = documents(60, 0, paragraphs=6), documents(40, 1, paragraphs=6)
    old = [[paragraph * 4 for paragraph in document] for document in old]
    nearly = [[f"{document[0]} again", *document[1:]] for document in old[:10]]
    prepare(
        [write(tmp_path / "a.txt", old)], words, tmp_path / "out",
        workers=0, duplicates=duplicates, **OPTIONS,
    )  # fmt: skip
    # Ten that are there, ten that nearly are, and new ones, of which five are there twice.
    path = write(tmp_path / "b.txt", [*old[20:30], *nearly, *new, *new[:5]])
    result = add([path], tmp_path / "out", workers=0)
    near = duplicates == "near"
    assert result.ledger["exact duplicates, left out"] == 15
    assert result.ledger.get("near-duplicates, left out", 0) == 10 * near
    assert result.added == 40 + 10 * (not near)
    # A file that has grown: only its new documents are added.
    write(path, [*new, *documents(7, 5)])
    assert add([path], tmp_path / "out", workers=0).added == 7


def test_mistakes(words: Tokenizer, tmp_path: Path) -> None:
    first = write(tmp_path / "a.txt", documents(30))
    with pytest.raises(BertsmithError, match="no such folder"):
        add([first], tmp_path / "out")
    prepare([first], words, tmp_path / "out", workers=0, **OPTIONS)
    before = content(tmp_path / "out")
    write(first, documents(31))
    with pytest.raises(BertsmithError, match=r"a\.txt was changed since .* twice"):
        add([first], tmp_path / "out", workers=0)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"caf\xe9\n")
    with pytest.raises(BertsmithError, match="not UTF-8"):
        add([bad], tmp_path / "out", workers=0)
    bad.write_text("The cat sat on the mat.\n")
    assert add([bad], tmp_path / "out", workers=0).added == 1  # a corrected file
    assert (
        content(tmp_path / "out")["splits"]["train"].documents
        >= before["splits"]["train"].documents
    )
