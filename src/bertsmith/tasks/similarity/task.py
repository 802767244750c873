"""Similarity: sentence vectors trained on related texts, or on pairs with scores."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, Sentence
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.labels import mean_scores
from bertsmith.metrics.numbers import number_scores
from bertsmith.model import Model
from bertsmith.model.pooling import POOLS
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.embedding import Embed, embed
from bertsmith.tasks.reading import TextExample
from bertsmith.tasks.regression.reading import Scored
from bertsmith.tasks.similarity.reading import READING, Related
from bertsmith.tasks.task import Prediction, Scorer, Task, Values
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
        self.sentence, self.widths = Sentence(), widths_of(options.matryoshka)

    def config_changes(self) -> dict[str, Any]:
        """The widths to which vectors may be cut, under the name that servers read."""
        return {"matryoshka_dimensions": self.widths} if self.widths else {}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        self.sentence = bert.sentence
        if self.widths and self.widths[-1] >= bert.vector_width:
            raise BertsmithError(
                f"matryoshka: {self.widths[-1]} is not less than the width of the vectors, "
                f"{bert.vector_width}"
            )
        windower = bert.windower(overlap=0, limit=bert.sentence.max_length)
        samples: list[Sample] = []
        for example in examples:
            # Of related texts the anchor is a query, and the others are documents.
            related, same = isinstance(example, Related), bert.sentence.prompt
            first, others = bert.sentence.search_prompts if related else (same, same)
            texts = [bert.sentence.prepared(example.texts[0], first)]
            texts += [bert.sentence.prepared(text, others) for text in example.texts[1:]]
            windows = tuple(bert.windows(texts, how=windower))
            samples.append((TrainingItem(windows, self.target(example)),))
        return samples

    def target(self, example: Any) -> Any:
        raise NotImplementedError

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """A vector for each window (N, D)."""
        return POOLS[self.sentence.pool](model.encoder(batch).last.float(), batch.layout, None)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The text and the length of every window (N,), and each item's first text."""
        *firsts, count = accumulate((one.windows[-1].number + 1 for one in items), initial=0)
        pairs = zip(firsts, items, strict=True)
        windows = [(first, window) for first, item in pairs for window in item.windows]
        return {
            "owners": torch.tensor([first + window.number for first, window in windows]),
            "sizes": torch.tensor([float(len(window.ids)) for _, window in windows]),
            "texts": torch.empty(count),  # as many elements as there are texts
            "first": torch.tensor(firsts),
            "weights": item_weights(items),
        }

    def means(self, outputs: Tensor, targets: Targets) -> Tensor:
        """The vectors of all texts (texts, D), of their windows' by length, as `embed` does it."""
        owners, sizes, count = targets["owners"], targets["sizes"], len(targets["texts"])
        sums = outputs.new_zeros(count, outputs.shape[1])
        sums = sums.index_add(0, owners, outputs * sizes[:, None])
        totals = sizes.new_zeros(count).index_add(0, owners, sizes)
        # Sequences that only fill a batch are of no text.
        return self.sentence.project(sums / totals.clamp(min=1)[:, None])

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The loss of the vectors; with Matryoshka widths, the mean over them and the full width.

        A vector is cut to its first elements, and has length 1 again (Kusupati et al. 2022).
        """
        means = self.means(outputs, targets)
        cuts = [means[:, :width] for width in (*self.widths, means.shape[1])]
        losses = [self.vector_loss(F.normalize(one, dim=-1), targets) for one in cuts]
        return torch.stack(losses).mean()

    def vector_loss(self, vectors: Tensor, targets: Targets) -> Tensor:
        """The sum of all items' losses, from the unit vectors of all texts (texts, D)."""
        raise NotImplementedError


