"""The TF-IDF + logistic regression baseline on the same files."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.data import Dataset, Splits
from bertsmith.examples.draw import shuffled
from bertsmith.tasks.evaluate import labelled
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import Prediction

TASKS = ("classification", "multilabel")
MOST = 50_000  # examples that it is fitted on
PRODUCT = 5_000_000  # labels times examples: there is a classifier for each label
FEATURES = 20_000  # words and pairs of words; of short texts as many groups of characters too
SHORT = 2_000_000  # characters of all training texts up to which these are counted
FEW = 10  # examples from which on two scores are compared
NAME = "TF-IDF + logistic regression"


def baseline(splits: Splits) -> dict[str, Any] | None:
    """Scores of the baseline on the dev and test files; None for other tasks.

    Without scikit-learn, "note" says so instead.
    """
    if splits.train.task not in TASKS or (splits.dev is None and splits.test is None):
        return None
    if (labels := len(splits.train.labels)) * min(MOST, len(splits.train)) > PRODUCT:
        return {"name": NAME, "note": f"no TF-IDF baseline: {labels:,} labels are too many for it"}
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return {
            "name": NAME,
            "note": "no TF-IDF baseline: it needs scikit-learn (pip install 'bertsmith[analysis]')",
        }
    began = time.perf_counter()
    examples = splits.train.gold()
    notes = []
    if len(examples) > MOST:
        order = shuffled(np.arange(len(examples)), len(examples), 0, "baseline")
        notes.append(f"fitted on {MOST:,} of {len(examples):,} training examples")
        examples = [examples[place] for place in order[:MOST]]
    scores: dict[str, Any] = {"dev": None, "test": None}
    predict = _fitted(splits.train, examples)
    for name, one in (("dev", splits.dev), ("test", splits.test)):
        if one is not None:
            scores[name] = _scored(labelled(one), predict)
    return {
        "name": NAME,
        "scores": scores,
        "seconds": round(time.perf_counter() - began, 1),
        "note": "; ".join(notes),
    }


def verdict(
    found: dict[str, Any] | None, scores: dict[str, dict[str, float] | None], metric: str
) -> str:
    """A warning if the baseline is as good as the model or better; else empty."""
    for split in ("test", "dev"):
        ours = (scores.get(split) or {}).get(metric)
        count = int((scores.get(split) or {}).get("count", FEW))
        theirs = ((found or {}).get("scores", {}).get(split) or {}).get(metric)
        if ours is not None and theirs is not None:
            if count < FEW:
                return f"{count} {split} examples are too few to compare with {NAME}"
            if theirs >= ours:
                return (
                    f"{NAME} is at least as good: {split} {metric} {theirs:.4f} against "
                    f"{ours:.4f}; train longer (--epochs), on more data, or use the simpler model"
                )
            return ""
    return ""


def _texts(examples: Sequence[Any]) -> list[str]:
    """Both texts of a pair as one."""
    return [" ".join(text for text in (one.text, one.pair) if text) for one in examples]


def _fitted(train: Dataset[Any], examples: Sequence[Any]) -> Any:
    """A function from examples to predictions."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_union
    from sklearn.preprocessing import MultiLabelBinarizer

    texts = _texts(examples)
    words = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, max_features=FEATURES, token_pattern=r"(?u)\S+"
    )
    parts = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True, max_features=FEATURES
    )
    short = sum(map(len, texts)) <= SHORT
    features = make_union(words, parts) if short else words
    rows = features.fit_transform(texts)
    several = train.task == "multilabel"
    # By stochastic gradients: seconds, where a solver to full precision takes minutes.
    inner = SGDClassifier(
        loss="log_loss", alpha=0.1 / len(texts), max_iter=10, tol=1e-3, random_state=0
    )
    names: MultiLabelBinarizer | None = None
    if several:
        names = MultiLabelBinarizer(classes=list(train.labels))
        targets: Any = names.fit_transform([one.labels for one in examples])
    else:
        targets = [one.label for one in examples]
    model: Any = OneVsRestClassifier(inner) if several else inner
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # labels that no or every example has
        model.fit(rows, targets)

    def predict(some: Sequence[Any]) -> list[Prediction]:
        chances = model.predict_proba(features.transform(_texts(some)))
        if names is not None:
            chosen = names.inverse_transform((chances > 0.5).astype(int))
            return [Prediction(tuple(labels), 1.0) for labels in chosen]
        best = chances.argmax(1)
        return [
            Prediction(str(model.classes_[place]), float(row[place]))
            for place, row in zip(best, chances, strict=True)
        ]

    return predict


def _scored(dataset: Dataset[Any], predict: Any) -> dict[str, float]:
    predictions = predict(dataset.examples)
    scores = task_named(dataset.task).scorer(dataset, predictions)(None)
    return {"count": float(len(predictions)), **scores}
