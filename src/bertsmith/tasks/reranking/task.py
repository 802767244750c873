"""Reranking: the passages of a query, the most relevant first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel, positive
from bertsmith.infer.run import Steps
from bertsmith.infer.texts import listed_strings
from bertsmith.metrics.labels import mean_scores
from bertsmith.metrics.ranking import ndcg, reciprocal_rank
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reranking.reading import READING, Passages
from bertsmith.tasks.task import Display, DisplayText, Mark, Prediction, Scorer, Task
from bertsmith.tasks.training import GridTraining, Sample, Targets, TaskOptions, TrainingItem
from bertsmith.tasks.use import Askable, Call, PairScores, RequestBody, TaskResult, form

LOSSES = ("listwise", "pairwise", "pointwise")
DRAWN = 4  # passages of other queries added to a query whose passages have equal grades
# As sentence-transformers' CrossEncoder writes it: its scores are probabilities, as ours are.
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}


@dataclass(frozen=True)
class RankedPassage(TaskResult):
    """A passage with its score, and its place in the list that was given."""

    index: int
    score: float  # from 0 to 1
    text: str


@EncoderTask
def pair_logits(
    bert: LoadedModel, queries: Sequence[str], passages: Sequence[str]
) -> Steps[list[float]]:
    """The output for each query with its passage; of a long passage, that of its best window."""
    windows = bert.windows(queries, passages)
    best = [float("-inf")] * len(queries)
    outputs = yield bert.head_pass("classify", windows)
    for window, output in zip(windows, outputs, strict=True):
        best[window.number] = max(best[window.number], float(output[0]))
    return best


@EncoderTask
def rank(
    bert: LoadedModel, query: str, passages: Sequence[str], top: int | None = None
) -> Steps[list[RankedPassage]]:
    """Passages by falling score; of equals, the first that was given."""
    logits = yield from pair_logits.steps(bert, [query] * len(passages), passages)
    scores = torch.tensor(logits).sigmoid().tolist()
    order = sorted(range(len(passages)), key=lambda place: -scores[place])
    return [RankedPassage(place, scores[place], passages[place]) for place in order[:top]]


class RerankingTraining(GridTraining):
    """Losses compare the scores of the passages of a query.

    listwise: the cross entropy of all scores with the share of each grade (ListNet). pairwise: the
    better of two passages is to have the higher score (RankNet). pointwise: the probability of each
    passage is to be its grade, scaled to 0 to 1.
    """

    head = "classify"

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        self.kind, self.labels = options.loss or LOSSES[0], ("relevance",)
        grades = [grade for one in dataset.gold() for grade in one.grades]
        self.highest = max(grades, default=0.0)
        if self.highest <= 0:
            why = "no passage has a grade above 0: nothing to learn"
            raise BertsmithError(f"{dataset.path}: {why}")

    def config_changes(self) -> dict[str, Any]:
        more = {"ranks_passages": True, "sentence_transformers": CROSS_ENCODER}
        return {**super().config_changes(), **more}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        completed = with_others(examples)
        count = sum(a is not b for a, b in zip(completed, examples, strict=True))
        bert.ledger.note(f"queries without a negative, which got {DRAWN} of other queries", count)
        windower, samples = bert.windower(), list[Sample]()
        for number, example in enumerate(completed):
            if self.kind != "pointwise" and len(set(example.grades or ())) < 2:
                continue  # nothing to compare
            query, *passages = bert.token_ids(example.texts)
            windows = [
                replace(window, number=place)
                for place, passage in enumerate(passages)
                for window in windower.pair(number, query, passage)
            ]
            samples.append((TrainingItem(tuple(windows), example.grades),))
        return samples

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The grades (items, candidates), too: -1 where a query has no passage."""
        targets = super().targets(items)
        grades = torch.full(targets["grid"].shape, -1.0)
        for row, item in enumerate(items):
            grades[row, : len(item.target)] = torch.tensor(item.target) / self.highest
        return {**targets, "grades": grades}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        loss = RULES[self.kind](self.best(outputs, targets), targets["grades"])
        return (loss * targets["weights"]).sum()


def _listwise(scores: Tensor, grades: Tensor) -> Tensor:
    shares = grades.clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-9)
    return -(shares * scores.log_softmax(-1)).sum(-1)


def _pairwise(scores: Tensor, grades: Tensor) -> Tensor:
    better = (grades[:, :, None] > grades[:, None, :]) & (grades[:, None, :] >= 0)
    apart = F.softplus(scores[:, None, :] - scores[:, :, None])
    return (apart * better).sum((1, 2)) / better.sum((1, 2)).clamp(min=1)


def _pointwise(scores: Tensor, grades: Tensor) -> Tensor:
    there = grades >= 0
    loss = F.binary_cross_entropy_with_logits(scores, grades.clamp(min=0), reduction="none")
    return (loss * there).sum(-1) / there.sum(-1).clamp(min=1)


RULES = {"listwise": _listwise, "pairwise": _pairwise, "pointwise": _pointwise}


