"""Shared parts of classification, multilabel and regression: windows and training."""

from collections.abc import Sequence
from typing import Any

from bertsmith.infer.explain import Explanation
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.windows import Window
from bertsmith.tasks.classifying import Classify
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.task import Prediction, Rows, Task
from bertsmith.tasks.training import Sample, Training, TrainingItem


def texts_of(examples: Sequence[Any]) -> tuple[list[str], list[str] | None]:
    """First texts, and second texts if any example has one."""
    pairs = [example.pair for example in examples]
    second = None if all(pair is None for pair in pairs) else [pair or "" for pair in pairs]
    return [example.text for example in examples], second


class LabelTask(Classify, Task):
    """A task of the classification head."""

    head = "classify"
    hub_tag, opens_as = "text-classification", "SequenceClassification"
    kinds, one_output, least_steps = (TextExample,), True, 500

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        """The text or pair with the predicted label."""
        return self.carriers[0](example.text, example.pair, prediction.value, example.where)

    def explained_outputs(self, bert: LoadedModel, value: Any) -> list[int]:
        """The indices of the outputs that a prediction depends on: by default the only one."""
        return [0]

    def explain(self, bert: LoadedModel, example: Any, prediction: Prediction) -> Rows:
        """Contributions from all windows, each by its length."""
        outputs = [(0, one) for one in self.explained_outputs(bert, prediction.value)]
        explanation = Explanation(bert, example.texts)
        windows = explanation.windows
        size = sum(len(window.tokens) for window in windows)
        for window in windows:
            fraction = len(window.tokens) / size if len(windows) > 1 else 1.0
            explanation.add(window, "classify", outputs, fraction)
        return explanation.words(windows)


class LabelTraining(Training):
    """Every window of a long text learns the text's label, weighted by the window's length."""

    head = "classify"

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item for each window."""
        grouped: list[list[Window]] = [[] for _ in examples]
        for window in bert.windows(*texts_of(examples)):
            grouped[window.number].append(window)
        samples: list[Sample] = []
        for windows, example in zip(grouped, examples, strict=True):
            lengths = [max(1.0, len(window.tokens)) for window in windows]
            target, scale = self.target(example), self.weight(example) / sum(lengths)
            pairs = zip(windows, lengths, strict=True)
            samples.append(tuple(TrainingItem((w,), target, n * scale) for w, n in pairs))
        return samples

    def target(self, example: Any) -> Any:
        """What the windows of an example learn."""
        raise NotImplementedError

    def weight(self, example: Any) -> float:
        """How much an example counts."""
        return 1.0