class ContrastiveTraining(VectorTraining):
    """Each anchor is to find its positives among all positives and negatives of a step.

    Texts that are known to belong to an anchor are not its negatives: other positives of the same
    anchor, in whichever row of the file, texts equal to one of them, and the anchor itself.
    """

    together = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        # What belongs to each anchor, also in rows that are not in the same step.
        self.belongs: defaultdict[int, set[int]] = defaultdict(set)
        for example in dataset.examples:
            texts = (example.anchor, *example.positives)
            self.belongs[hash_of(example.anchor)].update(map(hash_of, texts))

    def target(self, example: Related) -> tuple[tuple[int, ...], int]:
        """Keys of its texts, which equal texts share, and how many are positives."""
        return tuple(map(hash_of, example.texts)), len(example.positives)

    def keys(self, sample: Sample) -> set[int]:
        """The anchor and its positives: two samples with an equal text are not put in a batch."""
        targets = (item.target for item in sample)
        return {key for keys, positives in targets for key in keys[: 1 + positives]}

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """Positives, then negatives as candidates (C,); the item of each positive (P,).

        `known` (items, C) marks candidates that belong to an anchor. The positives of an item
        share its weight.
        """
        targets = super().targets(items)
        owners, near, far, near_keys, far_keys = (list[int]() for _ in range(5))
        for number, (item, first) in enumerate(zip(items, targets["first"].tolist(), strict=True)):
            keys, count = item.target
            owners += [number] * count
            near += range(first + 1, first + 1 + count)
            far += range(first + 1 + count, first + len(keys))
            near_keys += keys[1 : 1 + count]
            far_keys += keys[1 + count :]
        columns: defaultdict[int, list[int]] = defaultdict(list)
        for column, key in enumerate(near_keys + far_keys):
            columns[key].append(column)
        known = torch.zeros(len(items), len(near) + len(far), dtype=torch.bool)
        for number, item in enumerate(items):
            own = self.belongs[item.target[0][0]]
            known[number, [column for key in own for column in columns[key]]] = True
        shares = torch.tensor([item.weight / item.target[1] for item in items])
        owner = torch.tensor(owners)
        candidates = {"candidates": torch.tensor(near + far), "owner": owner, "known": known}
        return {**targets, **candidates, "weights": shares[owner]}

    def vector_loss(self, vectors: Tensor, targets: Targets) -> Tensor:
        """Cross entropy of similarities, in both directions; negatives compete in the first."""
        anchors, others = vectors[targets["first"]], vectors[targets["candidates"]]
        owner, known = targets["owner"], targets["known"]
        own = torch.arange(len(owner), device=vectors.device)  # positives come first
        scores = anchors @ others.T / self.options.temperature  # (items, C)

        def rows(scores: Tensor, known: Tensor, target: Tensor) -> Tensor:
            places = torch.arange(scores.shape[1], device=scores.device)
            hidden = known & (places != target[:, None])
            return class_loss(scores.masked_fill(hidden, float("-inf")), target)

        forth = rows(scores[owner], known[owner], own)
        back = rows(scores.T[: len(owner)], known.T[: len(owner)], owner)
        return ((forth + back) / 2 * targets["weights"]).sum()


def widths_of(text: str) -> list[int]:
    """Widths that are written with commas between them, in rising order."""
    try:
        widths = sorted({int(part) for part in text.split(",")}) if text.strip() else []
    except ValueError:
        widths = [0]
    if widths and widths[0] < 1:
        name = setting_name("matryoshka")
        raise BertsmithError(f"{name} must be widths such as 64,128,256, not {text[:60]!r}")
    return widths


def hash_of(text: str) -> int:
    """A number that equal texts share, in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class MarginTraining(VectorTraining):
    """Differences between the scores of positives and negatives are to be those of a teacher.

    This is margin MSE (Hofstätter et al. 2020). A score is a cosine over the temperature, which
    gives it the range of a reranker's logits.
    """

    learned = 0.0

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        if not any(one.scores and one.negatives for one in dataset.examples):
            raise BertsmithError(
                f"{dataset.path}: no row has a negative and a teacher's scores; "
                f"`bertsmith mine` writes both with {setting_name('teacher')}"
            )

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        usable = [one for one in examples if one.scores and one.negatives]
        note = "rows without a negative or a teacher's scores, left out"
        bert.ledger.note(note, len(examples) - len(usable))
        return super().samples(bert, usable)

    def target(self, example: Related) -> tuple[int, tuple[float, ...]]:
        """The number of positives, and the scores of all texts but the anchor."""
        return len(example.positives), example.scores

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The texts of each anchor, positive and negative (M, 3), and the teacher's margin (M,)."""
        targets = super().targets(items)
        triples, margins, weights = list[tuple[int, ...]](), list[float](), list[float]()
        for item, first in zip(items, targets["first"].tolist(), strict=True):
            count, scores = item.target
            pairs = list(product(range(count), range(count, len(scores))))
            triples += [(first, first + 1 + near, first + 1 + far) for near, far in pairs]
            margins += [scores[near] - scores[far] for near, far in pairs]
            weights += [item.weight / len(pairs)] * len(pairs)
        learned = {"triples": torch.tensor(triples), "margins": torch.tensor(margins)}
        return {**targets, **learned, "weights": torch.tensor(weights)}

    def vector_loss(self, vectors: Tensor, targets: Targets) -> Tensor:
        anchors, near, far = vectors[targets["triples"]].unbind(1)
        margins = (anchors * (near - far)).sum(-1) / self.options.temperature
        return ((margins - targets["margins"]).square() * targets["weights"]).sum()


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
        return float(example.score - self.low) / (self.high - self.low)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        return {**super().targets(items), "scores": torch.tensor([one.target for one in items])}

    def vector_loss(self, vectors: Tensor, targets: Targets) -> Tensor:
        cosines = (vectors[targets["first"]] * vectors[targets["first"] + 1]).sum(-1)
        return ((cosines - targets["scores"]).square() * targets["weights"]).sum()