def with_others(examples: Sequence[Passages]) -> list[Passages]:
    """The same, but queries whose passages are equally good get some of other queries."""
    every = [text for example in examples for text in example.passages]
    completed = []
    for number, example in enumerate(examples):
        if example.grades and len(set(example.grades)) == 1 and example.grades[0] > 0:
            drawn = np.random.default_rng(number).permutation(len(every))[: 4 * DRAWN]
            others = dict.fromkeys(every[place] for place in drawn)
            negatives = [text for text in others if text not in example.passages][:DRAWN]
            grades = example.grades + (0.0,) * len(negatives)
            example = replace(example, passages=(*example.passages, *negatives), grades=grades)
        completed.append(example)
    return completed


EXAMPLES = "The Analytical Engine was designed by Charles Babbage.\n"
EXAMPLES += "A street in London.\nBees make honey."


class RankRequest(RequestBody):
    """A query and passages."""

    query: Annotated[str, form("Query", "Who designed the engine?", rows=0)]
    passages: Annotated[list[str], Field(min_length=1), form("Passages, one per line", EXAMPLES)]
    top: Annotated[int, Field(ge=1, le=10_000)] | None = None


class RankMethods(Askable):
    """`rerank`."""

    def rerank(
        self, query: str, passages: Sequence[str], *, top: int | None = None
    ) -> list[RankedPassage]:
        """Return the passages with their scores, the most relevant to the query first."""
        texts = listed_strings(passages, "passages")
        most = None if top is None else positive(top, "top")
        request = RankRequest.model_construct(query=query, passages=texts, top=most)
        return self.ask(TASK, request) if texts else []


class RerankingTask(Task):
    """The passages of a query, the most relevant first."""

    reading, head = READING, "classify"
    hub_tag, opens_as = "text-ranking", ""
    usage = 'rerank("A query", ["A passage.", "Another."])'
    defaults: ClassVar = {"batch_size": 8, "epochs": 2}
    stored = ("ranks_passages", "sentence_transformers")
    learner, losses = RerankingTraining, LOSSES
    label_at, measures = "grades", ("ndcg_at_10", "mean_reciprocal_rank")
    kinds = carriers = (Passages,)
    confident = False
    row_columns, needs_pair = ("query", "passage"), True

    verb, ability, heads = "rank", "rank passages", ("classify",)
    title, question = "Rerank", "Which passages are most relevant to a query?"
    Request, Answer, Methods = RankRequest, list[RankedPassage], RankMethods

    def can(self, bert: LoadedModel) -> bool:
        """One output for a pair, and sentence-transformers' settings of a CrossEncoder."""
        single = "classify" in bert.model.heads and len(bert.checkpoint.labels) == 1
        return single and "sentence_transformers" in bert.checkpoint.settings

    def call(self, bert: LoadedModel, request: RankRequest) -> Call:
        passages = request.passages
        queries = [request.query] * len(passages)
        return Call(rank, (request.query, passages, request.top), queries, passages)

    def pair_scores(self, bert: LoadedModel) -> PairScores:
        return PairScores(pair_logits, "output of the reranker; higher is better", True, True)

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        return replace(example, grades=tuple(prediction.value))

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        flat = [(one.query, passage) for one in examples for passage in one.passages]
        logits = pair_logits(bert, *map(list, zip(*flat, strict=True)))
        scores, predictions = iter(torch.tensor(logits).sigmoid().tolist()), []
        for example in examples:
            own = list(islice(scores, len(example.passages)))
            output = {"score": own[0]} if len(own) == 1 else {"scores": own}
            predictions.append(Prediction(tuple(own), max(own), output))
        return predictions

    def correctness(self, example: Any, value: Any) -> float:
        return ndcg(*ranking(example, value), 10)

    def score(self, dataset: Dataset[Any], values: Any, bert: LoadedModel | None) -> Scorer:
        rankings = list(map(ranking, dataset.examples, values))
        gains = [ndcg(*one, 10) for one in rankings]
        firsts = [reciprocal_rank(*one) for one in rankings]
        return mean_scores(ndcg_at_10=gains, mean_reciprocal_rank=firsts)

    def notes(self, bert: LoadedModel, dataset: Dataset[Any]) -> list[str]:
        usual = sorted(len(one.passages) for one in dataset.examples)[len(dataset) // 2]
        easy = f"half of the queries have at most {usual} passages to rank, which is easy"
        return [easy] if usual < 10 else []

    def display(self, example: Any, prediction: Prediction) -> Display:
        passages = [DisplayText(example.query, title=True)]
        for name in ranking(example, prediction.value)[0]:
            text, grade = example.passages[int(name)], example.grades[int(name)]
            note = f"grade {grade:g}, score {prediction.value[int(name)]:.3g}"
            marks = (Mark(0, len(text), "correct", note),) if grade > 0 else ()
            passages.append(DisplayText(text, marks))
        return Display(tuple(passages))

    def spoken(self, value: Any) -> str:
        return ", ".join(f"{one:.3g}" for one in value or ())


def ranking(example: Passages, value: Sequence[float]) -> tuple[list[str], dict[str, float]]:
    """The passages' numbers by falling score (for ties, the worse first), and their grades."""
    grades = example.grades or ()
    order = sorted(range(len(value)), key=lambda place: (-value[place], grades[place]))
    return [str(place) for place in order], {str(n): grade for n, grade in enumerate(grades)}


TASK = RerankingTask()
