"""Tagging: a tag for every word, and the entities that tags spell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Dataset, Labelled, MultiLabelled, Tagged
from bertsmith.data.schemes import chunks, detect
from bertsmith.errors import BertsmithError
from bertsmith.metrics.entities import entity_scores, tag_scores
from bertsmith.metrics.labels import Score, per_label
from bertsmith.model import Hidden
from bertsmith.pages.results import marked_text
from bertsmith.tasks.explain import Explanation
from bertsmith.tasks.loaded import EncoderTask, LoadedModel
from bertsmith.tasks.run import EncoderPass, Steps
from bertsmith.tasks.spans import words
from bertsmith.tasks.task import (
    Display,
    Mark,
    Passage,
    Prediction,
    Result,
    Rows,
    Scorer,
    Task,
)
from bertsmith.tasks.training import (
    Sample,
    Targets,
    TaskOptions,
    Training,
    TrainingItem,
    class_loss,
    class_weights,
    label_config,
    sequence_starts,
    zero_padded,
)
from bertsmith.tasks.windows import Window, clearest
from bertsmith.tokenizer import Encoding


@dataclass(frozen=True)
class Entity(Result):
    """A labelled span of a text: text[start:end]."""

    label: str
    text: str
    start: int
    end: int
    score: float  # probability; of several words, their mean


class Entities(list[Entity]):
    """The entities of one text, highlighted in notebooks."""

    def __init__(self, entities: Iterable[Entity], text: str) -> None:
        super().__init__(entities)
        self.text = text

    def _repr_html_(self) -> str:
        return marked_text(self.text, ((one.start, one.end, one.label) for one in self))


Place = tuple[int | None, int, int]  # a word's first token, if it has one, and its characters


@EncoderTask
def tag_words(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[list[Entity]]]:
    """Every word of every text with its label: that of the word's first token."""
    return (yield from _labelled(bert, texts, lambda number, one: words(texts[number], one)))


@EncoderTask
def tag_given(
    bert: LoadedModel, texts: Sequence[str], given: Sequence[Sequence[tuple[int, int]]]
) -> Steps[list[list[Entity]]]:
    """The label of every word that is given by where it begins and ends.

    A word that the tokenizer sees nothing in gets the label O, or the first, with probability 0.
    """

    def places(number: int, encoding: Encoding) -> Iterator[Place]:
        firsts = first_tokens(encoding.offsets, given[number])
        for token, (start, end) in zip(firsts, given[number], strict=True):
            yield token, start, end

    return (yield from _labelled(bert, texts, places))


def first_tokens(
    offsets: Sequence[tuple[int, int]], given: Sequence[tuple[int, int]]
) -> list[int | None]:
    """For each word (its characters) the first token that begins in it, else that touches it."""
    found: list[int | None] = []
    token = 0
    for start, end in given:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        touching = None
        for place in range(token, len(offsets)):
            left, right = offsets[place]
            if left >= end:
                break
            if right > max(left, start):
                touching = place if touching is None else touching
                if left >= start:
                    touching = place
                    break
        found.append(touching)
    return found


def _labelled(
    bert: LoadedModel, texts: Sequence[str], places: Callable[[int, Encoding], Iterable[Place]]
) -> Steps[list[list[Entity]]]:
    """The label of every word, read where it is clearest."""
    encoded = bert.encode(texts)
    windower, labels = bert.windower(), bert.checkpoint.labels
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]

    def compute(hidden: Hidden, batch: Batch, _: Sequence[Window]) -> list[torch.Tensor]:
        scores = bert.model.heads["tag"](hidden, batch).float().softmax(-1).cpu()
        return list(batch.layout.split(scores))

    windows = [window for group in grouped for window in group]
    scores = iter((yield EncoderPass(windows, compute, "tag")))
    missing = "O" if "O" in labels else labels[0]
    results = []
    for number, (text, encoding, group) in enumerate(zip(texts, encoded, grouped, strict=True)):
        found = [next(scores)[w.first : w.first + len(w.tokens)] for w in group]
        best = clearest([window.tokens for window in group], len(encoding))
        row = []
        for token, start, end in places(number, encoding):
            if token is None:
                bert.ledger.note("words without tokens")
                row.append(Entity(missing, text[start:end], start, end, 0.0))
                continue
            inside = found[best[token]][token - group[best[token]].tokens.start]
            score, label = inside.max(0)
            row.append(Entity(labels[int(label)], text[start:end], start, end, float(score)))
        results.append(row)
    return results


