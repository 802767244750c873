"""Spans: labelled parts of a text that may overlap or lie in one another.

Spans of words are scored by their first and last word, for every type. A token has 2 × DEPTH +
2 × types outputs of the tagging head: a query and a key, and for every type how likely a span of it
begins or ends here. The score of a span is the product of the query of its first word and the key
of its last word, both rotated by their positions, plus the begin of the first and the end of the
last word (Su et al. 2022, efficient GlobalPointer). Scores above 0 are predicted.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.spans import words
from bertsmith.infer.windows import Window
from bertsmith.ledger import Ledger
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.spans.reading import READING, Spanned
from bertsmith.tasks.tagging.task import Entities, Entity, EntityTask
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.training import (
    ABSENT,
    Sample,
    Targets,
    TaskOptions,
    Training,
    TrainingItem,
    item_weights,
    label_config,
    sequence_starts,
    zero_padded,
)
from bertsmith.tasks.use import Askable, Call, RequestBody, Several, Texts, form, listed
from bertsmith.tokenizer import Encoding

DEPTH = 64  # numbers of a query or a key
MOST = 62  # words of a span: widths are bits of a whole number
LEAST = 8  # words of a span that are tried, however short those of the training file are

Place = tuple[int, int, int]  # the first word of a span, the last or its width, and the type


class Word(NamedTuple):
    """A word: its first and last token, and where it begins and ends in the text."""

    first: int
    last: int
    start: int
    end: int


def words_of(text: str, encoding: Encoding) -> list[Word]:
    """The words of a text, with the tokens that spell them."""
    spelled = []
    for first, start, end in words(text, encoding):
        last = first
        while last + 1 < len(encoding) and encoding.offsets[last + 1][0] < end:
            last += 1
        spelled.append(Word(first, last, start, end))
    return spelled


WordRows = tuple[int, int, int]  # a word's number, and the rows of its first and last token


def words_inside(window: Window, spelled: Sequence[Word]) -> list[WordRows]:
    """The words that are complete in a window."""
    return [
        (number, window.row(word.first), window.row(word.last))
        for number, word in enumerate(spelled)
        if word.first in window.tokens and word.last in window.tokens
    ]


def span_scores(
    outputs: Tensor, firsts: Tensor, lasts: Tensor, owners: Tensor, types: int, width: int
) -> Tensor:
    """Scores (words, width, types) of the spans of 1 to `width` words that begin at each word.

    `outputs` has a row for each token; the words' rows are `firsts` and `lasts`, and `owners` says
    which sequence a word is in. What would end in another sequence has the score ABSENT.
    """
    count = len(firsts)
    begins, ends = outputs[firsts], outputs[lasts]
    places = torch.arange(count, device=outputs.device)
    query, key = (_turned(x, places) for x in (begins[:, :DEPTH], ends[:, DEPTH : 2 * DEPTH]))
    ahead = places[:, None] + torch.arange(width, device=outputs.device)
    reach = ahead.clamp(max=count - 1)
    alike = torch.einsum("nd,nwd->nw", query, key[reach]) / math.sqrt(DEPTH)
    first, last = begins[:, 2 * DEPTH : 2 * DEPTH + types], ends[:, 2 * DEPTH + types :]
    scores = alike[:, :, None] + first[:, None, :] + last[reach]
    there = (ahead < count) & (owners[reach] == owners[:, None])
    return torch.where(there[:, :, None], scores, ABSENT)


def _turned(rows: Tensor, places: Tensor) -> Tensor:
    """Vectors turned by their places, so that products depend on the distance (rotary)."""
    half = DEPTH // 2
    rates = 10_000 ** -(torch.arange(half, device=rows.device) / half)
    angles = places[:, None] * rates
    cos, sin = angles.cos(), angles.sin()
    left, right = rows[:, :half], rows[:, half:]
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class SpansTraining(Training):
    """Every span of every type is to have a score above 0, all others below (Su et al. 2022)."""

    head = "tag"
    each_token = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        if not self.labels:
            raise BertsmithError(f"{dataset.path}: contains no spans to learn")
        # Words between spaces: tokenizers find at least as many, so there is room for more.
        marked = (one.text[start:end] for one in dataset.gold() for start, end, _ in one.spans)
        longest = max(len(text.split()) for text in marked)
        self.width = min(MOST, max(LEAST, 2 * longest))

    def config_changes(self) -> dict[str, Any]:
        names = [f"{what} {n}" for what in ("query", "key") for n in range(DEPTH)]
        names += [f"{what} {name}" for what in ("begin", "end") for name in self.labels]
        changes = label_config(names, None)
        return {**changes, "span_types": list(self.labels), "span_width": self.width}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item for each window: its words, and the spans that are whole in it."""
        windower, samples = bert.windower(), list[Sample]()
        encoded = bert.encode([example.text for example in examples])
        for number, (example, encoding) in enumerate(zip(examples, encoded, strict=True)):
            spelled = words_of(example.text, encoding)
            gold = self.in_words(spelled, example.spans, bert.ledger)
            windows = windower.single(number, encoding.ids)
            pairs = ((window, words_inside(window, spelled)) for window in windows)
            targets = ((window, (own, self.marks(own, gold))) for window, own in pairs if own)
            samples.append(tuple(TrainingItem((w,), target) for w, target in targets))
        return [sample for sample in samples if sample]

    def in_words(
        self, spelled: Sequence[Word], spans: Sequence[tuple[int, int, str]], ledger: Ledger
    ) -> list[tuple[int, int, int]]:
        """Spans as (first word, last word, type); those that words cannot express are noted."""
        spans_in_words = []
        for start, end, label in spans:
            touched = [n for n, word in enumerate(spelled) if word.end > start and word.start < end]
            if not touched:
                ledger.note("entities in which the tokenizer sees no word, not trained on")
            elif len(touched) > self.width:
                ledger.note(f"entities of more than {self.width} words, not trained on")
            else:
                exact = spelled[touched[0]].start == start and spelled[touched[-1]].end == end
                ledger.note("entities that end inside a word, trained on as whole words", not exact)
                spans_in_words.append((touched[0], touched[-1], self.index[label]))
        return spans_in_words

    def marks(self, own: Sequence[WordRows], gold: Sequence[Place]) -> list[Place]:
        """The spans in a window: the row of the first word, the width from 0, the type."""
        rows = {number: row for row, (number, _, _) in enumerate(own)}
        inside = (one for one in gold if one[0] in rows and one[1] in rows)
        return [(rows[first], last - first, kind) for first, last, kind in inside]

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """Rows and owners of words (M,), their spans as bits (M, types), windows' weights (N,)."""
        firsts, lasts, owners = (list[int]() for _ in range(3))
        bits = []
        for number, (start, item) in enumerate(zip(sequence_starts(items), items, strict=True)):
            own, marks = item.target
            firsts += [start + first for _, first, _ in own]
            lasts += [start + last for _, _, last in own]
            owners += [number] * len(own)
            mask = [[0] * len(self.labels) for _ in own]
            for row, width, kind in marks:
                mask[row][kind] |= 1 << width
            bits += mask
        columns: dict[str, Any] = {"firsts": firsts, "lasts": lasts, "owners": owners}
        columns["spans"] = bits
        targets = {name: torch.tensor(rows) for name, rows in columns.items()}
        return {**targets, "weights": item_weights(items)}

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """As many words as tokens; those that are added belong to the last filler."""
        words = len(targets["firsts"])
        size = dict.fromkeys(targets, tokens) | {"weights": sequences}
        padded = {name: zero_padded(rows, size[name]) for name, rows in targets.items()}
        padded["owners"][words:] = sequences - 1
        return padded

    def scores(self, outputs: Tensor, targets: Targets) -> Tensor:
        firsts, lasts, owners = (targets[name] for name in ("firsts", "lasts", "owners"))
        return span_scores(outputs, firsts, lasts, owners, len(self.labels), self.width)

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """For every window and type: log(1 + Σ e^-score of spans) + log(1 + Σ e^score of rest)."""
        scores = self.scores(outputs, targets)
        widths = torch.arange(self.width, device=scores.device)[:, None]
        gold = (targets["spans"][:, None, :] >> widths) & 1 > 0
        right = _over(torch.where(gold, -scores, ABSENT), targets)
        wrong = _over(torch.where(gold, ABSENT, scores), targets)
        return ((right + wrong).sum(-1) * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """Binary cross entropy with the teacher's scores, summed over the spans of a window."""
        student, teacher = (self.scores(x, targets) for x in (outputs, targets["teacher"]))
        goal = (teacher / temperature).sigmoid()
        warm = student / temperature
        loss = F.binary_cross_entropy_with_logits(warm, goal, reduction="none").sum((1, 2))
        return (loss * targets["weights"][targets["owners"]]).sum() * temperature**2


def _over(scores: Tensor, targets: Targets) -> Tensor:
    """log(1 + Σ e^score) over the spans of every window (N, types)."""
    owners = targets["owners"][:, None].expand(-1, scores.shape[2])
    start = scores.new_zeros(len(targets["weights"]), scores.shape[2])
    most = start.scatter_reduce(0, owners, scores.detach().amax(1), "amax")  # at least 0
    rest = (scores - most.gather(0, owners)[:, None, :]).exp().sum(1)
    return most + (start.scatter_add(0, owners, rest) + (-most).exp()).log()


@EncoderTask
def find_spans(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[list[Entity]]]:
    """The labelled spans of every text, from the first to the last."""
    settings = bert.checkpoint.settings
    types, width = list(settings["span_types"]), int(settings["span_width"])
    encoded, windower = bert.encode(texts), bert.windower()
    spelled = list(map(words_of, texts, encoded))
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]
    windows = [window for group in grouped for window in group]
    results: list[list[Entity]] = [[] for _ in texts]
    outputs = yield bert.head_pass("tag", windows, tokens=True)
    for window, rows in zip(windows, outputs, strict=True):
        number = window.number
        text, own = texts[number], spelled[number]
        others = [other.tokens for other in grouped[number]]
        for first, last, kind, score in _above(rows, window, own, len(types), width):
            tokens = range(own[first].first, own[last].last + 1)
            if best_window(others, tokens, len(encoded[number])) == window.tokens:
                start, end = own[first].start, own[last].end
                results[number].append(Entity(types[kind], text[start:end], start, end, score))
    for row in results:
        row.sort(key=lambda one: (one.start, -one.end, one.label))
    return results


