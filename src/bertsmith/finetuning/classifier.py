"""`bertsmith.Classifier`: fit and predict, as scikit-learn's estimators do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.finetuning import Splits, finetune
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.infer.texts import listed
from bertsmith.numbers import counted
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.classification.task import TASK
from bertsmith.tasks.classifying import classify
from bertsmith.tasks.dataset import Dataset

try:  # scikit-learn asks its estimators for more than fit and predict, and more every year
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:

    class BaseEstimator:  # type: ignore[no-redef]
        """Stands in for scikit-learn's class where it is not installed."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The arguments that it was made with."""
            return {name: getattr(self, name) for name in signature(type(self)).parameters}

    class ClassifierMixin:  # type: ignore[no-redef]
        """Stands in for scikit-learn's class where it is not installed."""


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A text classifier that fine-tunes a model, for scikit-learn pipelines and cross-validation.

    Texts are strings or pairs of strings. Labels are strings, numbers or booleans; predictions have
    the same type.
    """

    def __init__(
        self,
        model: str | Path = "bertsmith-small",
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        class_weights: str | None = None,
        freeze: str | None = None,
        seed: int = 0,
        device: str | None = None,
        dtype: str | None = None,
        progress: bool | None = None,
    ) -> None:
        # Kept as given, and looked at in fit: so scikit-learn wants it, to copy estimators.
        self.model = model
        self.learning_rate, self.epochs, self.batch_size = learning_rate, epochs, batch_size
        self.max_length, self.class_weights, self.freeze = max_length, class_weights, freeze
        self.seed, self.device, self.dtype, self.progress = seed, device, dtype, progress

    def fit(self, texts: Sequence[Any], labels: Sequence[Any]) -> Classifier:
        """Fine-tune the model on texts and their labels."""
        inputs, classes = listed(texts), _labels(labels)
        if len(inputs) != len(classes):
            texts_given = counted(len(inputs), "text")
            raise BertsmithError(f"{texts_given} cannot have {counted(len(classes), 'label')}")
        if not inputs:
            raise BertsmithError("there are no texts to learn from")
        unique = np.unique(classes)
        names = {value: str(value) for value in unique.tolist()}
        if len(set(names.values())) < len(names):
            raise BertsmithError("two different labels are spelled the same")
        examples = [
            Labelled(*_pair(text, number), names[label], Where("texts", number + 1, "text"))
            for number, (text, label) in enumerate(zip(inputs, classes.tolist(), strict=True))
        ]
        settings = self.get_params(deep=False)
        splits = Splits(Dataset(Path("texts"), TASK.name, examples))
        self.bert_: LoadedModel = finetune(settings.pop("model"), splits, **settings).bert
        self.classes_ = unique  # after the training: one that fails changes nothing
        return self

    def predict(self, texts: Sequence[Any]) -> NDArray[Any]:
        """Return the most probable label of each text."""
        chances = self.predict_proba(texts)
        return self.classes_[chances.argmax(1)]

    def predict_proba(self, texts: Sequence[Any]) -> NDArray[np.float64]:
        """Return the probability of every label, one row per text, in the order of `classes_`."""
        if not hasattr(self, "bert_"):
            raise BertsmithError("this classifier is not trained yet: call fit first")
        pairs = [_pair(text, number) for number, text in enumerate(listed(texts))]
        if not pairs:
            return np.zeros((0, len(self.classes_)))
        alone = all(pair is None for _, pair in pairs)
        second = None if alone else [pair or "" for _, pair in pairs]
        results = classify(self.bert_, [text for text, _ in pairs], second)
        names = [str(value) for value in self.classes_.tolist()]
        return np.array([[one.scores[name] for name in names] for one in results])

    def __getstate__(self) -> dict[str, Any]:
        """The arguments and, once fitted, the files of the model directory: safe to pickle."""
        state = dict(super().__getstate__())
        bert = state.pop("bert_", None)
        if bert is not None:
            with TemporaryDirectory() as folder:
                model = Path(folder, "model")
                bert.save(model)
                state["_files"] = {
                    path.relative_to(model).as_posix(): path.read_bytes()
                    for path in sorted(model.rglob("*"))
                    if path.is_file()
                }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the model from its files again."""
        files = state.pop("_files", None)
        if hasattr(super(), "__setstate__"):
            super().__setstate__(state)
        else:
            self.__dict__.update(state)
        if files is not None:
            with TemporaryDirectory() as folder:
                for name, content in files.items():
                    path = Path(folder, "model", name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                self.bert_ = open_model(folder + "/model", device=self.device, progress=False)

    def save(self, directory: str | Path) -> None:
        """Write the trained model to a directory."""
        if not hasattr(self, "bert_"):
            raise BertsmithError("this classifier is not trained yet: call fit first")
        self.bert_.save(directory)


def _labels(labels: Any) -> NDArray[Any]:
    if labels is None or isinstance(labels, str):
        raise BertsmithError("labels must be a list with a label for each text")
    try:
        array = np.asarray(labels if hasattr(labels, "__array__") else listed(labels, "labels"))
    except ValueError:  # lists of several lengths
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise BertsmithError("every text needs a single label: a string, a number or a boolean")
    for number, label in enumerate(array.tolist()):
        missing = label is None or type(label).__name__ in ("NAType", "NaTType")
        if missing or (isinstance(label, float) and math.isnan(label)):
            raise BertsmithError(f"label {number} is missing")
    return array


def _pair(text: Any, number: int) -> tuple[str, str | None]:
    if isinstance(text, str):
        return str(text), None
    if isinstance(text, list | tuple | np.ndarray) and len(text) == 2:
        return str(text[0]), str(text[1])
    raise BertsmithError(f"text {number} is a {type(text).__name__}, not a string or a pair")
