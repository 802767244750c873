"""Similarity: sentence vectors trained on related texts, or on pairs with scores."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint
from bertsmith.data import Dataset, Labelled, Related, Scored
from bertsmith.errors import BertsmithError
from bertsmith.metrics.numbers import number_scores
from bertsmith.model import Model
from bertsmith.model.pooling import POOLS
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.task import Prediction, Scorer, Task, Weights, weighted_mean
from bertsmith.tasks.training import (
    Sample,
    Targets,
    TaskOptions,
    Training,
    TrainingItem,
    class_loss,
    item_weights,
)

AT_ONCE = 1024  # rows of a matrix of similarities


class VectorTraining(Training):
    """One vector for each text: of a long one, the mean of its windows' by length."""

    head = None
    exact = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        self.pool = "mean"

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item with the texts of each example."""
        self.pool = bert.sentence.pool
        limit = self.options.max_length or bert.sentence.max_length
        how = bert.windower(overlap=0, limit=limit)
        samples: list[Sample] = []
        for example in examples:
            texts = [bert.sentence.prepared(text) for text in example.texts]
            windows = tuple(bert.windows(texts, how=how))
            samples.append((TrainingItem(windows, self.target(example)),))
        return samples

    def target(self, example: Any) -> Any:
        """What is learned about an example's texts."""
        raise NotImplementedError

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """A vector for each window (N, D)."""
        return POOLS[self.pool](model.encoder(batch).last.float(), batch.layout, None)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The text and the length of every window (N,); each item's first, second, third text."""
        owners, sizes, firsts, before = [], [], [], 0
        for item in items:
            firsts.append(before)
            owners += [before + window.number for window in item.windows]
            sizes += [float(len(window.ids)) for window in item.windows]
            before += item.windows[-1].number + 1
        first = torch.tensor(firsts)
        counts = torch.tensor([*firsts[1:], before]) - first
        return {
            "owners": torch.tensor(owners),
            "sizes": torch.tensor(sizes),
            "texts": torch.empty(before),  # as many elements as there are texts
            "first": first,
            "third": first[counts > 2] + 2,
            "weights": item_weights(items),
        }

    def vectors(self, outputs: Tensor, targets: Targets) -> Tensor:
        """The vectors of all texts, of length 1 (texts, D)."""
        sums = outputs.new_zeros(len(targets["texts"]), outputs.shape[1])
        # By length, as `embed` puts windows together; the length of the sum does not matter.
        weighted = outputs * targets["sizes"][:, None]
        return F.normalize(sums.index_add(0, targets["owners"], weighted), dim=-1)


