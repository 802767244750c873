"""A damaged file is found and named."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus import Corpus, Manifest, check, manifest
from bertsmith.corpus.manifest import measure
from bertsmith.errors import BertsmithError
from slow.corrupt_shards import KINDS, found, make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_accident_is_found(folder: Path, kind: str) -> None:
    rng = random.Random(kind)
    assert all(found(folder, kind, rng) for _ in range(15))
    assert check(folder)[1] == []


def test_the_manifest_vouches_for_itself(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    before = path.read_text()
    content["splits"]["train"]["tokens"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(BertsmithError, match=r"manifest\.json is damaged"):
        Corpus.open(folder)
    path.write_text(before)
    Corpus.open(folder, check=True)


def test_a_missing_file(folder: Path) -> None:
    shard = folder / "train" / "tokens-00002.npy"
    data = shard.read_bytes()
    shard.unlink()
    with pytest.raises(BertsmithError, match=r"tokens-00002\.npy is missing"):
        Corpus.open(folder)
    shard.write_bytes(data)


def test_several_are_counted(folder: Path) -> None:
    shards = sorted((folder / "train").glob("tokens-*"))[:3]
    contents = [shard.read_bytes() for shard in shards]
    for shard in shards:
        shard.write_bytes(b"")
    with pytest.raises(BertsmithError, match=r"tokens-00000.*and 2 more"):
        Corpus.open(folder)
    assert len(check(folder)[1]) == 3
    for shard, content in zip(shards, contents, strict=True):
        shard.write_bytes(content)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', "null", "[" * 100_000])
def test_manifests_that_are_none(folder: Path, content: str) -> None:
    path = folder / "manifest.json"
    before = path.read_text()
    path.write_text(content)
    with pytest.raises(BertsmithError, match=r"manifest\.json") as caught:
        Corpus.open(folder)
    assert "\n" not in str(caught.value)
    path.write_text(before)


@pytest.mark.parametrize("name", ["tokens-00000.npy", "sentence_starts.npy"])
def test_a_file_that_is_cut_while_it_is_read(folder: Path, name: str) -> None:
    """Mapped pages that are gone would end the process with SIGBUS."""
    corpus = Corpus.open(folder)
    starts, lengths = np.array([0, corpus.tokens - 3]), np.array([2, 3])
    corpus.gather(starts, lengths)
    path = folder / "train" / name
    data = path.read_bytes()
    os.truncate(path, len(data) // 2)
    with pytest.raises(BertsmithError, match=rf"{name} is damaged: it has [\d,]+ bytes, not"):
        corpus.gather(starts, lengths)
    path.write_bytes(data)
    assert len(corpus.gather(starts, lengths)) == 5


ONE = np.array([0]), np.array([5])


@contextmanager
def changed(
    path: Path, change: Callable[[bytes], bytes], sign: Path | None = None
) -> Iterator[None]:
    """A file with other content, which the manifest of a corpus may vouch for."""
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    manifest = None if sign is None else (sign / "manifest.json").read_bytes()
    if sign is not None:
        old = Manifest.read(sign)
        replace(old, files={**old.files, **measure(sign, [path])}).write(sign)
    try:
        yield
    finally:
        path.write_bytes(whole)
        if sign is not None and manifest is not None:
            (sign / "manifest.json").write_bytes(manifest)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_flipped_bit_is_found_when_a_shard_is_first_read(folder: Path) -> None:
    shard = folder / "train" / "tokens-00000.npy"
    with changed(shard, flipped):
        corpus = Corpus.open(folder)
        with pytest.raises(
            BertsmithError, match=r"tokens-00000\.npy is damaged: its SHA"
        ) as caught:
            corpus.gather(*ONE)
        assert "\n" not in str(caught.value)
        corpus = Corpus.open(folder, "held_out")
        assert len(corpus.gather(*ONE)) == 5


@pytest.mark.parametrize("name", ["sentence_starts", "document_starts", "document_sentences"])
def test_damaged_starts_are_found_when_a_corpus_is_opened(folder: Path, name: str) -> None:
    with (
        changed(folder / "train" / f"{name}.npy", flipped),
        pytest.raises(BertsmithError, match=rf"{name}\.npy is damaged: its SHA"),
    ):
        Corpus.open(folder)


def test_a_damaged_tokenizer_is_found(folder: Path) -> None:
    (path, *_) = sorted((folder / "tokenizer").glob("tokenizer*.json"))
    with changed(path, flipped), pytest.raises(BertsmithError, match=f"{path.name} is damaged"):
        _ = Corpus.open(folder).tokenizer


def test_large_files_are_compared_while_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the sums of a large corpus; damage ends the next read, or the run."""
    monkeypatch.setattr(manifest, "AT_ONCE", 0)
    with changed(folder / "train" / "tokens-00000.npy", flipped):
        corpus = Corpus.open(folder)
        assert corpus.sums.thread is not None
        corpus.sums.finish()
        with suppress(BertsmithError):  # if the thread was quicker
            assert len(corpus.gather(*ONE)) == 5
        with pytest.raises(BertsmithError, match=r"tokens-00000\.npy is damaged: its SHA"):
            corpus.sums.finish()
        with pytest.raises(BertsmithError, match=r"tokens-00000\.npy is damaged: its SHA"):
            corpus.gather(*ONE)


def test_one_rank_of_a_machine_compares(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with changed(folder / "train" / "tokens-00000.npy", flipped):
        assert len(Corpus.open(folder).gather(*ONE)) == 5


def test_a_shard_that_is_overwritten_while_it_is_read(folder: Path) -> None:
    corpus = Corpus.open(folder)
    before = corpus.gather(*ONE)
    shard = folder / "train" / "tokens-00000.npy"
    os.utime(shard, ns=(1, 1))  # the same content, copied
    assert (corpus.gather(*ONE) == before).all()
    with (
        changed(shard, flipped),
        pytest.raises(BertsmithError, match=r"tokens-00000\.npy is damaged: its SHA"),
    ):
        corpus.gather(*ONE)


def test_tokens_beyond_the_vocabulary_are_refused(folder: Path) -> None:
    shard = folder / "train" / "tokens-00000.npy"
    with (
        changed(shard, lambda data: data[:128] + b"\xff\xff" + data[130:], folder),
        pytest.raises(BertsmithError, match=r"it has the token 65,535, and its tokenizer"),
    ):
        Corpus.open(folder).gather(*ONE)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"(700,)", b"(800,)"),
        lambda data: data.replace(b"(700,)", b"(70, )"),
        lambda data: data.replace(b"<u2", b"|O8"),
        lambda data: data.replace(b"NUMPY", b"PK\x03\x04\x00"),
        lambda data: data[:20] + b"[" * 100 + data[120:],
    ],
)
def test_a_header_that_lies(folder: Path, change: Callable[[bytes], bytes]) -> None:
    with (
        changed(folder / "train" / "tokens-00000.npy", change, folder),
        pytest.raises(BertsmithError, match=r"tokens-00000\.npy is damaged: its header") as e,
    ):
        Corpus.open(folder).gather(*ONE)
    assert "\n" not in str(e.value)


def test_starts_that_end_elsewhere(folder: Path) -> None:
    with (
        changed(folder / "train" / "document_starts.npy", flipped, folder),
        pytest.raises(BertsmithError, match="its documents end elsewhere"),
    ):
        Corpus.open(folder)
