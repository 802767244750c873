"""Senses: the vectors are the word's own; groups that are there are found, others are not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from analysis.conftest import KINDS, Small
from bertsmith import Bert, load
from bertsmith.analysis.pages import senses_page
from bertsmith.analysis.senses import (
    SensePair,
    Senses,
    clusters,
    find,
    projector,
    read_pairs,
    same_sense,
    senses,
    static,
    vectors,
)
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Trace
from bertsmith.tasks.embedding import unit_vectors

MONEY = [
    "The bank lent us money for the house.",
    "I opened an account at the bank.",
    "The bank raised its interest rates.",
    "She works in a bank and counts cash.",
    "The robbers stole a million from the bank.",
    "Our bank charges a fee for each loan.",
]
WATER = [
    "We sat on the bank of the river.",
    "The boat was tied to the muddy bank.",
    "Willows grow along the bank of the stream.",
    "He swam to the other bank of the lake.",
    "The flood washed away the river bank.",
    "Fishermen stood on the bank in the rain.",
]


@pytest.fixture(scope="module")
def minilm(minilm_folder: Path) -> Bert:
    return load(minilm_folder, device="cpu")


def test_whole_words_are_found() -> None:
    texts = ["Bank, banks and bank.", "embankment", "the BANK"]
    places = find("bank", texts)
    assert [place.text[place.start : place.end] for place in places] == ["Bank", "bank", "BANK"]
    assert [place.start for place in places] == [0, 16, 4]
    assert len(find("bank", texts, 2)) == 2
    assert find("c++", ["c and c++."])[0].start == 6
    with pytest.raises(BertsmithError, match="no word to look for"):
        find(" ", texts)


def test_around() -> None:
    (place,) = find("river", ["a" * 50 + " river " + "b" * 50])
    assert place.around(5) == "…aaaa [river] bbbb…"
    assert find("river", ["river"])[0].around() == "[river]"


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_means_of_the_words_states(name: str, small: Small) -> None:
    bert = small(name)
    texts = ["The unbelievable river.", "unbelievable"]
    found = vectors(bert, find("unbelievable", texts))
    for number, text in enumerate(texts):
        encoding = bert.tokenizer.encode(text)
        start = text.index("unbelievable")
        rows = [
            n
            for n, (a, b) in enumerate(encoding.offsets)
            if encoding.sources[n] is not None and a < start + 12 and start < b
        ]
        assert len(rows) > 1
        trace = Trace(states=True)
        with torch.inference_mode():
            batch = Batch.of([encoding.ids], [encoding.segments])
            last = bert.model.encoder(batch, trace).last
        depths = [*trace.hidden[:-1], last]
        expected = np.stack([states[rows].mean(0).numpy() for states in depths])
        assert np.abs(found[:, number] - expected).max() <= 1e-5


def test_long_texts_are_read_around_the_word(small: Small) -> None:
    bert = small()
    found = vectors(bert, find("question", ["the river flows " * 100 + "question " + "a " * 100]))
    assert np.isfinite(found).all()
    assert bert.ledger.counts["long texts read in windows"] == 1


def test_static_vectors_know_no_sentence(small: Small) -> None:
    bert = small()
    ids = bert.tokenizer.encode("river", special=False).ids
    table = bert.model.encoder.embedding.token.weight
    assert np.allclose(static(bert, "river"), table[ids].mean(0).detach().numpy())


# ------------------------------------------------------------------ groups


def blobs(count: int, each: int, noise: float, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(count, 16))
    labels = [n for n in range(count) for _ in range(each)]
    points = centres[labels] + noise * random.normal(size=(len(labels), 16))
    return (points + 5).astype(np.float32), labels  # all lean one way, as states do


@pytest.mark.parametrize("count", [2, 3, 5])
def test_groups_that_are_there_are_found(count: int) -> None:
    points, labels = blobs(count, 12, 0.15)
    groups, apart = clusters(points)
    assert len(set(groups)) == count
    assert len(set(zip(groups, labels, strict=True))) == count
    assert apart > 0.6


def test_one_cloud_is_one_group() -> None:
    points = np.random.default_rng(0).normal(size=(80, 64)).astype(np.float32)
    assert clusters(points) == ([0] * 80, 0.0)


def test_the_silhouette_is_the_known_one() -> None:
    points, _ = blobs(3, 9, 0.8)
    groups, apart = clusters(points, 3)
    expected = silhouette_score(unit_vectors(points - points.mean(0)), groups, metric="cosine")
    assert apart == pytest.approx(expected, abs=1e-5)
    assert clusters(points, 1) == ([0] * 27, 0.0)
    assert len(set(clusters(points[:3], 3)[0])) == 3


def test_a_number_that_is_asked_for() -> None:
    groups, _ = clusters(blobs(2, 10, 0.2)[0], 4)
    assert sorted(set(groups)) == [0, 1, 2, 3]
    sizes = [groups.count(n) for n in range(4)]
    assert sizes == sorted(sizes, reverse=True)


# ------------------------------------------------------------------ a trained model


def test_the_two_banks(minilm: Bert) -> None:
    found = senses(minilm, "bank", MONEY + WATER)
    assert found.depth == 4
    assert max(found.groups) == 1
    by_sense = [found.groups[: len(MONEY)], found.groups[len(MONEY) :]]
    wrong = min(by_sense[0].count(n) + by_sense[1].count(1 - n) for n in (0, 1))
    assert wrong <= 1
    assert "river" in found.words(found.groups[len(MONEY)])
    assert len(found.alike) == 7
    assert all(value < 0.99 for value in found.alike[1:])
    first = found.members(0)
    assert sorted(first) == [n for n, group in enumerate(found.groups) if group == 0]


def test_same_sense_is_told_better_than_by_chance(minilm: Bert) -> None:
    lines = [
        f"bank\t{a}\t{b}\t{'T' if (a in MONEY) == (b in MONEY) else 'F'}"
        for k, a in enumerate(MONEY + WATER)
        for b in (MONEY + WATER)[k + 1 :]
    ]
    pairs = read_pairs(lines)
    assert len(pairs) == 66
    scores = same_sense(minilm, pairs)
    most = max(sum(pair.same for pair in pairs), sum(not pair.same for pair in pairs)) / len(pairs)
    assert max(scores) >= 0.85 > most
    assert scores[0] < 0.7  # the embeddings know the word and its place alone


def test_labels_that_say_nothing_are_not_learned(small: Small) -> None:
    """With a constant word vector only the more frequent answer can be given."""
    place = find("river", ["river"])[0]
    pairs = [SensePair(place, place, number % 3 != 0) for number in range(30)]
    assert max(same_sense(small(), pairs)) <= 20 / 30 + 1e-9


# ------------------------------------------------------------------ pages, files, mistakes


def made() -> Senses:
    points, labels = blobs(2, 5, 0.1)
    places = find("bank", [f"the <b>bank</b> number {n}" for n in range(10)])
    return Senses("bank", places, 2, points, labels, [1.0, 0.5, 0.25], 0.7)


def test_the_page() -> None:
    page = senses_page(made(), "model", [0.5, 0.6, 0.7])
    assert page.count('fill-opacity=".75"') == 10
    assert "&lt;b&gt;[bank]&lt;/b&gt; number 3" in page
    assert "&lt;b&gt;<b>bank</b>&lt;/b&gt; number 3" in page
    assert "Group 2 <small>5 occurrences</small>" in page
    assert 'data-y="50 60 70"' in page
    assert 'data-y="1 0.5 0.25"' in page


def test_the_plane_keeps_what_differs_most() -> None:
    found = made()
    assert found.plane.shape == (10, 2)
    sides = {bool(found.plane[n, 0] > 0) == (found.groups[n] == 0) for n in range(10)}
    assert len(sides) == 1


def test_projector_files(tmp_path: Path) -> None:
    projector(made(), tmp_path / "log")
    told = (tmp_path / "log" / "metadata.tsv").read_text("utf-8").splitlines()
    assert told[0] == "group\ttext"
    assert len(told) == 11
    assert np.allclose(np.loadtxt(tmp_path / "log" / "vectors.tsv"), made().vectors, atol=1e-4)
    text_format = pytest.importorskip("google.protobuf.text_format")
    plugin = pytest.importorskip("tensorboard.plugins.projector.projector_config_pb2")
    config = (tmp_path / "log" / "projector_config.pbtxt").read_text("utf-8")
    parsed = text_format.Parse(config, plugin.ProjectorConfig())
    assert parsed.embeddings[0].tensor_path == "vectors.tsv"


def test_mistakes(small: Small) -> None:
    bert = small()
    with pytest.raises(BertsmithError, match="'bees' occurs 1 times in these texts: too few"):
        senses(bert, "bees", ["bees"])
    with pytest.raises(BertsmithError, match="depth is 4, but this model has"):
        senses(bert, "a", ["a a a"], depth=4)
    with pytest.raises(BertsmithError, match="3 occurrences cannot form 9 groups"):
        senses(bert, "a", ["a a a"], groups=9)
    with pytest.raises(BertsmithError, match="line 2: expected word, two sentences, T or F"):
        read_pairs(["a\ta b\ta c\tT", "a\ta b\tT"])
    with pytest.raises(BertsmithError, match="line 1: 'a' is not in both sentences"):
        read_pairs(["a\tb\ta c\tT"])
    with pytest.raises(BertsmithError, match="too few: give 10 or more"):
        same_sense(bert, [])
