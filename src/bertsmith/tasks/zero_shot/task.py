"""Zero-shot: the label of a text among labels that are given with it, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain, count
from typing import Annotated, Any, Literal, TypedDict, Unpack, overload

import torch
from pydantic import Field
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import InferencePass, Steps
from bertsmith.infer.windows import Window, mask_rows
from bertsmith.model import Hidden, Model
from bertsmith.tasks.classification.reading import READING
from bertsmith.tasks.classifying import Classification, raw, vote
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.task import Prediction, Task
from bertsmith.tasks.training import TaskOptions, Training
from bertsmith.tasks.use import Askable, Call, RequestBody, Several, Texts, form, listed

TRAINED = ("classify", "tag", "answer", "choose")  # heads of models whose vectors are for a task
TEMPLATE = "This text is about {label}."
SHARPNESS = 20.0  # of cosines: of two labels 0.05 apart the nearer gets 73%

Labels = Sequence[str] | Mapping[str, str]


@EncoderTask
def choose_label(
    bert: LoadedModel,
    texts: Sequence[str],
    labels: Labels,
    way: str | None = None,
    template: str = TEMPLATE,
    several: bool = False,
) -> Steps[list[Classification]]:
    """The likeliest of these labels for every text.

    `labels` are names, or names with the words that describe them, which replace {label} in the
    template. A model with a label "entailment" is asked whether a text entails each sentence; a
    masked-LM model how likely it would write the label there; any other compares vectors. With
    `several`, labels do not compete: each has its own probability, which only entailment gives.
    """
    described = described_labels(labels)
    if template.count("{label}") != 1:
        raise BertsmithError(f"the template must contain {{label}} once: {template[:100]!r}")
    way = way_of(bert, way or ("entailment" if several else None))
    if several and way != "entailment":
        raise BertsmithError(f"labels compete by {way}: several at once need entailment")
    names, sentences = list(described), [template.format(label=x) for x in described.values()]
    if way == "masks":
        scores = yield from _by_masks(bert, texts, list(described.values()), template)
    elif way == "vectors":
        scores = yield from _by_vectors(bert, texts, sentences)
    else:
        scores = yield from _by_entailment(bert, texts, sentences, several)
    return [
        Classification(names[best], row[best], dict(zip(names, row, strict=True)))
        for row, best in ((row.tolist(), int(row.argmax())) for row in scores)
    ]


def described_labels(labels: Labels) -> dict[str, str]:
    """Labels with the words that describe them: as given, else the label with spaces for `_`."""
    if isinstance(labels, Mapping):
        described = dict(labels)
    else:
        described = {name: name.replace("_", " ") for name in labels}
        if len(described) != len(labels):
            raise BertsmithError("a label was given twice")
    if len(described) < 2:
        raise BertsmithError("give at least two labels to choose from")
    if blank := next((name for name, words in described.items() if not words.strip()), None):
        raise BertsmithError(f"the label {blank!r} has no words that describe it")
    return described


def way_of(bert: LoadedModel, asked: str | None = None) -> str:
    """The requested way, or the first that the model supports: entailment, masks, vectors."""
    needs = {
        "entailment": ("a label entailment", _entailing(bert) is not None),
        "masks": ("a masked-LM head", "masked_lm" in bert.model.heads),
        "vectors": ("", True),
    }
    if asked is None:
        return next(name for name, (_, possible) in needs.items() if possible)
    if asked not in needs:
        raise BertsmithError(f"unknown way {asked!r} to choose labels; known: {', '.join(needs)}")
    if not needs[asked][1]:
        raise BertsmithError(f"this model cannot choose by {asked}: it needs {needs[asked][0]}")
    return asked


def _entailing(bert: LoadedModel) -> int | None:
    """Which output of a classifier means that the first text entails the second."""
    if "classify" not in bert.model.heads:
        return None
    names = [name.lower() for name in bert.checkpoint.labels]
    return next((number for number, name in enumerate(names) if name.startswith("entail")), None)


def _by_entailment(
    bert: LoadedModel, texts: Sequence[str], sentences: Sequence[str], several: bool
) -> Steps[Tensor]:
    """The labels' sentences compete by how much the text entails them (Yin et al. 2019).

    With `several`, each competes with its own contradiction, as in the pipeline of transformers.
    """
    firsts = [text for text in texts for _ in sentences]
    rows = yield from vote.steps(bert, firsts, [*sentences] * len(texts), raw)
    outputs, place = torch.tensor(rows), _entailing(bert)
    if several:
        names = [name.lower() for name in bert.checkpoint.labels]
        usual = 0 if place else -1
        other = next((n for n, name in enumerate(names) if name.startswith("contra")), usual)
        return outputs[:, [other, place]].softmax(-1)[:, 1].view(len(texts), len(sentences))
    return outputs[:, place].view(len(texts), len(sentences)).softmax(-1)


def _by_vectors(bert: LoadedModel, texts: Sequence[str], sentences: Sequence[str]) -> Steps[Tensor]:
    """The labels' sentences compete by the cosine of their vectors with the text's."""
    vectors = yield from embed.steps(bert, [*texts, *sentences], None, True)
    tensor = torch.from_numpy(vectors)
    return (tensor[: len(texts)] @ tensor[len(texts) :].T * SHARPNESS).softmax(-1)


def _by_masks(
    bert: LoadedModel, texts: Sequence[str], described: Sequence[str], template: str
) -> Steps[Tensor]:
    """How likely each label's words are at its place in the template, which follows the text.

    Their log-likelihood without a text is subtracted (Holtzman et al. 2021), or common words would
    win. It is the mean over a label's tokens, each predicted independently, in every window of the
    text.
    """
    before, after = template.split("{label}")
    spelled = bert.token_ids([" " + words for words in described])
    lengths = sorted({len(ids) for ids in spelled})
    own = {length: [n for n, ids in enumerate(spelled) if len(ids) == length] for length in lengths}
    encoded = bert.token_ids([*texts, ""])
    prefix, suffix = bert.token_ids([" " + before.rstrip(), after])
    mask = bert.tokenizer.mask_id
    if mask is None:
        raise BertsmithError("this tokenizer has no mask token")
    windows = []
    for length in lengths:
        prompt = [*prefix, *[mask] * length, *suffix]
        windower = bert.windower(limit=bert.max_length - len(prompt))
        for window in chain.from_iterable(map(windower.single, count(), encoded)):
            part = encoded[window.number][window.tokens.start : window.tokens.stop]
            ids, segments = bert.tokenizer.build([*part, *prompt])
            first = window.first + len(part) + len(prefix)
            rows = tuple(range(first, first + length))
            windows.append(replace(window, ids=ids, segments=segments, masks=rows))

    def compute(
        model: Model, hidden: Hidden, batch: Batch, group: Sequence[Window]
    ) -> list[Tensor]:
        picked = torch.tensor(mask_rows(group), device=hidden.last.device)
        logs = model.heads["masked_lm"](hidden, batch, picked).float().log_softmax(-1)
        means, first = [], 0
        for one in group:
            length = len(one.masks)
            wanted = torch.tensor([spelled[n] for n in own[length]], device=logs.device)
            each = logs[first : first + length].gather(1, wanted.T)  # (tokens, labels)
            means.append(each.mean(0).cpu())
            first += length
        return means

    scores, weights = torch.zeros(2, len(encoded), len(spelled))
    outputs = yield InferencePass(windows, compute, ("labels", *map(tuple, spelled), template))
    for window, values in zip(windows, outputs, strict=True):
        places = own[len(window.masks)]
        size = float(max(1, len(window.tokens)))
        scores[window.number, places] += values * size
        weights[window.number, places] += size
    scores = scores / weights
    return (scores[:-1] - scores[-1]).softmax(-1)


class LabelRequest(RequestBody):
    """Texts and the labels to choose from, or labels with the words that describe them."""

    inputs: Annotated[Texts, form("Text", "Shares fell after the bank reported losses.")]
    labels: Annotated[
        dict[str, str] | Annotated[list[str], Field(min_length=2)],
        form("Labels, one per line", "business\nsports\nscience"),
    ]
    way: Literal["entailment", "masks", "vectors"] | None = None
    template: str = TEMPLATE
    several: bool = False


class LabelOptions(TypedDict, total=False):
    """The options of `choose_label`."""

    way: str | None
    template: str
    several: bool


class LabelMethods(Askable):
    """`choose_label`."""

    @overload
    def choose_label(
        self, texts: str, labels: Labels, **options: Unpack[LabelOptions]
    ) -> Classification: ...
    @overload
    def choose_label(
        self, texts: Several, labels: Labels, **options: Unpack[LabelOptions]
    ) -> list[Classification]: ...
    def choose_label(
        self,
        texts: Any,
        labels: Labels,
        *,
        way: str | None = None,
        template: str = TEMPLATE,
        several: bool = False,
    ) -> Any:
        """Choose one of these labels for a text, or for each of several, without training.

        `labels` may be a dictionary of labels and the words that describe them. `way` is
        "entailment", "masks" or "vectors"; by default the first that the model can do. `template`
        is the sentence that each label makes, at {label}. With `several`, a text may have several
        labels: each has a probability of its own ("entailment" only).
        """
        names = dict(labels) if isinstance(labels, Mapping) else list(labels)
        options: dict[str, Any] = {"way": way, "template": template, "several": several}
        return self.ask_each(TASK, texts, labels=names, **options)


class ZeroShotTask(Task):
    """One of the labels that are given with the texts."""

    name, order, about = "zero_shot", 90, "one of the labels that are given with the texts"
    reading = READING  # rows are read as those of classification
    head, kinds = None, (TextExample,)
    usage = 'choose_label("A text.", ["one label", "another"])'
    labels_given = True
    labels: Labels = ()

    verb, ability, heads = "choose-label", "choose among labels", ()
    title, question = "Any labels", "Which of your labels fits a text? Nothing is trained."
    Request, Answer, Methods = LabelRequest, list[Classification], LabelMethods
    lists = ("inputs",)

    def can(self, bert: LoadedModel) -> bool:
        """Not models that were trained for another task."""
        trained = any(head in bert.model.heads for head in TRAINED)
        return not trained or _entailing(bert) is not None

    def call(self, bert: LoadedModel, request: LabelRequest) -> Call:
        texts = listed(request.inputs)
        how = (request.way, request.template, request.several)
        return Call(choose_label, (texts, request.labels, *how), texts)

    def with_labels(self, labels: Sequence[str]) -> ZeroShotTask:
        task = copy(self)
        task.labels = labels
        return task

    def fits(self, checkpoint: Checkpoint) -> bool:
        return False

    def training(self, dataset: Dataset[Any], options: TaskOptions) -> Training:
        labels = setting_name("labels", ["A", "B", "C"], "--labels A,B,C")
        raise BertsmithError(f"{self.name} needs no training: predict with {labels}")

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        texts = [" ".join(example.texts) for example in examples]
        return [
            Prediction(one.label, one.score, {"label": one.label, "scores": one.scores})
            for one in choose_label(bert, texts, self.labels)
        ]


TASK = ZeroShotTask()