def _above(
    outputs: Tensor, window: Window, spelled: Sequence[Word], types: int, width: int
) -> list[tuple[int, int, int, float]]:
    own = words_inside(window, spelled)
    if not own:
        return []
    _, firsts, lasts = (torch.tensor(column) for column in zip(*own, strict=True))
    scores = span_scores(outputs, firsts, lasts, torch.zeros_like(firsts), types, width)
    places = (scores > 0).nonzero().tolist()
    chances = scores[scores > 0].sigmoid().tolist()
    return [
        (own[row][0], own[row][0] + more, kind, chance)
        for (row, more, kind), chance in zip(places, chances, strict=True)
    ]


def best_window(windows: Sequence[range], tokens: range, length: int) -> range:
    """Of the windows that hold a span whole, the one in which it is furthest from a cut."""

    def space(window: range) -> float:
        left = tokens.start - window.start if window.start else math.inf
        return min(left, window.stop - tokens.stop if window.stop < length else math.inf)

    complete = [one for one in windows if one.start <= tokens.start and tokens.stop <= one.stop]
    return max(complete, key=space)


EXAMPLE = "She studied at the University of London and left the city of Paris."


class SpansRequest(RequestBody):
    """Texts in which spans are looked for."""

    inputs: Annotated[Texts, form("Text", EXAMPLE)]


