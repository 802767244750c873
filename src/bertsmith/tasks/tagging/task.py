"""Tagging: a tag for every word, and entities from BIO tags."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated as Described
from typing import Any, ClassVar, overload

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.explain import Explanation
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.spans import blank, words
from bertsmith.infer.windows import clearest
from bertsmith.ledger import Ledger
from bertsmith.metrics.entities import entity_scores, span_scores, tag_scores, type_scores
from bertsmith.metrics.labels import Score, per_label
from bertsmith.metrics.schemes import chunks, detect
from bertsmith.pages.results import marked_text
from bertsmith.tasks.classifying import softmax
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.tagging.examples import Annotated, CharacterSpan, Tagged, tags_of_spans
from bertsmith.tasks.tagging.reading import READING
from bertsmith.tasks.task import Display, DisplayText, Mark, Prediction, Rows, Scorer, Task, Values
from bertsmith.tasks.training import (
    Sample,
    Targets,
    TaskOptions,
    Training,
    TrainingItem,
    class_loss,
    class_weights,
    distil_loss,
    sequence_starts,
    zero_padded,
)
from bertsmith.tasks.use import Askable, Call, RequestBody, Several, TaskResult, Texts, form, listed
from bertsmith.tokenizer import Encoding


@dataclass(frozen=True)
class Entity(TaskResult):
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
    """The label of every word by its characters; without tokens O (or the first), with score 0."""

    def places(number: int, encoding: Encoding) -> list[Place]:
        firsts = first_tokens(texts[number], encoding, given[number])
        return [(token, *place) for token, place in zip(firsts, given[number], strict=True)]

    return (yield from _labelled(bert, texts, places))


def first_tokens(
    text: str, encoding: Encoding, given: Sequence[tuple[int, int]]
) -> list[int | None]:
    """For each word (its characters) the first token that begins in it, else that touches it.

    The space before a word is part of its first token, or a token before it, in some vocabularies.
    """
    firsts: list[int | None] = []
    offsets, token = encoding.offsets, 0
    for start, end in given:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        touching = None
        for place in range(token, len(offsets)):
            left, right = offsets[place]
            while left < min(start, right) and blank(text[left]):
                left += 1
            if left >= end:
                break
            if right > max(left, start):
                touching = place if touching is None or left >= start else touching
                if left >= start:
                    break
        while touching and _is_space(text, encoding, touching - 1):
            touching -= 1
        firsts.append(touching)
    return firsts


def _is_space(text: str, encoding: Encoding, token: int) -> bool:
    """Return whether a token is only the space before the word of the next token."""
    bare = all(map(blank, text[slice(*encoding.offsets[token])]))
    return bare and encoding.words[token] == encoding.words[token + 1] is not None


def _labelled(
    bert: LoadedModel, texts: Sequence[str], places: Callable[[int, Encoding], Iterable[Place]]
) -> Steps[list[list[Entity]]]:
    encoded = bert.encode(texts)
    windower, labels = bert.windower(), bert.checkpoint.labels
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]
    windows = [window for group in grouped for window in group]
    scores = iter((yield bert.head_pass("tag", windows, softmax, tokens=True)))
    missing = "O" if "O" in labels else labels[0]
    results = []
    for number, (text, encoding, group) in enumerate(zip(texts, encoded, grouped, strict=True)):
        scores_of_windows = [next(scores)[w.first : w.first + len(w.tokens)] for w in group]
        best = clearest([window.tokens for window in group], len(encoding))
        row = []
        for token, start, end in places(number, encoding):
            label, score = missing, 0.0
            if token is not None:
                at = best[token]
                highest = scores_of_windows[at][token - group[at].tokens.start].max(0)
                label, score = labels[int(highest.indices)], float(highest.values)
            bert.ledger.note("words without tokens", int(token is None))
            row.append(Entity(label, text[start:end], start, end, score))
        results.append(row)
    return results


@EncoderTask
def tag(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[list[Entity]]]:
    """The entities of every text; where labels have no B- and I-, every word and its label."""
    labelled = yield from tag_words.steps(bert, texts)
    return list(map(entities, texts, labelled)) if names_entities(bert) else labelled


def entities(text: str, labelled: Sequence[Entity]) -> list[Entity]:
    """Join words into entities by their B-, I-, E- and S- (or L- and U-) tags."""
    results = []
    # A label without a type is outside of entities, whatever its name is.
    for chunk in chunks([word.label if "-" in word.label else "O" for word in labelled]):
        group = labelled[chunk.start : chunk.stop]
        start, end = group[0].start, group[-1].end
        score = sum(word.score for word in group) / len(group)
        results.append(Entity(chunk.type, text[start:end], start, end, score))
    return results


def names_entities(bert: LoadedModel) -> bool:
    """Return whether labels are tags of entities, such as B-PER, not classes of words (NOUN)."""
    return any(label[:2] in ("B-", "I-", "S-", "U-") for label in bert.checkpoint.labels)


def in_words(examples: Iterable[Any], encoded: Sequence[Encoding], ledger: Ledger) -> list[Tagged]:
    """Texts with annotated spans as words with tags: the words that `tag` finds in them."""
    tagged = []
    for one, encoding in zip(examples, encoded, strict=True):
        if isinstance(one, Annotated):
            places = tuple((start, end) for _, start, end in words(one.text, encoding))
            tags = None if one.spans is None else tags_of_spans(places, one.spans, ledger)
            spelled = tuple(one.text[start:end] for start, end in places)
            one = Tagged(one.text, spelled, places, tags, one.where)
        tagged.append(one)
    return tagged


class TaggingTraining(Training):
    """A word's first token learns its tag, in the window in which it has most context."""

    head = "tag"
    each_token = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        if len(self.labels) < 2:
            raise BertsmithError(f"{dataset.path}: training needs at least two different tags")
        seen = (tag for example in dataset.gold() for tag in example.label_names)
        self.weights = class_weights(options.class_weights, self.labels, seen)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        windower, samples = bert.windower(), []
        encoded = bert.encode([example.text for example in examples])
        tagged = in_words(examples, encoded, bert.ledger)
        seen = (tag for example in tagged for tag in example.tags or ())
        self.weights = class_weights(self.options.class_weights, self.labels, seen)
        for number, (example, encoding) in enumerate(zip(tagged, encoded, strict=True)):
            group = windower.single(number, encoding.ids)
            best = clearest([window.tokens for window in group], len(encoding))
            marks: list[list[tuple[int, int]]] = [[] for _ in group]
            firsts = first_tokens(example.text, encoding, example.offsets)
            bert.ledger.note("words without tokens, not trained on", firsts.count(None))
            for token, tag in zip(firsts, example.tags or (), strict=True):
                if token is not None:
                    window = group[best[token]]
                    marks[best[token]].append((window.row(token), self.index[tag]))
            samples.append(
                tuple(
                    TrainingItem((window,), own, sum(self.weights[label] for _, label in own))
                    for window, own in zip(group, marks, strict=True)
                    if own
                )
            )
        return [sample for sample in samples if sample]

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The rows of words in the batch, their tags and weights, each (words,)."""
        pairs = zip(sequence_starts(items), items, strict=True)
        marks = [(start + row, label) for start, item in pairs for row, label in item.target]
        rows, labels = (torch.tensor(one) for one in zip(*marks, strict=True))
        return {"rows": rows, "labels": labels, "weights": torch.tensor(self.weights)[labels]}

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """As many words as tokens; those that are added have no weight, and a row each."""
        words = len(targets["rows"])
        size = max(tokens, -(-words // tokens) * tokens)
        padded = {name: zero_padded(rows, size) for name, rows in targets.items()}
        padded["rows"][words:] = torch.arange(size - words) % tokens
        return padded

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        focal, smoothing = self.options.focal, self.options.smoothing
        logits = outputs[targets["rows"]]
        loss = class_loss(logits, targets["labels"], focal=focal, smoothing=smoothing)
        return (loss * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        rows = targets["rows"]
        of_words = {**targets, "teacher": targets["teacher"][rows]}
        return distil_loss(outputs[rows], of_words, temperature)


EXAMPLE = "Ada Lovelace was born in London and worked with Charles Babbage."


class TagRequest(RequestBody):
    """Texts; `words` asks for the label of every word instead of entities."""

    inputs: Described[Texts, form("Text", EXAMPLE)]
    words: bool = False


class TagMethods(Askable):
    """`tag`."""

    @overload
    def tag(self, texts: str, *, words: bool = False) -> Entities: ...
    @overload
    def tag(self, texts: Several, *, words: bool = False) -> list[Entities]: ...
    def tag(self, texts: Any, *, words: bool = False) -> Any:
        """Find the entities in a text or in each of several texts; with `words`, tag every word."""
        return self.ask_each(TASK, texts, Entities, words=words)


class EntityTask(Task):
    """A task of the tagging head whose predictions are spans of characters."""

    head, heads = "tag", ("tag",)
    hub_tag, opens_as = "token-classification", "TokenClassification"
    lists = ("inputs",)

    def correctness(self, example: Any, value: Any) -> float:
        """The fraction of labelled and predicted spans that are in both."""
        labelled, predicted = spans_of(example), spans_of(example, value)
        either = labelled | predicted
        return len(labelled & predicted) / len(either) if either else 1.0

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        """F1, precision and recall of spans with exactly these characters and this label."""
        return span_scores(*_both_spans(dataset, values))

    def per_class(self, dataset: Dataset[Any], values: Values) -> dict[str, Score]:
        return type_scores(*_both_spans(dataset, values))[1]

    def display(self, example: Any, prediction: Prediction) -> Display:
        labelled, predicted = spans_of(example), spans_of(example, prediction.value)
        marks = []
        for span in sorted(labelled | predicted):
            kind = "missed" if span not in predicted else "correct" if span in labelled else "wrong"
            marks.append(Mark(span[0], span[1], kind, span[2]))
        return _text_with(marks, example, prediction)

    def spoken(self, value: Any) -> str:
        """Tags as they are; of spans, first and last character and label."""
        parts = value or ()
        return " ".join(p if isinstance(p, str) else f"{p[0]}-{p[1]} {p[2]}" for p in parts)


class TaggingTask(EntityTask):
    """A tag for every word."""

    reading = READING
    usage = 'tag("Ada lived in London.")'
    pipeline = 'aggregation_strategy="first"'  # a word has the label of its first token
    defaults: ClassVar = {"batch_size": 16}
    options = frozenset({"class_weights", "focal", "smoothing"})
    kinds = (Tagged, Annotated, TextExample)
    carriers = (Tagged, Annotated)
    learner = TaggingTraining
    names_labels, least_steps = True, 200

    verb = ability = "tag"
    title, question = "Entities", "Entities, or the label of every word."
    labelled = True
    Request, Answer, Methods = TagRequest, list[list[Entity]], TagMethods

    def call(self, bert: LoadedModel, request: TagRequest) -> Call:
        texts = listed(request.inputs)
        return Call(tag_words if request.words else tag, (texts,), texts)

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        name = "spans" if isinstance(example, Annotated) else "tags"
        return replace(example, **{name: tuple(prediction.value)})

    def labelled_by(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Any]:
        if isinstance(examples[0], self.carriers):
            return super().labelled_by(bert, examples)
        examples_of_words = []
        for example, row in zip(examples, tag_words(bert, [e.text for e in examples]), strict=True):
            offsets = tuple((word.start, word.end) for word in row)
            words, tags = tuple(word.text for word in row), tuple(word.label for word in row)
            examples_of_words.append(Tagged(example.text, words, offsets, tags, example.where))
        return examples_of_words

    def scheme(self, labels: Sequence[str]) -> str | None:
        return "bio" if any(name[:2] in ("B-", "I-") for name in labels) else None

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        texts = [example.text for example in examples]
        if isinstance(examples[0], Tagged):
            rows = tag_given(bert, texts, [example.offsets for example in examples])
        else:
            rows = tag_words(bert, texts)
        predictions, entity_tags = [], names_entities(bert)
        for example, row in zip(examples, rows, strict=True):
            tags = tuple(word.label for word in row)
            confidence = min((word.score for word in row), default=1.0)
            output: dict[str, Any] = {"words": [word.text for word in row], "tags": list(tags)}
            joined = entities(example.text, row)
            if entity_tags:
                output["entities"] = [asdict(one) for one in joined]
            value: Any = tags
            if isinstance(example, Annotated):
                value = tuple((one.start, one.end, one.label) for one in joined)
            predictions.append(Prediction(value, confidence, output))
        return predictions

    def explain(self, bert: LoadedModel, example: Any, prediction: Prediction) -> Rows:
        """Every entity (or word) with the words that contributed, in its clearest window."""
        explanation = Explanation(bert, [example.text])
        encoding, windows = explanation.encodings[0], explanation.windows
        best = clearest([window.tokens for window in windows], len(encoding))
        rows = []
        for entity, tags in _explained(bert, example, prediction, encoding):
            window = windows[best[tags[0][0]]]
            inside = (one for one in tags if one[0] in window.tokens)
            outputs = [(window.row(token), label) for token, label in inside]
            explanation.totals = [[0.0] * len(encoding)]
            explanation.add(window, "tag", outputs)
            rows.append({**entity, "words": explanation.words([window])})
        return rows

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        if isinstance(dataset.examples[0], Annotated):
            return ("f1", "precision", "recall")
        return ("f1", "precision", "recall", "accuracy") if dataset.scheme else ("accuracy",)

    def label_of(self, example: Any) -> Any:
        return example.spans if isinstance(example, Annotated) else example.tags

    def correctness(self, example: Any, value: Any) -> float:
        """The fraction of words with the correct tag; of annotated texts, that of spans."""
        if isinstance(example, Annotated):
            return super().correctness(example, value)
        same = [label == tag for label, tag in zip(example.tags, value, strict=True)]
        return sum(same) / max(1, len(same))

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        if isinstance(dataset.examples[0], Annotated):
            return super().score(dataset, values, bert)
        # A file may have no entities: then the model's labels show whether they are entity tags.
        entity_tags = dataset.scheme is not None or (bert is not None and names_entities(bert))
        return tag_scores([example.tags for example in dataset.examples], values, entity_tags)

    def per_class(self, dataset: Dataset[Any], values: Values) -> dict[str, Score]:
        if isinstance(dataset.examples[0], Annotated):
            return super().per_class(dataset, values)
        gold = [example.tags for example in dataset.examples]
        if detect([*gold, *values]) is not None:
            return entity_scores(gold, values).types
        return per_label([tag for tags in gold for tag in tags], [tag for v in values for tag in v])

    def notes(self, bert: LoadedModel, dataset: Dataset[Any]) -> list[str]:
        gold = [one for one in dataset.examples if isinstance(one, Annotated)]
        ledger = Ledger()
        in_words(gold, bert.encode([one.text for one in gold]), ledger)
        lost, total = sum(ledger.counts.values()), sum(len(one.spans or ()) for one in gold)
        missed = [f"{lost:,} of {total:,} entities are not words of this model: missed"]
        return [*super().notes(bert, dataset), *missed * (lost > 0)]

    def display(self, example: Any, prediction: Prediction) -> Display:
        """The sentence with its entities, or with the words whose tag is wrong."""
        if "entities" in prediction.output:
            return super().display(example, prediction)
        tags = zip(example.offsets, example.tags or (), prediction.value, strict=True)
        marks = [
            Mark(start, end, "wrong", f"{tag}, not {label}")
            for (start, end), label, tag in tags
            if label != tag
        ]
        return _text_with(marks, example, prediction)


def _text_with(marks: Sequence[Mark], example: Any, prediction: Prediction) -> Display:
    return Display((DisplayText(example.text, tuple(marks)),), confidence=prediction.confidence)


def spans_of(example: Any, value: Any = None) -> set[CharacterSpan]:
    """The spans of an example: its labels, or those of a predicted value."""
    if not isinstance(example, Tagged):
        spans = example.spans or () if value is None else value
        return {(start, end, label) for start, end, label in spans}
    offsets = example.offsets
    entities = chunks(example.tags or () if value is None else value)
    return {(offsets[one.start][0], offsets[one.stop - 1][1], one.type) for one in entities}


def _both_spans(dataset: Dataset[Any], values: Values) -> tuple[list[Any], list[Any]]:
    """The spans of every example, labelled and predicted."""
    return list(map(spans_of, dataset.examples)), list(map(spans_of, dataset.examples, values))


def _explained(
    bert: LoadedModel, example: Any, prediction: Prediction, encoding: Encoding
) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """Every entity (or word), with the first token and the label of each of its words."""
    text, labels = example.text, bert.checkpoint.labels
    places: list[Place] = list(words(text, encoding))
    if isinstance(example, Tagged):
        firsts = first_tokens(example.text, encoding, example.offsets)
        places = [(one, *place) for one, place in zip(firsts, example.offsets, strict=True)]
    predicted = prediction.value
    if isinstance(example, Annotated):  # whose prediction is spans
        predicted = tags_of_spans([place[1:] for place in places], predicted, Ledger())
    tagged = [
        (token, start, end, label)
        for (token, start, end), label in zip(places, predicted, strict=True)
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


TASK = TaggingTask()
