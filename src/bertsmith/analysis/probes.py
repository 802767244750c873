"""Probes: how well a linear classifier predicts a word's tag from its state at each depth.

A control task separates what the states hold from what the classifier memorizes: every word form
gets a random tag (Hewitt and Liang 2019). The difference of the two accuracies is the selectivity.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.maps import Floats
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import hidden_states
from bertsmith.tasks.tagging.examples import Tagged
from bertsmith.tasks.tagging.task import in_words

Integers = NDArray[np.int64]
DECAY, ROUNDS = 1e-3, 100


@dataclass(frozen=True)
class DepthScore:
    """The accuracy of the classifier at one depth."""

    depth: int  # 0 is the output of the embeddings, k that of block k
    accuracy: float
    control: float  # accuracy on labels drawn at random for each word form

    @property
    def selectivity(self) -> float:
        """The accuracy on real labels minus that on random ones."""
        return self.accuracy - self.control


@dataclass(frozen=True)
class ProbeScores:
    """The scores at every depth, and of two baselines that need no model."""

    scores: list[DepthScore]
    labels: list[str]
    train: int  # words
    test: int
    majority: float  # accuracy of the most frequent label
    lookup: float  # accuracy of each word form's most frequent label in training


def probe(
    bert: LoadedModel, train: Sequence[Tagged], test: Sequence[Tagged], seed: int = 0
) -> ProbeScores:
    """Fit logistic regression from states to tags at every depth, and score it on other words."""
    learn, judge = _Words(bert, train), _Words(bert, test)
    if not learn.labels or not judge.labels:
        raise BertsmithError("a probe needs labelled words to train on and others to test on")
    names = sorted(set(learn.labels))
    known = {name: number for number, name in enumerate(names)}
    # A label that was never seen is wrong whatever is said.
    gold = [np.array([known.get(label, -1) for label in x.labels]) for x in (learn, judge)]
    chances = np.bincount(gold[0], minlength=len(names)) / len(gold[0])
    random = np.random.default_rng(seed)
    drawn: dict[str, int] = defaultdict(lambda: int(random.choice(len(names), p=chances)))
    false = [np.array([drawn[form] for form in x.forms]) for x in (learn, judge)]
    scores = []
    for depth, (states, others) in enumerate(zip(learn.states, judge.states, strict=True)):
        accuracy = _fitted(states, others, gold[0], gold[1])
        control = _fitted(states, others, false[0], false[1])
        scores.append(DepthScore(depth, accuracy, control))
    majority = float((gold[1] == chances.argmax()).mean())
    forms: dict[str, Counter[int]] = defaultdict(Counter)
    for form, label in zip(learn.forms, gold[0].tolist(), strict=True):
        forms[form][label] += 1
    guess = [forms[f].most_common(1)[0][0] if f in forms else chances.argmax() for f in judge.forms]
    lookup = float(np.mean(np.array(guess) == gold[1]))
    return ProbeScores(scores, names, len(learn.labels), len(judge.labels), majority, lookup)


class _Words:
    """Words with their labels, and their mean states at every depth: (words, D) each."""

    def __init__(self, bert: LoadedModel, examples: Sequence[Tagged]) -> None:
        examples = in_words(examples, bert.encode([one.text for one in examples]), bert.ledger)
        spans = [one.offsets for one in examples]
        states = hidden_states(bert, [one.text for one in examples], spans=spans)
        self.labels: list[str] = []
        self.forms: list[str] = []
        parts = []
        for one, own_states in zip(examples, states, strict=True):
            known = ~np.isnan(own_states.vectors[0, :, 0])
            for word, tag, there in zip(one.words, one.tags or (), known, strict=True):
                if there:
                    self.forms.append(word.lower())
                    self.labels.append(tag)
            parts.append(own_states.vectors[:, known])
        self.states = np.concatenate(parts, axis=1) if parts else np.zeros((0, 0, 0), np.float32)


def _fitted(states: Floats, others: Floats, train: Integers, test: Integers) -> float:
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise BertsmithError("needs scikit-learn: pip install 'bertsmith[analysis]'") from None
    if len(np.unique(train)) == 1:
        return float((test == train[0]).mean())
    scaler = StandardScaler().fit(states)
    # A mean loss with a penalty of DECAY times the squared norm of the weights.
    strength = 1 / (2 * DECAY * len(train))
    model = LogisticRegression(C=strength, max_iter=ROUNDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(states), train)
    return float(model.score(scaler.transform(others), test))
