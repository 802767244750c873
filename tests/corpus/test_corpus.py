"""Reading: slices of the row, boundaries, and what a folder says of itself."""

from __future__ import annotations

import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, write


def row_of(corpus: Corpus) -> np.ndarray:
    """All tokens, read by numpy alone."""
    shards = sorted((corpus.directory / corpus.split).glob("tokens-*.npy"))
    return np.concatenate([np.load(shard) for shard in shards]).astype(np.int64)


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_boundaries(small: Path, split: str) -> None:
    corpus = Corpus.open(small, split)
    row = row_of(corpus)
    starts, sentences, whole = (
        corpus.sentence_starts,
        corpus.document_sentences,
        corpus.document_starts,
    )
    assert len(row) == corpus.tokens == starts[-1] == whole[-1]
    assert len(starts) == corpus.sentences + 1 == sentences[-1] + 1
    assert len(sentences) == len(whole) == corpus.documents + 1
    assert starts[0] == sentences[0] == whole[0] == 0
    assert (np.diff(starts) > 0).all()
    assert (np.diff(sentences) > 0).all()
    assert (whole == starts[sentences]).all()
    assert {a.dtype for a in (starts, sentences, whole)} == {np.dtype(np.int64)}
    assert not set(row) & {corpus.tokenizer.cls_id, corpus.tokenizer.sep_id}


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_gather_equals_slices(small: Path, split: str) -> None:
    corpus = Corpus.open(small, split)
    row = row_of(corpus)
    rng = np.random.default_rng(0)
    for longest in (1, 40, 1200):
        lengths = rng.integers(0, min(longest, corpus.tokens) + 1, 300)
        starts = rng.integers(0, corpus.tokens - lengths + 1)
        wanted = [row[s : s + n] for s, n in zip(starts, lengths, strict=True)]
        found = corpus.gather(starts, lengths)
        assert found.dtype == np.int64
        assert (found == np.concatenate(wanted)).all()
    assert len(corpus.gather(np.array([], np.int64), np.array([], np.int64))) == 0
    assert (corpus.gather(np.array([0]), np.array([corpus.tokens])) == row).all()


def test_gather_in_one_shard(words: Tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", documents(20))
    prepare([source], words, tmp_path / "out", held_out=0, workers=0)
    corpus = Corpus.open(tmp_path / "out")
    row = row_of(corpus)
    assert corpus.gather(np.array([7, 3]), np.array([5, 9])).tolist() == [*row[7:12], *row[3:12]]


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (0, 10**9), (10**9, 1)])
def test_gather_beyond_the_end(small: Path, start: int, length: int) -> None:
    with pytest.raises((IndexError, MemoryError)):
        Corpus.open(small).gather(np.array([start]), np.array([min(length, 10**7)]))


def test_the_tokenizer_is_there_and_read_once(small: Path, words: Tokenizer) -> None:
    corpus = Corpus.open(small)
    assert corpus.tokenizer.encode_ids(["The river flows."]) == words.encode_ids(
        ["The river flows."]
    )
    assert corpus.tokenizer is corpus.tokenizer


def test_it_travels_as_its_name(small: Path) -> None:
    """To another process it goes as a path, not as a copy of all tokens."""
    corpus = Corpus.open(small)
    parcel = ForkingPickler.dumps(corpus)
    assert len(parcel) < 1000
    again = ForkingPickler.loads(parcel)
    assert again.fingerprint() == corpus.fingerprint()
    assert (row_of(again) == row_of(corpus)).all()


def test_fingerprints(small: Path, words: Tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "b.txt", documents(60))
    options = {"held_out": 0.2, "shard_tokens": 500, "workers": 0}
    prepare([source], words, tmp_path / "same", **options)
    prepare([source], words, tmp_path / "other", **options, seed=5)
    same, other = (Corpus.open(tmp_path / name).fingerprint() for name in ("same", "other"))
    assert Corpus.open(small).fingerprint() == same == Corpus.open(small, "held_out").fingerprint()
    assert same != other


def test_opening_reads_next_to_nothing(small: Path) -> None:
    start = time.perf_counter()
    for _ in range(10):
        Corpus.open(small)
    assert (time.perf_counter() - start) / 10 < 0.1
    assert Corpus.open(small)._shards.count(None) > 5, "shards are mapped when they are used"


def test_what_cannot_be_opened(small: Path, words: Tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", documents(5))
    prepare([source], words, tmp_path / "all", held_out=0, workers=0)
    (tmp_path / "begun" / "work").mkdir(parents=True)
    for folder, split, message in [
        (small, "test", "unknown split 'test'"),
        (tmp_path / "no", "train", "no such folder"),
        (tmp_path, "train", "not a prepared corpus"),
        (tmp_path / "begun", "train", "was interrupted; run `bertsmith prepare` again"),
        (tmp_path / "all", "held_out", "the split held_out contains no documents"),
    ]:
        with pytest.raises(BertsmithError, match=message) as caught:
            Corpus.open(folder, split)
        assert "\n" not in str(caught.value)


def test_it_says_what_it_is(small: Path) -> None:
    assert "documents" in repr(Corpus.open(small))


@pytest.mark.parametrize("shards", [2, 255, 256, 257, 65_536, 65_537, 70_000])
def test_gather_from_any_number_of_shards(shards: int) -> None:
    corpus = Corpus.__new__(Corpus)  # by hand: nobody wants 70,000 files
    corpus._check_files = lambda places: None  # type: ignore[method-assign]
    corpus.tokenizer = SimpleNamespace(size=1 << 16)  # type: ignore[assignment]
    corpus.shard_tokens, corpus.tokens = 3, 3 * shards
    row = np.random.default_rng(0).integers(0, 1 << 16, corpus.tokens).astype(np.uint16)
    corpus._shards = list(row.reshape(shards, 3))
    starts = np.array([corpus.tokens - 5, 1, 3 * (shards // 2) - 1, 0])
    lengths = np.array([5, 4, 3, 1])
    wanted = [row[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    assert (corpus.gather(starts, lengths) == np.concatenate(wanted)).all()
