"""A damaged file is found and named."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus import Corpus, check
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
