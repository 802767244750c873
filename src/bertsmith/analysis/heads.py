"""Statistics of attention heads, and the dependencies that they predict."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertsmith.analysis.maps import Floats, by_layer, head_counts
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import packed
from bertsmith.infer.spans import wordless
from bertsmith.model import Trace
from bertsmith.tasks.tagging.conll import Treebank

# The metrics of a head, means over all tokens that are not special.
METRICS = {
    "entropy": "entropy of the attention weights, in nats",
    "distance": "mean distance to the attended tokens",
    "first": "attention to the first token ([CLS])",
    "separator": "attention to [SEP]",
    "punctuation": "attention to punctuation",
    "itself": "attention to the token itself",
    "previous": "attention to the previous token",
    "next": "attention to the next token",
    "same": "attention to other occurrences of the same token",
}
MOST = 2**25  # attention weights in memory at once
DIRECTIONS = ("dependent looks at head", "head looks at dependent")
OFFSETS = [offset for offset in range(-8, 9) if offset]


@dataclass(frozen=True)
class HeadInput:
    """The tokens of one input; for a parsed sentence, with the word of each."""

    ids: Sequence[int]
    segments: Sequence[int]
    words: Sequence[int] = ()  # -1: of no word
    gold: Sequence[tuple[int, int, str]] = ()  # words with a head: place, head and relation


@dataclass(frozen=True)
class Relation:
    """The accuracy of the best head for one dependency relation."""

    count: int
    layer: int
    head: int
    direction: str  # one of DIRECTIONS
    accuracy: float
    offset: int  # the best fixed distance to the head
    baseline: float  # how often the head stands there
    table: Floats = field(repr=False)  # accuracy of every head: (2 directions, layers, heads)


@dataclass(frozen=True)
class HeadNumbers:
    """All metrics of every head: (layers, heads) each; NaN for pruned heads."""

    metrics: dict[str, Floats]
    inputs: int
    tokens: int
    relations: dict[str, Relation]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one row for each head."""
        layers, heads = self.metrics["entropy"].shape
        for layer in range(layers):
            for head in range(heads):
                numbers = {name: float(table[layer, head]) for name, table in self.metrics.items()}
                if not np.isnan(numbers["entropy"]):
                    yield {"layer": layer, "head": head, **numbers}

    def relation_rows(self) -> list[tuple[str, ...]]:
        """Return a row for each relation: its count, best head, accuracy and baseline."""
        return [
            (
                name,
                f"{one.count:,}",
                f"{one.layer}.{one.head}",
                f"{one.accuracy:.1%}",
                f"{one.offset:+d}",
                f"{one.baseline:.1%}",
                one.direction,
            )
            for name, one in self.relations.items()
        ]

    def strongest(self, metric: str, most: int = 3) -> list[tuple[int, int, float]]:
        """Return the heads with the highest values of a metric: layer, head, value."""
        table = self.metrics[metric]
        order = np.argsort(-table, axis=None, kind="stable")[: min(most, np.isfinite(table).sum())]
        places = [np.unravel_index(int(place), table.shape) for place in order]
        return [(int(layer), int(head), float(table[layer, head])) for layer, head in places]


def measure(bert: LoadedModel, inputs: Sequence[HeadInput]) -> HeadNumbers:
    """Compute the metrics of every head over all inputs."""
    if not inputs:
        raise BertsmithError("no texts to measure the heads on")
    heads = head_counts(bert)
    sums = torch.zeros(sum(heads), len(METRICS), dtype=torch.float64)
    counts = torch.zeros(len(METRICS), dtype=torch.float64)
    finder = DependencyScores(heads, inputs)
    for one, maps in seen(bert, inputs):
        targets, weight = _targets(bert, one)
        counts += weight
        sums += _totals(maps, targets)
        if one.gold:
            finder.see(maps, one)
    means = sums / counts.clamp(min=1)
    metrics = {name: by_layer(means[:, number], heads) for number, name in enumerate(METRICS)}
    tokens = sum(len(one.ids) for one in inputs)
    return HeadNumbers(metrics, len(inputs), tokens, finder.relations())


def texts(bert: LoadedModel, lines: Sequence[str]) -> list[HeadInput]:
    """Encode texts; long ones in windows."""
    return [HeadInput(window.ids, window.segments) for window in bert.windows(lines)]


def parsed(bert: LoadedModel, sentences: Iterable[Treebank]) -> list[HeadInput]:
    """Encode sentences with dependencies; those that are too long are left out and counted."""
    inputs = []
    for one in sentences:
        encoding = bert.tokenizer.encode(one.text)
        if len(encoding) > bert.max_length:
            bert.ledger.note("sentences longer than the model reads, left out")
            continue
        words = [-1] * len(encoding)
        for place, (start, end) in enumerate(encoding.offsets):
            if encoding.sources[place] is not None:
                inside = (
                    n for n, span in enumerate(one.offsets) if start < span[1] and span[0] < end
                )
                words[place] = next(inside, -1)
        arcs = enumerate(zip(one.heads, one.relations, strict=True))
        there = set(words) - {-1}
        gold = [(n, head, name) for n, (head, name) in arcs if {n, head} <= there]
        inputs.append(HeadInput(encoding.ids, encoding.segments, words, gold))
    return inputs


