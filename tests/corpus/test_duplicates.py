"""Repeated documents are left out, the first stays, and similarity is what it is called."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus import duplicates, prepare
from bertsmith.corpus.duplicates import bands_for, mark_exact, mark_near, signatures
from bertsmith.tokenizer import Tokenizer
from corpus.test_prepare import expected, stored
from corpus.texts import documents, files, write


def test_exact_duplicates(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(80)
    order = [*given[:50], *given[20:60], given[3], *given[60:]]
    source = write(tmp_path / "a.txt", order)
    for workers in (0, 2):
        out = tmp_path / str(workers)
        made = prepare(
            [source], words, out, held_out=0, workers=workers, duplicates="exact", piece_bytes=3000
        )
        assert stored(out) == expected(given, words)
        assert made.ledger["exact duplicates, left out"] == 31
    assert files(tmp_path / "0") == files(tmp_path / "2")


def test_near_duplicates(words: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("rensa")
    given = documents(40, paragraphs=20)
    long = [document for document in given if sum(map(len, document)) > 1500]
    changed = [[*document[:-1], document[-1] + " The river."] for document in long]
    source = write(tmp_path / "a.txt", [*given, *changed, given[0]])
    made = prepare([source], words, tmp_path / "out", held_out=0, workers=0, duplicates="near")
    assert stored(tmp_path / "out") == expected(given, words)
    assert made.ledger["near-duplicates, left out"] == len(changed) > 5
    assert made.ledger["exact duplicates, left out"] == 1


@pytest.mark.parametrize("at_once", [7, 1000])
def test_exact_marks_equal_a_set(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    digests = rng.integers(0, 12, (200, 2)).astype(np.uint64)
    repeated = np.zeros(200, np.uint8)
    mark_exact(digests, repeated)
    seen: set[tuple[int, ...]] = set()
    for row, mark in zip(digests.tolist(), repeated, strict=True):
        assert bool(mark) == (tuple(row) in seen)
        seen.add(tuple(row))


def shingles(tokens: list[int]) -> set[tuple[int, ...]]:
    return {tuple(tokens[n : n + 5]) for n in range(max(1, len(tokens) - 4))}


def jaccard(left: list[int], right: list[int]) -> float:
    one, other = shingles(left), shingles(right)
    return len(one & other) / len(one | other)


def rows_of(given: list[list[int]]) -> np.ndarray:
    """Signatures of documents of one sentence each."""
    pytest.importorskip("rensa")
    tokens = np.array([token for document in given for token in document], np.uint16)
    lengths = np.array([len(document) for document in given], np.uint32)
    return signatures(tokens, lengths, np.ones(len(given), np.uint32), near=True)


def test_signatures_estimate_the_similarity() -> None:
    rng = random.Random(2)
    base = [rng.randrange(30_000) for _ in range(600)]
    given = [base]
    for changes in (1, 5, 10, 20, 40, 80):
        other = list(base)
        for place in rng.sample(range(600), changes):
            other[place] = rng.randrange(30_000)
        given.append(other)
    rows = rows_of(given)
    for document, row in zip(given, rows, strict=True):
        assert abs(float((row == rows[0]).mean()) - jaccard(base, document)) < 0.13


def test_a_signature_does_not_depend_on_the_neighbours() -> None:
    rng = random.Random(3)
    given = [[rng.randrange(9) for _ in range(rng.randint(1, 30))] for _ in range(60)]
    together = rows_of(given)
    for document, row in zip(given, together, strict=True):
        assert (rows_of([document])[0] == row).all()


@pytest.mark.parametrize("similarity", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_bands_follow_the_similarity(similarity: float) -> None:
    bands, rows = bands_for(similarity)
    assert bands * rows <= 128
    assert 1 - (1 - similarity**rows) ** bands >= 0.99


@pytest.mark.parametrize("similarity", [0.5, 0.6, 0.7, 0.8])
def test_pairs_a_little_above_the_similarity_are_found(similarity: float) -> None:
    """Two documents that begin alike, of a similarity 0.1 higher and 0.1 lower than requested."""
    rng = np.random.default_rng(5)
    length, pairs = 400, 60
    found = []
    for target in (similarity + 0.1, similarity - 0.1):
        same = round(2 * (length - 4) * target / (1 + target)) + 4
        given = rng.integers(0, 60_000, (pairs, 2, length))
        given[:, 1, :same] = given[:, 0, :same]
        repeated = np.zeros(2 * pairs, np.uint8)
        rows = rows_of(given.reshape(2 * pairs, length).tolist())
        mark_near(rows, similarity, repeated, np.zeros(2 * pairs, np.uint64))
        assert not repeated[::2].any()
        found.append(repeated.sum() / pairs)
    assert found[0] > 0.9
    assert found[1] < 0.1


def test_a_repeated_document_is_found_among_others_of_its_band() -> None:
    """Neither the first nor the previous document with the same values is the one it repeats."""
    rng = np.random.default_rng(6)
    bands, rows = bands_for(0.5)
    signed = rng.integers(0, 1 << 32, (6, 128), np.uint32)
    signed[:, :rows] = signed[0, :rows]
    signed[4, : bands * rows // 2 + 30] = signed[2, : bands * rows // 2 + 30]
    signed[4, rows : 2 * rows] = 7  # so that they meet in the first band only
    for band in range(2, bands):
        signed[4, band * rows] += 1
    repeated = np.zeros(6, np.uint8)
    mark_near(signed, 0.4, repeated, np.zeros(6, np.uint64))
    assert repeated.tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("at_once", [11, 1000])
def test_near_marks(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against every pair compared: all that are very alike, none that are not."""
    monkeypatch.setattr(duplicates, "AT_ONCE", at_once)
    monkeypatch.setattr(duplicates, "SOME", 4)
    rng = random.Random(4)
    given: list[list[int]] = []
    for _ in range(60):
        if given and rng.random() < 0.5:
            other = list(rng.choice(given))
            for place in rng.sample(range(len(other)), rng.choice([0, 1, 2, 8, 30])):
                other[place] = rng.randrange(30_000)
            given.append(other)
        else:
            given.append([rng.randrange(30_000) for _ in range(400)])
    rows = rows_of(given)
    repeated = np.zeros(len(given), np.uint8)
    mark_near(rows, 0.8, repeated, np.zeros(len(given), np.uint64))
    assert 10 < repeated.sum() < 40
    for number, document in enumerate(given):
        best = max((jaccard(document, other) for other in given[:number]), default=0.0)
        if best > 0.93:
            assert repeated[number], best
        if best < 0.65:
            assert not repeated[number], best