class ContrastiveTraining(VectorTraining):
    """Each first text is to find its own among all second texts of a step."""

    together = True

    def target(self, example: Related) -> None:
        """Nothing more than that they belong together."""

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Cross entropy of similarities, in both directions; negatives compete in the first."""
        vectors = self.vectors(outputs, targets)
        firsts, seconds = vectors[targets["first"]], vectors[targets["first"] + 1]
        scores = firsts @ torch.cat([seconds, vectors[targets["third"]]]).T
        own = torch.arange(len(firsts), device=outputs.device)
        scale = self.options.temperature
        forth = class_loss(scores / scale, own)
        back = class_loss((seconds @ firsts.T) / scale, own)
        return ((forth + back) / 2 * targets["weights"]).sum()


class CosineTraining(VectorTraining):
    """The cosine of two vectors is to be the score, scaled to 0 to 1."""

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        scores = [example.score for example in dataset.gold()]
        self.low, self.high = min(scores), max(scores)
        if self.low == self.high:
            raise BertsmithError(f"{dataset.path}: all scores are {self.low:g}: nothing to learn")
        if any(example.pair is None for example in dataset.examples):
            raise BertsmithError(f"{dataset.path}: similarity needs two texts in every row")

    def target(self, example: Any) -> float:
        """The score from 0 to 1."""
        return float(example.score - self.low) / (self.high - self.low)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The scores (N,), too."""
        return {**super().targets(items), "scores": torch.tensor([one.target for one in items])}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Squared error of cosines."""
        vectors = self.vectors(outputs, targets)
        cosines = (vectors[targets["first"]] * vectors[targets["first"] + 1]).sum(-1)
        return ((cosines - targets["scores"]).square() * targets["weights"]).sum()


class SimilarityTask(Task):
    """Texts that belong together, or how near two texts are."""

    name = "similarity"
    head = None
    hub_tag, opens_as = "sentence-similarity", ""
    usage = 'embed(["A text.", "Another."])'
    defaults = MappingProxyType({"batch_size": 64, "epochs": 1})
    options = frozenset({"temperature"})
    kinds = (Related, Scored, Labelled)
    perfect = 0.0
    confident = False

    def fits(self, checkpoint: Checkpoint) -> bool:
        """Every encoder makes vectors."""
        return True

    def training(self, dataset: Dataset[Any], options: TaskOptions) -> VectorTraining:
        """Contrastive for texts that belong together, cosines for scores."""
        related = isinstance(dataset.examples[0], Related)
        return (ContrastiveTraining if related else CosineTraining)(dataset, options)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        """The cosine of the two texts of each example."""
        if any(len(example.texts) < 2 for example in examples):
            raise no_task_head(bert)
        unique = list(dict.fromkeys(text for example in examples for text in example.texts))
        vectors = dict(zip(unique, embed(bert, unique, normalise=True), strict=True))
        predictions = []
        for example in examples:
            first, second, *_ = example.texts
            cosine = float(np.dot(vectors[first], vectors[second]))
            predictions.append(Prediction(cosine, 1.0, {"similarity": cosine}))
        return predictions

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        """Ranks of partners, or correlations with scores."""
        if isinstance(dataset.examples[0], Related):
            return "accuracy_at_1", "mean_reciprocal_rank"
        return "spearman", "pearson"

    def label_of(self, example: Any) -> Any:
        """Its score; 1 for texts that belong together."""
        return 1.0 if isinstance(example, Related) else example.score

    def correctness(self, example: Any, value: Any) -> float:
        """Minus the absolute difference."""
        return -abs(float(value) - float(self.label_of(example)))

    def scorer(
        self,
        dataset: Dataset[Any],
        predictions: Sequence[Prediction],
        bert: LoadedModel | None = None,
    ) -> Scorer:
        """Correlations of cosines and scores; or how high each text ranks its partner."""
        if not isinstance(dataset.examples[0], Related):
            values = [one.value for one in predictions]
            correlations = number_scores([one.score for one in dataset.examples], values)

            def numbers(weights: Weights | None) -> dict[str, float]:
                scores = correlations(weights)
                del scores["mean_squared_error"]  # a cosine has another unit than the file's scores
                return scores

            return numbers
        if bert is None:
            raise BertsmithError("retrieval ranks need the model, not only its predictions")
        ranks = partner_ranks(bert, dataset.examples)

        def scores(weights: Weights | None) -> dict[str, float]:
            return {
                "accuracy_at_1": weighted_mean(ranks == 1, weights),
                "mean_reciprocal_rank": weighted_mean(1 / ranks, weights),
            }

        return scores

    def spoken(self, value: Any) -> str:
        """Four digits."""
        return f"{value:.4g}"


def partner_ranks(bert: LoadedModel, examples: Sequence[Related]) -> Any:
    """The rank of every text's partner among all partners of the file, from 1."""
    firsts = embed(bert, [one.anchor for one in examples], normalise=True)
    partners = list(dict.fromkeys(one.positive for one in examples))
    place = {text: number for number, text in enumerate(partners)}
    others = embed(bert, partners, normalise=True)
    ranks: list[int] = []
    for start in range(0, len(examples), AT_ONCE):
        near = firsts[start : start + AT_ONCE] @ others.T
        own = [place[one.positive] for one in examples[start : start + AT_ONCE]]
        best = near[np.arange(len(near)), own]
        ranks += (1 + (near > best[:, None]).sum(1)).tolist()
    return np.asarray(ranks)


def no_task_head(bert: LoadedModel) -> BertsmithError:
    """The error for a model without a task head that is given single texts."""
    has = ", ".join(bert.checkpoint.entries) or "none"
    return BertsmithError(
        f"this model has no task head (heads: {has}): train one with bertsmith finetune, "
        "compare pairs of texts, or compute vectors with bertsmith embed"
    )


SIMILARITY = SimilarityTask()