class SimilarityTask(Embed, Task):
    """Texts that belong together, or how near two texts are."""

    reading, head = READING, None
    hub_tag, opens_as = "sentence-similarity", ""
    usage = 'embed(["A text.", "Another."])'
    defaults: ClassVar = {"batch_size": 64, "epochs": 1}
    options = frozenset({"temperature", "matryoshka"})
    losses = ("contrastive", "margin")
    stored = ("matryoshka_dimensions",)
    kinds = (Related, TextExample)
    numeric = True
    measure = "cosine"
    baseline = "vectors"

    def fits(self, checkpoint: Checkpoint) -> bool:
        return True

    def training(self, dataset: Dataset[Any], options: TaskOptions) -> VectorTraining:
        """Cosines for pairs with scores; margins if a teacher has scored rows; else contrastive."""
        first = dataset.examples[0]
        if not isinstance(first, Related):
            if options.loss:
                raise BertsmithError(
                    f"{dataset.path}: pairs with scores have no loss {options.loss}; it is for rows"
                    " of an anchor, positives and negatives"
                )
            return CosineTraining(dataset, options)
        loss = options.loss or self.losses[1 if first.scores else 0]
        return (MarginTraining if loss == "margin" else ContrastiveTraining)(dataset, options)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
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

    def scores(self, dataset: Dataset[Any]) -> bool:
        """Any pairs with numbers: their cosines are compared with them."""
        return super().scores(dataset) or isinstance(dataset.examples[0], Scored)

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        if isinstance(dataset.examples[0], Related):
            return "accuracy_at_1", "mean_reciprocal_rank"
        return "spearman", "pearson"

    def label_of(self, example: Any) -> Any:
        return 1.0 if isinstance(example, Related) else example.score

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        if not isinstance(dataset.examples[0], Related):
            correlations = number_scores([one.score for one in dataset.examples], values)
            error = "mean_squared_error"  # a cosine has another unit than the file's scores
            return lambda weights: {n: s for n, s in correlations(weights).items() if n != error}
        if bert is None:
            raise BertsmithError("retrieval ranks need the model, not only its predictions")
        ranks = partner_ranks(bert, dataset.examples)
        return mean_scores(accuracy_at_1=ranks == 1, mean_reciprocal_rank=1 / ranks)


def partner_ranks(bert: LoadedModel, examples: Sequence[Related]) -> Any:
    """The rank of the best partner of every text among all partners of the file, from 1.

    Partners of the same text in other rows, and the text itself, do not compete.
    """
    query, document = bert.sentence.search_prompts
    firsts = embed(bert, [one.anchor for one in examples], normalise=True, prompt=query)
    partners = list(dict.fromkeys(text for one in examples for text in one.positives))
    place = {text: number for number, text in enumerate(partners)}
    known: defaultdict[str, set[int]] = defaultdict(set)
    for one in examples:
        texts = (one.anchor, *one.positives)
        known[one.anchor].update(place[text] for text in texts if text in place)
    others = embed(bert, partners, normalise=True, prompt=document)
    ranks: list[int] = []
    for start in range(0, len(examples), AT_ONCE):
        some = examples[start : start + AT_ONCE]
        near = firsts[start : start + AT_ONCE] @ others.T
        for row, one in zip(near, some, strict=True):
            best = max(row[place[text]] for text in one.positives)
            row[list(known[one.anchor])] = -np.inf
            ranks.append(1 + int((row > best).sum()))
    return np.asarray(ranks)


def no_task_head(bert: LoadedModel) -> BertsmithError:
    """The error for a model without a task head that is given single texts."""
    has = ", ".join(bert.checkpoint.entries) or "none"
    return BertsmithError(
        f"this model has no task head (heads: {has}): train one with bertsmith finetune, "
        f"compare pairs of texts ({setting_name('pair')}), or compute vectors with bertsmith embed"
    )


TASK = SimilarityTask()