def seen(bert: LoadedModel, inputs: Sequence[HeadInput]) -> Iterator[tuple[HeadInput, Tensor]]:
    """Yield every input with the attention maps of all heads: (L * H, n, n)."""
    config = bert.checkpoint.config
    layers = range(len(config.plan))
    # Maps grow with the square of a length: batches are as large as their maps allow.
    cells = [len(one.ids) ** 2 * len(layers) * config.attention_heads for one in inputs]
    for chosen in packed(cells, MOST):
        group = [inputs[number] for number in chosen]
        batch = Batch.of([one.ids for one in group], [one.segments for one in group])
        trace = Trace(heads=dict.fromkeys(layers))
        with torch.inference_mode():
            bert.model.encoder(batch.to(bert.device), trace)
            for place, one in enumerate(group):
                yield one, torch.cat([trace.maps[layer][place] for layer in layers])


def _totals(weights: Tensor, targets: Tensor) -> Tensor:
    """The sum of every metric over the rows of maps: (maps, n, n) → (maps, metrics)."""
    targets = targets.to(weights.device)
    ordinary = targets[0, :, :1]  # rows that count
    entropy = -(torch.xlogy(weights, weights) * ordinary).sum((1, 2))
    others = weights.flatten(1) @ targets[1:].flatten(1).T
    return torch.cat([entropy[:, None], others], dim=1).double().cpu()


def _targets(bert: LoadedModel, one: HeadInput) -> tuple[Tensor, Tensor]:
    """How much a weight from i to j counts for each metric (metrics, n, n), and how many rows."""
    tokenizer = bert.tokenizer
    ids = torch.tensor(one.ids)
    plain = torch.tensor([id_ not in tokenizer.special_ids for id_ in one.ids])
    marks = torch.tensor([id_ in _punctuation(tokenizer) for id_ in one.ids]) & plain
    place = torch.arange(len(ids))
    steps = place[None, :] - place[:, None]
    both = plain[:, None] & plain
    everywhere = torch.ones_like(both)
    same = (ids[:, None] == ids) & (steps != 0) & both
    planes = [
        everywhere,
        steps.abs(),
        everywhere & (place == 0),
        everywhere & (ids == tokenizer.sep_id),
        everywhere & marks,
        steps == 0,
        (steps == -1) & both,
        (steps == 1) & both,
        same,
    ]
    targets = torch.stack([plane.float() for plane in planes]) * plain[None, :, None]
    total = plain.sum()
    # A token at an edge has no neighbour there, and most tokens have no second self.
    neighbours = (both & (steps == 1)).sum()
    rows = [total] * 6 + [neighbours, neighbours, same.any(1).sum()]
    return targets, torch.stack(rows).double()


@lru_cache(maxsize=8)
def _punctuation(tokenizer: Any) -> frozenset[int]:
    plain = set(tokenizer.vocabulary().values()) - tokenizer.special_ids
    shown = {id_: tokenizer.decode([id_]).strip() for id_ in plain}
    return frozenset(id_ for id_, text in shown.items() if text and wordless(text))


class DependencyScores:
    """Count how often each head's largest weight goes from a word to its head, or back.

    Words are as in Clark et al. (2019): attention to a word is the sum over its tokens, attention
    from it the mean; the most attended word, other than itself, is the prediction.
    """

    def __init__(self, heads: Sequence[int], inputs: Sequence[HeadInput]) -> None:
        gold = [row for one in inputs for row in one.gold]
        frequencies = Counter(relation for _, _, relation in gold)
        self.names = sorted(frequencies)
        self.counts = torch.tensor([frequencies[name] for name in self.names], dtype=torch.float64)
        self.heads = heads  # how many each layer has
        self.hits = torch.zeros(2, sum(heads), len(self.names), dtype=torch.float64)
        self.fixed = torch.zeros(len(OFFSETS), len(self.names), dtype=torch.float64)
        for place, head, relation in gold:
            if head - place in OFFSETS:
                self.fixed[OFFSETS.index(head - place), self.names.index(relation)] += 1

    def see(self, weights: Tensor, one: HeadInput) -> None:
        """Count the correct predictions of every head in one sentence: (L * H, n, n)."""
        places, heads, relations = zip(*one.gold, strict=True)
        numbers = torch.arange(max(one.words) + 1)
        parts = (numbers[:, None] == torch.tensor(one.words)).float()  # (words, n)
        sizes = parts.sum(1)
        maps = weights.float().cpu()
        between = (parts / sizes.clamp(min=1)[:, None]) @ maps @ parts.T  # (maps, words, words)
        absent = sizes == 0
        between[:, :, absent] = -1
        between[:, absent, :] = -1
        between.diagonal(dim1=1, dim2=2).fill_(-1)
        asked = torch.tensor(places)
        right = torch.tensor(heads)
        kind = torch.tensor([self.names.index(relation) for relation in relations])
        for direction, table in enumerate((between, between.mT)):
            hit = (table[:, asked].argmax(-1) == right).double()  # (maps, words that have a head)
            self.hits[direction].index_add_(1, kind, hit)

    def relations(self) -> dict[str, Relation]:
        """Return the best head for each relation, the most frequent relation first."""
        relations = {}
        for kind in self.counts.argsort(descending=True, stable=True).tolist():
            count = int(self.counts[kind])
            accuracies = self.hits[..., kind] / count
            table = np.stack([by_layer(values, self.heads) for values in accuracies])
            direction, layer, head = map(int, np.unravel_index(np.nanargmax(table), table.shape))
            offset = int(self.fixed[:, kind].argmax())
            relations[self.names[kind]] = Relation(
                count=count,
                layer=layer,
                head=head,
                direction=DIRECTIONS[direction],
                accuracy=float(table[direction, layer, head]),
                offset=OFFSETS[offset],
                baseline=float(self.fixed[offset, kind]) / count,
                table=table,
            )
        return relations