class SpansMethods(Askable):
    """`find_spans`."""

    @overload
    def find_spans(self, texts: str) -> Entities: ...
    @overload
    def find_spans(self, texts: Several) -> list[Entities]: ...
    def find_spans(self, texts: Any) -> Any:
        """Find the labelled spans of a text, or of each of several; they may overlap."""
        return self.ask_each(TASK, texts, Entities)


class SpansTask(EntityTask):
    """Labelled parts of a text that may overlap."""

    reading = READING
    usage = 'find_spans("Ada lived in the city of London.")'
    defaults: ClassVar = {"batch_size": 16, "epochs": 5}
    stored = ("span_types", "span_width")
    kinds, carriers = (Spanned, TextExample), (Spanned,)
    learner, label_at, measures = SpansTraining, "spans", ("f1", "precision", "recall")

    verb, ability = "find-spans", "find spans"
    title, question = "Spans", "Labelled spans, which may lie in one another."
    Request, Answer, Methods = SpansRequest, list[list[Entity]], SpansMethods

    def call(self, bert: LoadedModel, request: SpansRequest) -> Call:
        texts = listed(request.inputs)
        return Call(find_spans, (texts,), texts)

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        return Spanned(example.text, tuple(sorted(prediction.value)), example.where)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        predictions = []
        for entities in find_spans(bert, [example.text for example in examples]):
            value = tuple((one.start, one.end, one.label) for one in entities)
            confidence = min((one.score for one in entities), default=1.0)
            output = {"entities": [asdict(one) for one in entities]}
            predictions.append(Prediction(value, confidence, output))
        return predictions


TASK = SpansTask()
