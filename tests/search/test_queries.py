"""Searches without PyTorch: by keywords, and with the default model."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bertsmith as bs
from bertsmith.checkpoint import keep_layers
from bertsmith.distilling.vectors import headless
from bertsmith.infer.opening import open_model
from bertsmith.search import Index
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.queries import QueryEncoder
from search.conftest import HashedWords

QUERIES = [
    "who eats aphids",
    "",
    " ",
    "東京 naïve 🙂 [MASK]",
    "a\0b",
    "word " * 400,
    "LONDON!" * 90,
]


def test_vectors_of_queries_equal_those_of_the_model() -> None:
    quick, bert = QueryEncoder(), bs.load("bertsmith-embed", device="cpu")
    for query in QUERIES:
        ours, theirs = quick.embed(query), bert.embed(query, normalise=True)
        assert ours is not None
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs).max() <= 1e-6
    assert quick.embed("word " * 600) is None  # several windows


def test_vectors_of_an_encoder_with_several_layers(tmp_path: Path) -> None:
    bert = headless(open_model("bertsmith-small", device="cpu", progress=False))
    bert.checkpoint = keep_layers(bert.checkpoint, (0, 5, 11))
    bert.save(tmp_path / "model", "float16")
    quick, slow = QueryEncoder(tmp_path / "model"), bs.load(tmp_path / "model", device="cpu")
    for query in QUERIES:
        ours, theirs = quick.embed(query), slow.embed(query, normalise=True)
        assert np.abs(ours - theirs).max() <= 1e-6


def test_an_index_uses_them(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", query_prompt="search: ")
    bert = bs.load("bertsmith-embed", device="cpu")
    for query in ("aphids", "aphids " * 600):
        want = bert.embed("search: " + query, normalise=True)
        assert np.abs(index.embed(query) - want).max() <= 1e-6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (BuildSettings(encoder=HashedWords()), ["--keywords"]),
        (BuildSettings(keywords_only=True), []),
        (BuildSettings(), []),
        (BuildSettings(), ["--vectors"]),
    ],
)
def test_a_search_does_not_import_torch(
    tmp_path: Path, folder: Path, settings: BuildSettings, words: list[str]
) -> None:
    update_folders(tmp_path / "index", [folder], settings)
    arguments = ["search", str(tmp_path / "index"), "what do cats eat", *words, "--json"]
    program = f"""
import sys
from bertsmith.cli.app import app
app({arguments!r}, standalone_mode=False)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cats.md" in done.stdout.splitlines()[0]
