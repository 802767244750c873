"""Probes: how much of a label can be read off a word's state at each depth, by a linear map.

A control task tells what the probe found from what it learned by heart: every word form gets a
label at random (Hewitt and Liang 2019). The difference of the two is the selectivity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.analysis.treebank import Sentence
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Trace
from bertsmith.tasks.run import BUDGETS, packed

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel

DECAY, ROUNDS = 1e-3, 100


@dataclass(frozen=True)
class Labelled:
    """A text, and stretches of it with a label each."""

    text: str
    words: list[tuple[int, int, str]]  # start, end, label


@dataclass(frozen=True)
class DepthScore:
    """What a linear map reads off the states of one depth."""

    depth: int  # 0: the embeddings
    accuracy: float
    control: float  # accuracy on labels drawn at random for each word form

    @property
    def selectivity(self) -> float:
        """How much better it is on the real labels."""
        return self.accuracy - self.control


@dataclass(frozen=True)
class Probe:
    """The scores of every depth, beside what needs no model at all."""

    scores: list[DepthScore]
    labels: list[str]
    train: int  # words
    test: int
    majority: float  # always the most frequent label
    lookup: float  # the most frequent label of each word form, known from training


def tagged(sentences: Iterable[Sentence]) -> list[Labelled]:
    """Sentences of a treebank with the part of speech of each word."""
    return [
        Labelled(one.text, [(w.start, w.end, w.tag) for w in one.words if w.start < w.end])
        for one in sentences
    ]


def columns(lines: Sequence[str], name: str = "file") -> list[Labelled]:
    """Lines of a word and its label (the last column), a blank line after each sentence."""
    found = []
    numbered = enumerate(lines, 1)
    for blank, group in groupby(numbered, key=lambda line: not line[1].strip()):
        if blank:
            continue
        text, words = "", []
        for number, line in group:
            fields = line.split()
            if fields[0] == "-DOCSTART-":
                continue
            if len(fields) < 2:
                raise BertsmithError(f"{name}, line {number}: a word without a label")
            words.append((len(text), len(text) + len(fields[0]), fields[-1]))
            text += fields[0] + " "
        if words:
            found.append(Labelled(text.rstrip(), words))
    return found


def probe(
    bert: LoadedModel, train: Sequence[Labelled], test: Sequence[Labelled], seed: int = 0
) -> Probe:
    """Fit a linear map from states to labels at every depth, and score it on other words."""
    learn, judge = _Words(bert, train), _Words(bert, test)
    if not learn.labels or not judge.labels:
        raise BertsmithError("a probe needs labelled words to learn from, and others to judge by")
    names = sorted(set(learn.labels))
    known = {name: number for number, name in enumerate(names)}
    # A label that was never seen is wrong whatever is said.
    gold = [torch.tensor([known.get(label, -1) for label in x.labels]) for x in (learn, judge)]
    chances = np.bincount(gold[0].numpy(), minlength=len(names)) / len(gold[0])
    random = np.random.default_rng(seed)
    drawn: dict[str, int] = defaultdict(lambda: int(random.choice(len(names), p=chances)))
    false = [torch.tensor([drawn[form] for form in x.forms]) for x in (learn, judge)]
    scores = []
    for depth, (states, others) in enumerate(zip(learn.states, judge.states, strict=True)):
        right = _fitted(states, others, gold[0], gold[1], len(names))
        control = _fitted(states, others, false[0], false[1], len(names))
        scores.append(DepthScore(depth, right, control))
    majority = float((gold[1] == int(chances.argmax())).float().mean())
    forms: dict[str, Counter[int]] = defaultdict(Counter)
    for form, label in zip(learn.forms, gold[0].tolist(), strict=True):
        forms[form][label] += 1
    guess = [forms[f].most_common(1)[0][0] if f in forms else chances.argmax() for f in judge.forms]
    lookup = float(np.mean(np.array(guess) == gold[1].numpy()))
    return Probe(scores, names, len(learn.labels), len(judge.labels), majority, lookup)


class _Words:
    """Words with their labels, and their mean states at every depth: (words, D) each."""

    def __init__(self, bert: LoadedModel, given: Sequence[Labelled]) -> None:
        self.labels: list[str] = []
        self.forms: list[str] = []
        kept = []
        for one in given:
            encoding = bert.tokenizer.encode(one.text)
            if len(encoding) > bert.max_length:
                bert.ledger.note("sentences longer than the model reads, left out")
                continue
            rows = []
            for start, end, label in one.words:
                own = [
                    row
                    for row, (a, b) in enumerate(encoding.offsets)
                    if encoding.sources[row] is not None and a < end and start < b
                ]
                if own:
                    rows.append((own, one.text[start:end].lower(), label))
            if rows:
                kept.append((encoding, rows))
        depths = len(bert.checkpoint.config.plan) + 1
        made: list[list[Tensor]] = [[] for _ in range(depths)]
        budget = bert.budget or BUDGETS.get(bert.device.type, 2048)
        for chosen in packed([len(encoding) for encoding, _ in kept], budget):
            group = [kept[number] for number in chosen]
            batch = Batch.of([e.ids for e, _ in group], [e.segments for e, _ in group])
            trace = Trace(states=True)
            with torch.inference_mode():
                last = bert.model.encoder(batch.to(bert.device), trace).last
                for depth, states in enumerate([*trace.hidden[:-1], last]):
                    parts = batch.layout.split(states.float())
                    for part, (_, rows) in zip(parts, group, strict=True):
                        means = [part[own].mean(0) for own, _, _ in rows]
                        made[depth].append(torch.stack(means).cpu())
            self.forms += [form for _, rows in group for _, form, _ in rows]
            self.labels += [label for _, rows in group for *_, label in rows]
        self.states = [torch.cat(parts).clone() for parts in made] if kept else []


def _fitted(states: Tensor, others: Tensor, train: Tensor, test: Tensor, labels: int) -> float:
    """The accuracy, on other states, of the linear map that fits these best."""
    mean, spread = states.mean(0), states.std(0).clamp(min=1e-6)
    x, y = (states - mean) / spread, (others - mean) / spread
    weight = torch.zeros(labels, x.shape[1], requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    search = torch.optim.LBFGS([weight, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        found = F.cross_entropy(F.linear(x, weight, bias), train)
        found = found + DECAY * weight.square().sum()
        found.backward()
        return found

    search.step(loss)
    with torch.no_grad():
        return float((F.linear(y, weight, bias).argmax(-1) == test).float().mean())
