"""Probes find what is there, and the control task tells what was learned by heart."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from analysis.conftest import KINDS, Small
from bertsmith import Bert, load
from bertsmith.analysis.probes import DECAY, _fitted, probe
from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.examples import Tagged
from tasks.words import LINES


def tagged(text: str, tags: list[str]) -> Tagged:
    """The first words of a text, with a tag each."""
    words = text.split()
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    spans = [(end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True)]
    count = len(tags)
    where = Where("x", 1)
    return Tagged(" ".join(words), tuple(words[:count]), tuple(spans[:count]), tuple(tags), where)


def by_place(text: str, most: int | None = None) -> Tagged:
    """Every word, labelled by whether another stands before it."""
    count = len(text.split())
    return tagged(text, (["first"] + ["later"] * (count - 1))[:most])


def test_the_map_is_the_best_linear_one() -> None:
    """As sklearn finds it, with the same penalty."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 12)).astype(np.float32)
    y = (x @ random.normal(size=(12, 3)) + random.normal(size=(300, 3))).argmax(1)
    mean, spread = x[:200].mean(0), x[:200].std(0)
    theirs = LogisticRegression(C=1 / (2 * DECAY * 200), max_iter=2000)
    theirs.fit((x[:200] - mean) / spread, y[:200])
    expected = theirs.score((x[200:] - mean) / spread, y[200:])
    assert _fitted(x[:200], x[200:], y[:200], y[200:]) == pytest.approx(expected, abs=0.011)
    assert _fitted(x[:200], x[200:], np.zeros(200, int), y[200:]) == (y[200:] == 0).mean()
    assert expected > 0.6


@pytest.mark.parametrize("name", KINDS)
def test_every_family(name: str, small: Small) -> None:
    texts = [by_place(line) for line in LINES.split("\n")]
    found = probe(small(name), texts[:7], texts[7:])
    assert [one.depth for one in found.scores] == list(
        range(len(small(name).model.encoder.plan) + 1)
    )
    assert found.labels == ["first", "later"]
    assert found.train == sum(len(one.words) for one in texts[:7])
    assert all(0 <= one.control <= 1 for one in found.scores)


def test_places_are_found_and_forms_are_not(small: Small) -> None:
    """The label is a matter of place: the states know it, a table of word forms does not."""
    random = np.random.default_rng(0)
    vocabulary = ["river", "flows", "the", "old", "mayor", "asked"]
    # As many of one label as of the other.
    texts = [by_place(" ".join(random.choice(vocabulary, 6)), 2) for _ in range(80)]
    found = probe(small(), texts[:60], texts[60:])
    assert found.scores[0].accuracy >= 0.95
    assert found.lookup <= 0.7
    assert found.majority == 0.5


def test_a_form_is_learned_by_heart(small: Small) -> None:
    """Where the label is the form, the control is as good: no selectivity."""
    texts = [by_place("river flows the old mayor asked")] * 20
    found = probe(small(), texts, texts)
    assert found.scores[0].control >= 0.95
    assert abs(found.scores[0].selectivity) <= 0.05


def test_a_label_that_was_never_seen_is_wrong(small: Small) -> None:
    train = [tagged("river flows", ["A", "B"])] * 3
    test = [tagged("river flows", ["C", "C"])]
    found = probe(small(), train, test)
    assert [one.accuracy for one in found.scores] == [0.0] * 4
    assert found.majority == found.lookup == 0.0


def test_without_scikit_learn(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    texts = [by_place(line) for line in LINES.split("\n")]
    with pytest.raises(BertsmithError, match=r"pip install 'bertsmith\[analysis\]'"):
        probe(small(), texts[:7], texts[7:])


def test_nothing_to_learn_from(small: Small) -> None:
    with pytest.raises(BertsmithError, match="needs labelled words"):
        probe(small(), [], [])


@pytest.mark.slow
def test_parts_of_speech_of_a_trained_model(data: Path, minilm_folder: Path) -> None:
    path = data / "ud_english_ewt" / "en_ewt-ud-dev.conllu.xz"
    found = read_data(path, "tagging").examples[:250]
    bert: Bert = load(minilm_folder, device="cpu")
    scores = probe(bert, found[:150], found[150:250])
    best = max(scores.scores, key=lambda one: one.accuracy)
    assert best.accuracy > scores.lookup + 0.03
    assert best.depth > 0
    assert best.selectivity > scores.scores[0].selectivity