@EncoderTask
def tag(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[list[Entity]]]:
    """The entities of every text; where labels have no B- and I-, every word and its label."""
    spelled = spells_entities(bert.checkpoint.labels)
    labelled = yield from tag_words.steps(bert, texts)
    rows = zip(texts, labelled, strict=True)
    return [entities(text, row) if spelled else row for text, row in rows]


def entities(text: str, labelled: Sequence[Entity]) -> list[Entity]:
    """Join words into entities by their B-, I-, E- and S- (or L- and U-) tags."""
    found = []
    # Whatever a model calls the outside, it has no type.
    for chunk in chunks([word.label if "-" in word.label else "O" for word in labelled]):
        group = labelled[chunk.start : chunk.stop]
        start, end = group[0].start, group[-1].end
        score = sum(word.score for word in group) / len(group)
        found.append(Entity(chunk.type, text[start:end], start, end, score))
    return found


def spells_entities(labels: Iterable[str]) -> bool:
    """Do labels spell entities, as B-PER does, or name words, as NOUN does?"""
    return any(label[:2] in ("B-", "I-", "S-", "U-") for label in labels)


# ------------------------------------------------------------------ learning


class TaggingTraining(Training):
    """A word's first token learns its tag, in the window in which it has most context."""

    head = "tag"
    each_token = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        self.labels = dataset.labels
        self.index = {name: number for number, name in enumerate(self.labels)}
        if len(self.labels) < 2:
            raise BertsmithError(f"{dataset.path}: training needs at least two different tags")
        seen = (tag for example in dataset.gold() for tag in example.tags)
        self.weights = class_weights(options.class_weights, self.labels, seen)

    def config_changes(self) -> dict[str, Any]:
        """The names of the tags."""
        return label_config(self.labels, None)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item for each window that has words to learn."""
        windower, made = self.windower(bert), []
        encoded = bert.encode([example.text for example in examples])
        for number, (example, encoding) in enumerate(zip(examples, encoded, strict=True)):
            group = windower.single(number, encoding.ids)
            best = clearest([window.tokens for window in group], len(encoding))
            marks: list[list[tuple[int, int]]] = [[] for _ in group]
            firsts = first_tokens(encoding.offsets, example.offsets)
            bert.ledger.note("words without tokens, not trained on", firsts.count(None))
            for token, tag in zip(firsts, example.tags, strict=True):
                if token is not None:
                    window = group[best[token]]
                    row = window.first + token - window.tokens.start
                    marks[best[token]].append((row, self.index[tag]))
            items = [
                TrainingItem((window,), own, sum(self.weights[label] for _, label in own))
                for window, own in zip(group, marks, strict=True)
                if own
            ]
            if items:
                made.append(tuple(items))
        return made

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The rows of words in the batch, their tags and weights, each (words,)."""
        starts = sequence_starts(items)
        marks = [
            (start + row, label)
            for start, item in zip(starts, items, strict=True)
            for row, label in item.target
        ]
        rows, labels = (torch.tensor(one) for one in zip(*marks, strict=True))
        return {"rows": rows, "classes": labels, "weights": torch.tensor(self.weights)[labels]}

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """As many words as tokens; those that are added have no weight, and a row each."""
        words = len(targets["rows"])
        size = max(tokens, -(-words // tokens) * tokens)
        more = {name: zero_padded(rows, size) for name, rows in targets.items()}
        more["rows"][words:] = torch.arange(size - words) % tokens
        return more

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Cross entropy of every word, times the weight of its tag."""
        focal, smoothing = self.options.focal, self.options.smoothing
        logits = outputs[targets["rows"]]
        loss = class_loss(logits, targets["classes"], focal=focal, smoothing=smoothing)
        return (loss * targets["weights"]).sum()


# ------------------------------------------------------------------ the task


class TaggingTask(Task):
    """A tag for every word."""

    name = "tagging"
    head = "tag"
    hub_tag, opens_as = "token-classification", "TokenClassification"
    usage = 'tag("Ada lived in London.")'
    defaults = MappingProxyType({"batch_size": 16})
    options = frozenset({"class_weights", "focal", "smoothing"})
    kinds = (Tagged, Labelled, MultiLabelled)

    def training(self, dataset: Dataset[Any], options: TaskOptions) -> TaggingTraining:
        """Cross entropy over the tags of the file."""
        return TaggingTraining(dataset, options)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        """Tags of the words that the file gives; of plain texts, of the words found in them."""
        texts = [example.text for example in examples]
        if isinstance(examples[0], Tagged):
            rows = tag_given(bert, texts, [example.offsets for example in examples])
        else:
            rows = tag_words(bert, texts)
        spelled = spells_entities(bert.checkpoint.labels)
        predictions = []
        for text, row in zip(texts, rows, strict=True):
            tags = tuple(word.label for word in row)
            sure = min((word.score for word in row), default=1.0)
            output: dict[str, Any] = {"words": [word.text for word in row], "tags": list(tags)}
            if spelled:
                output["entities"] = [asdict(one) for one in entities(text, row)]
            predictions.append(Prediction(tags, sure, output))
        return predictions

    def explain(
        self, bert: LoadedModel, example: Any, prediction: Prediction, steps: int = 32
    ) -> Rows:
        """Every entity (or word) with the words that contributed to its tags.

        They are read in the window in which the first word of the entity has most context.
        """
        explanation = Explanation(bert, [example.text])
        encoding, windows = explanation.encodings[0], explanation.windows
        best = clearest([window.tokens for window in windows], len(encoding))
        rows = []
        for entity, tags in _explained(bert, example, prediction, encoding):
            window = windows[best[tags[0][0]]]
            shift = window.first - window.tokens.start
            outputs = [(token + shift, label) for token, label in tags if token in window.tokens]
            explanation.totals = [[0.0] * len(encoding)]
            explanation.add(window, "tag", outputs, steps)
            rows.append({**entity, "words": explanation.words([window])})
        return rows

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        """Entity F1 where tags spell entities, else accuracy."""
        return ("f1", "precision", "recall", "accuracy") if dataset.scheme else ("accuracy",)

    def label_of(self, example: Any) -> Any:
        """Its tags."""
        return example.tags

    def correctness(self, example: Any, value: Any) -> float:
        """The share of words whose tag is right."""
        same = [one == other for one, other in zip(example.tags, value, strict=True)]
        return sum(same) / max(1, len(same))

    def scorer(
        self,
        dataset: Dataset[Any],
        predictions: Sequence[Prediction],
        bert: LoadedModel | None = None,
    ) -> Scorer:
        """Entity F1, precision and recall where tags spell entities; accuracy of tags."""
        values = [one.value for one in predictions]
        # A file may hold no entity at all: then the labels of the model say whether tags spell any.
        known = () if bert is None else bert.checkpoint.labels
        spelled = dataset.scheme is not None or spells_entities(known)
        return tag_scores([example.tags for example in dataset.examples], values, spelled)

    def per_class(self, dataset: Dataset[Any], values: Sequence[Any]) -> dict[str, Score]:
        """Every type of entity, or every tag."""
        gold = [example.tags for example in dataset.examples]
        if detect([*gold, *values]) is not None:
            return entity_scores(gold, values).types
        return per_label([tag for tags in gold for tag in tags], [tag for v in values for tag in v])

    def display(self, example: Any, prediction: Prediction) -> Display:
        """The sentence with its entities, or with the words whose tag is wrong."""
        gold, value = example.tags or (), prediction.value
        marks = []
        if "entities" in prediction.output:
            right, said = set(chunks(gold)), set(chunks(value))
            for chunk in right | said:
                start, end = example.offsets[chunk.start][0], example.offsets[chunk.stop - 1][1]
                kind = "correct" if chunk in right & said else "missed"
                kind = kind if chunk in right else "wrong"
                marks.append(Mark(start, end, kind, chunk.type))
        else:
            for place, (label, tag) in enumerate(zip(gold, value, strict=True)):
                if label != tag:
                    start, end = example.offsets[place]
                    marks.append(Mark(start, end, "wrong", f"{tag}, not {label}"))
        marks.sort(key=lambda mark: (mark.start, mark.end))
        return Display((Passage(example.text, tuple(marks)),), confidence=prediction.confidence)

    def spoken(self, value: Any) -> str:
        """The tags between spaces."""
        return " ".join(value)


def _explained(
    bert: LoadedModel, example: Any, prediction: Prediction, encoding: Encoding
) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """Every entity (or word), with the first token and the label of each of its words."""
    text, labels = example.text, bert.checkpoint.labels
    places: list[Place] = list(words(text, encoding))
    if isinstance(example, Tagged):
        firsts = first_tokens(encoding.offsets, example.offsets)
        places = [(one, *place) for one, place in zip(firsts, example.offsets, strict=True)]
    tagged = [
        (token, start, end, label)
        for (token, start, end), label in zip(places, prediction.value, strict=True)
        if token is not None
    ]
    listed = prediction.output.get("entities")
    if listed is None:
        listed = [{"label": label, "start": start, "end": end} for _, start, end, label in tagged]
    for one in listed:
        start, end = one["start"], one["end"]
        tags = [(token, labels.index(tag)) for token, s, _, tag in tagged if start <= s < end]
        if tags:
            yield {"label": one["label"], "text": text[start:end], "start": start, "end": end}, tags


TAGGING = TaggingTask()
