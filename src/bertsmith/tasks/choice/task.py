"""Choice: the best of several choices for a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.texts import listed_strings
from bertsmith.infer.windows import Window
from bertsmith.metrics.labels import mean_scores
from bertsmith.tasks.choice.reading import READING, ChoiceExample
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.task import (
    Display,
    DisplayText,
    Mark,
    Prediction,
    Scorer,
    Task,
    Values,
    exclusive_prediction,
)
from bertsmith.tasks.training import GridTraining, Sample, Targets, TrainingItem, class_loss
from bertsmith.tasks.use import Askable, Call, RequestBody, TaskResult, form


@dataclass(frozen=True)
class Choice(TaskResult):
    """The best choice, with the probability of each."""

    index: int
    text: str
    scores: list[float]


@EncoderTask
def choose(bert: LoadedModel, prompt: str, choices: Sequence[str]) -> Steps[Choice]:
    """The choice that goes best with the prompt."""
    if not choices:
        raise BertsmithError("no choices given")
    return (yield from choose_many.steps(bert, [prompt], [choices]))[0]


@EncoderTask
def choose_many(
    bert: LoadedModel, prompts: Sequence[str], choices: Sequence[Sequence[str]]
) -> Steps[list[Choice]]:
    """The best choice for each prompt. A long prompt is read in windows, each with the choice."""
    grouped = choice_windows(bert, prompts, choices)
    windows = [window for group in grouped for window in group]
    scores = iter((yield bert.head_pass("choose", windows)))
    results = []
    for group, texts in zip(grouped, choices, strict=True):
        highest = [float("-inf")] * len(texts)
        for window in group:  # the evidence for a choice may be in any window
            highest[window.number] = max(highest[window.number], float(next(scores)))
        probabilities = torch.tensor(highest).softmax(0).tolist()
        best = max(range(len(texts)), key=probabilities.__getitem__)
        results.append(Choice(best, texts[best], probabilities))
    return results


def choice_windows(
    bert: LoadedModel, prompts: Sequence[str], choices: Sequence[Sequence[str]]
) -> list[list[Window]]:
    """The windows of every prompt with each of its choices; a window's number is its choice's."""
    encoded, windower = bert.token_ids(prompts), bert.windower()
    choice_ids = iter(bert.token_ids([text for texts in choices for text in texts]))
    grouped = []
    for number, (prompt, texts) in enumerate(zip(encoded, choices, strict=True)):
        group: list[Window] = []
        for place in range(len(texts)):
            windows = windower.beside(number, prompt, next(choice_ids))
            group += [replace(window, number=place) for window in windows]
        grouped.append(group)
    return grouped


class ChoiceTraining(GridTraining):
    """Cross entropy among the choices of each question."""

    head = "choose"

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        prompts, options = ([getattr(e, n) for e in examples] for n in ("prompt", "options"))
        grouped = zip(choice_windows(bert, prompts, options), examples, strict=True)
        return [(TrainingItem(tuple(windows), one.label),) for windows, one in grouped]

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The correct choices (items,), too."""
        return {**super().targets(items), "labels": torch.tensor([one.target for one in items])}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Cross entropy among each question's choices; places without a choice never win."""
        grid = self.best(outputs, targets, float("-inf"))
        loss = class_loss(grid, targets["labels"])
        probability = (-loss).exp()
        if smoothing := self.options.smoothing:
            exists = grid > float("-inf")
            logs = grid.log_softmax(-1).masked_fill(~exists, 0.0)
            loss = (1 - smoothing) * loss - smoothing * logs.sum(-1) / exists.sum(-1)
        if self.options.focal:
            loss = loss * (1 - probability) ** self.options.focal
        return (loss * targets["weights"]).sum()


EXAMPLES = "it rained all night\nthe sun is shining\nbread is sold here"


class ChooseRequest(RequestBody):
    """A prompt and its choices."""

    prompt: Annotated[str, form("Prompt", "The street is wet because")]
    choices: Annotated[list[str], Field(min_length=1), form("Choices, one per line", EXAMPLES)]


class ChooseMethods(Askable):
    """`choose`."""

    def choose(self, prompt: str, choices: Sequence[str]) -> Choice:
        """Return the choice that fits the prompt best, with the probability of each."""
        texts = listed_strings(choices, "choices")
        return self.ask(TASK, ChooseRequest.model_construct(prompt=prompt, choices=texts))


class ChoiceTask(Task):
    """One of several choices."""

    reading, head = READING, "choose"
    hub_tag, opens_as = "multiple-choice", "MultipleChoice"
    usage = 'choose("A prompt", ["one", "another"])'
    defaults: ClassVar = {"batch_size": 8}
    options = frozenset({"focal", "smoothing"})
    kinds = (ChoiceExample,)
    exclusive = True
    learner, measures = ChoiceTraining, ("accuracy",)

    verb, ability, heads = "choose", "choose", ("choose",)
    title, question = "Choose", "Which choice goes best with a prompt?"
    Request, Answer, Methods = ChooseRequest, Choice, ChooseMethods

    def call(self, bert: LoadedModel, request: ChooseRequest) -> Call:
        prompt, choices = request.prompt, request.choices
        prompts = [prompt] * len(choices)
        return Call(choose, (prompt, choices), prompts, choices, windowed=[prompt])

    def row(self, text: str, pair: str | None) -> dict[str, str]:
        raise BertsmithError("a model that chooses needs a file of prompts and choices")

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        return replace(example, label=int(prediction.value))

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        prompts, options = ([getattr(e, n) for e in examples] for n in ("prompt", "options"))
        predictions = []
        for best in choose_many(bert, prompts, options):
            output = {"choice": best.index, "text": best.text, "scores": best.scores}
            confidence = best.scores[best.index]
            predictions.append(exclusive_prediction(bert, best.index, confidence, output))
        return predictions

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        return mean_scores(accuracy=self.correct(dataset, values) or [])

    def display(self, example: Any, prediction: Prediction) -> Display:
        passages = [DisplayText(example.prompt, title=True)]
        for number, option in enumerate(example.options):
            correct, predicted = number == example.label, number == prediction.value
            kind = "correct" if correct and predicted else "missed" if correct else "wrong"
            marks = (Mark(0, len(option), kind),) if correct or predicted else ()
            passages.append(DisplayText(option, marks))
        return Display(tuple(passages), confidence=prediction.confidence)


TASK = ChoiceTask()
