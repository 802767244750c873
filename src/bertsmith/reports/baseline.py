"""A simple baseline on the same files: TF-IDF for labels, the package's own vectors for pairs."""

import time
import warnings
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.infer.opening import open_model
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate, labelled, sample_of
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.training import class_weights as weigh_classes
from bertsmith.tasks.training import label_weights

MOST = 50_000  # examples that it is fitted on
PRODUCT = 5_000_000  # labels times examples: there is a classifier for each label
FEATURES = 20_000  # words and pairs of words; of short texts as many groups of characters too
SHORT = 2_000_000  # characters of all training texts up to which these are counted
FEW = 10  # with fewer examples, two scores are not compared
NAME = "TF-IDF + logistic regression"
# What to do where a baseline wins: one that fine-tuning with `auto` writes, and others.
SIMPLER = "use this simpler model: fine-tuning with `auto` writes it as a model directory"
ADVICE = "use this simpler model, or fine-tune with `auto`, which compares more of them"
VECTORS = "bertsmith-embed"  # whose cosines are the baseline of pairs


def baseline(
    splits: Splits, class_weights: str = "", device: str | None = None
) -> dict[str, Any] | None:
    """Scores of the task's baseline on dev and test; "note" says why it cannot be fitted."""
    kind = task_named(splits.train.task).baseline
    files = {"dev": splits.dev, "test": splits.test}
    if not kind or not any(files.values()):
        return None
    began, about = time.perf_counter(), {"name": NAME, "short": "TF-IDF", "note": ""}
    if kind == "vectors":
        if len(splits.train.examples[0].texts) < 2:
            return None
        name = f"cosine of {VECTORS}, not trained on these pairs"
        about |= {"name": name, "short": VECTORS}
        bert = open_model(VECTORS, device=device, progress=False)
        scores = {name: one and evaluate(bert, one).scores for name, one in files.items()}
    else:
        try:
            predict = fitted_words(splits.train, class_weights)
        except BertsmithError as error:
            return about | {"note": f"no TF-IDF baseline: {error}"}
        if (count := len(splits.train.gold())) > MOST:
            about["note"] = f"fitted on {MOST:,} of {count:,} training examples"
        scores = {name: one and _scored(labelled(one), predict) for name, one in files.items()}
    return about | {"scores": scores, "seconds": round(time.perf_counter() - began, 1)}


def verdict(
    simple: dict[str, Any] | None, scores: dict[str, dict[str, float] | None], metric: str
) -> str:
    """A warning if the baseline is as good as the model or better; else empty."""
    simple = simple or {}
    name, advice = simple.get("name", NAME), SIMPLER if simple.get("fitted") else ADVICE
    for split in ("test", "dev"):
        ours = scores.get(split) or {}
        score, count = ours.get(metric), int(ours.get("count", FEW))
        simple_score = (simple.get("scores", {}).get(split) or {}).get(metric)
        if score is not None and simple_score is not None:
            if count < FEW:
                return f"too few {split} examples to compare with {name}: {count}"
            if simple_score < score:
                return ""
            scores_of_both = f"{split} {metric} {simple_score:.4f} against {score:.4f}"
            return f"{name} is at least as good: {scores_of_both}; {advice}"
    return ""


def _texts(examples: Sequence[Any]) -> list[str]:
    return [" ".join(filter(None, (example.text, example.pair))) for example in examples]


def fitted_words(train: Dataset[Any], class_weights: str = "") -> Any:
    """A function from examples to predictions, by TF-IDF and logistic regression."""
    examples = sample_of(train, MOST).gold()
    if (count := len(train.labels)) * len(examples) > PRODUCT:
        raise BertsmithError(f"{count:,} labels are too many for it")
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise BertsmithError("it needs scikit-learn (pip install 'bertsmith[analysis]')") from None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    texts = _texts(examples)
    both: Any = {"sublinear_tf": True, "max_features": FEATURES}
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\S+", **both)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), **both)
    short = sum(map(len, texts)) <= SHORT
    features = make_union(words, characters) if short else words
    rows = features.fit_transform(texts)
    labels, seen = train.labels, [name for one in examples for name in one.label_names]
    if not task_named(train.task).several:
        # By their numbers: scikit-learn takes the names 0 and 1 for numbers, without weights.
        weights = dict(enumerate(weigh_classes(class_weights, labels, seen)))
        model = _logistic(rows, [labels.index(one.label) for one in examples], weights)

        def label(some: Sequence[Any]) -> list[Prediction]:
            chances = model.predict_proba(features.transform(_texts(some)))
            best = chances.argmax(1)
            return [
                Prediction(labels[model.classes_[place]], float(row[place]))
                for place, row in zip(best, chances, strict=True)
            ]

        return label
    models = {}
    sides = label_weights(class_weights, labels, seen, len(examples))
    for name, (with_label, without) in zip(labels, sides, strict=True):
        applies = np.array([name in example.labels for example in examples])
        # A label that no or every example has is always predicted so.
        models[name] = bool(applies[0])
        if applies.min() != applies.max():
            models[name] = _logistic(rows, applies, {True: with_label, False: without})

    def several(some: Sequence[Any]) -> list[Prediction]:
        new_rows = features.transform(_texts(some))
        applies = [
            [model] * len(some) if isinstance(model, bool) else model.predict(new_rows)
            for model in models.values()
        ]
        chosen = (tuple(compress(labels, flags)) for flags in zip(*applies, strict=True))
        return [Prediction(names, 1.0) for names in chosen]

    return several


def _logistic(rows: Any, targets: Any, weights: dict[Any, float]) -> Any:
    """A logistic regression by stochastic gradients: seconds, where exact solvers take minutes."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDClassifier

    alpha, seen = 0.1 / rows.shape[0], set(targets)
    weights = {name: one for name, one in weights.items() if name in seen}
    model = SGDClassifier(
        loss="log_loss", alpha=alpha, max_iter=10, tol=1e-3, random_state=0, class_weight=weights
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, targets)


def _scored(dataset: Dataset[Any], predict: Any) -> dict[str, float]:
    predictions = predict(dataset.examples)
    scores = task_named(dataset.task).scorer(dataset, predictions)(None)
    return {"count": float(len(predictions)), **scores}
