"""`Classifier` among scikit-learn's own."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from bertsmith import BertsmithError, load
from bertsmith.finetuning.classifier import Classifier
from finetuning.conftest import texts
from tasks.models import Maker

FAST = {"learning_rate": 3e-3, "epochs": 20, "batch_size": 8}


def test_fit_and_predict(base: Maker, tmp_path: Path) -> None:
    rows = texts()
    given, labels = [text for text, _ in rows], [label for _, label in rows]
    model = Classifier(base().folder, **FAST)
    assert model.fit(given, labels) is model
    assert model.predict(given).tolist() == labels
    chances = model.predict_proba(given)
    assert chances.shape == (48, 2)
    assert np.allclose(chances.sum(1), 1, atol=1e-5)
    assert model.predict_proba([]).shape == (0, 2)
    for wrong in ("Paris", None):
        with pytest.raises(BertsmithError, match="must be a list of strings"):
            model.predict(wrong)
    again = Classifier(base().folder, epochs=1).fit(iter(given), (label for label in labels))
    assert set(again.predict(given)) <= {"city", "thing"}
    model.save(tmp_path / "out")
    assert load(tmp_path / "out", device="cpu").classify(given[0]).label == labels[0]


@pytest.mark.parametrize("kind", [int, float, bool, np.int64])
def test_labels_keep_their_kind(base: Maker, kind: type) -> None:
    rows = texts(32)
    labels = np.array([kind(label == "city") for _, label in rows])
    found = Classifier(base().folder, **FAST).fit([t for t, _ in rows], labels).predict(["Paris"])
    assert found.dtype == labels.dtype


def test_pairs(base: Maker) -> None:
    pairs = [("the river", "Paris"), ("the river", "bees")] * 8
    model = Classifier(base().folder, **FAST).fit(pairs, ["a", "b"] * 8)
    assert model.predict(pairs[:2]).tolist() == ["a", "b"]
    mixed = model.predict_proba(["the river", pairs[0]])  # the second text of a later pair counts
    assert np.allclose(mixed[1], model.predict_proba(pairs[:1])[0], atol=1e-5)


def test_a_training_that_fails_changes_nothing(base: Maker) -> None:
    given, labels = ["Paris", "bees", "Prague", "storm"] * 4, ["a", "b"] * 8
    model = Classifier(base().folder, epochs=1).fit(given, labels)
    before = model.predict_proba(given)
    with pytest.raises(BertsmithError, match="at least two labels"):
        model.fit(given, ["x"] * 16)
    assert np.array_equal(model.predict_proba(given), before)


def test_a_fitted_classifier_can_be_pickled(base: Maker) -> None:
    rows = texts(16)
    given = [text for text, _ in rows]
    model = Classifier(base().folder, epochs=1, batch_size=8, device="cpu")
    assert not hasattr(pickle.loads(pickle.dumps(model)), "bert_")
    model.fit(given, [label for _, label in rows])
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(given), model.predict_proba(given))
    assert again.get_params() == model.get_params()
    assert hasattr(model, "bert_")


def test_scikit_learn_takes_it(base: Maker) -> None:
    sklearn = pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    rows = texts(60)
    given, labels = np.array([t for t, _ in rows]), np.array([label for _, label in rows])
    model = Classifier(base().folder, **FAST)
    assert sklearn.base.clone(model).get_params() == model.get_params()
    strip = FunctionTransformer(lambda many: [str(text).strip() for text in many])
    scores = cross_val_score(make_pipeline(strip, model), given, labels, cv=2)
    assert scores.min() > 0.8


def test_mistakes(base: Maker) -> None:
    folder = base().folder
    for action, message in (
        (lambda: Classifier("").fit(["a"], ["b"]), "expected a model directory"),
        (lambda: Classifier(folder).fit(["a", "b"], ["x"]), "2 texts cannot have 1 label"),
        (lambda: Classifier(folder).fit([1, 2], ["x", "y"]), "text 0 is a int"),
        (lambda: Classifier(folder).fit("ab", ["x", "y"]), "not of type str"),
        (lambda: Classifier(folder).fit([], []), "no texts to learn from"),
        (lambda: Classifier(folder).fit(["a"], None), "a label for each text"),
        (lambda: Classifier(folder).fit(["a"], np.array(3)), "a single label"),
        (lambda: Classifier(folder).fit(["a", "b"], np.eye(2)), "a single label"),
        (lambda: Classifier(folder).fit(["a", "b"], [1.0, np.nan]), "label 1 is missing"),
        (lambda: Classifier(folder).fit(["a", "b"], ["x", None]), "label 1 is missing"),
        (lambda: Classifier(folder).fit(["a", "b"], ["x", ["y"]]), "a single label"),
        (lambda: Classifier(folder).fit(["a", "b"], ["x", "x"]), "at least two labels"),
        (lambda: Classifier(folder).predict(["a"]), "not trained yet"),
        (lambda: Classifier(folder).save("x"), "not trained yet"),
    ):
        with pytest.raises(BertsmithError, match=message):
            action()
