"""Hard negatives: the best hits of a query that are not relevant, for training on them."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.search.evaluate import Judgements, document_name, judged_queries
from bertsmith.search.fuse import fuse
from bertsmith.search.index import FUSION, Index
from bertsmith.search.rerank import Reranker
from bertsmith.search.store import StoredPassage
from bertsmith.settings import picked, taking
from bertsmith.settings.search import MiningSettings
from bertsmith.tasks.read import read_data
from bertsmith.tasks.similarity.reading import Related
from bertsmith.tasks.similarity.task import TASK

PORTION = 256  # queries that are mined together


@dataclass(frozen=True)
class MiningQuestion:
    """A query, the texts that answer it, and passages that are not its negatives."""

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()  # that are known already
    relevant: frozenset[int] = frozenset()


@taking(MiningSettings)
def mine(
    index: Index,
    questions: Sequence[MiningQuestion],
    report: Callable[[int, int], None] = lambda done, total: None,
    **given: Any,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each question: `anchor`, `positive` and `negative` (lists of texts).

    Negatives are the best hits of the index that are not relevant. A hit whose cosine with the
    query is within a margin of the best positive's is left out: it may be relevant, too. With a
    teacher, its scores decide instead, and rows have them as `scores`: of positives, then of
    negatives. `finetune` reads such rows.
    """
    how = picked(MiningSettings, given, only=True)
    if index.about["model"] is None and how.mode == "vectors":
        raise BertsmithError(f"{index.path}: was built without vectors: mine by keywords")
    teacher = index.reranker(how.teacher)
    if teacher is not None and teacher.pairs is None:
        needed = "a teacher is a reranker or a classifier of pairs; this model has no such head"
        raise BertsmithError(f"{how.teacher}: {needed}")
    for start in range(0, len(questions), PORTION):
        portion = questions[start : start + PORTION]
        texts = list(dict.fromkeys(text for question in portion for text in question.positives))
        vectors = dict(zip(texts, index.embed_passages(texts), strict=True))
        for number, question in enumerate(portion, start + 1):
            yield _row(index, question, how, vectors, teacher)
            report(number, len(questions))


def _row(
    index: Index,
    question: MiningQuestion,
    how: MiningSettings,
    vectors: Mapping[str, Any],
    teacher: Reranker | None,
) -> dict[str, Any]:
    words, near = index.rankings(question.query)
    ranking = words if how.mode == "keywords" else near
    if how.mode == "hybrid":
        ranking = fuse(words, near, index.weights, FUSION)
    ids = [number for number, _ in ranking[how.skip : how.skip + how.depth]]
    limit, cosines = float("inf"), dict(near)
    if near and teacher is None:
        query = index.embed(question.query)
        best = max(float(vectors[text] @ query) for text in question.positives)
        limit = min(best - how.margin, best - abs(best) * how.relative_margin)
    # A passage that the ranking by vectors does not list is further away than all that it does.
    ids = [n for n in ids if n not in question.relevant and cosines.get(n, -1.0) <= limit]
    kept = list(_different(index.passages(ids), question, 4 if teacher else 1, how.negatives))
    row: dict[str, Any] = {"anchor": question.query, "positive": list(question.positives)}
    if teacher is None:
        return {**row, "negative": [*question.negatives, *kept]}
    return {**row, **_scored(teacher, question, kept, how)}


def _different(
    passages: Iterable[StoredPassage], question: MiningQuestion, times: int, count: int
) -> Iterator[str]:
    """At most `times` × `count` texts, none of which contains another or a positive."""
    known = {_plain(text) for text in (*question.positives, *question.negatives)}
    left = times * count
    for passage in passages:
        own = _plain(passage.text)
        if left and own and not any(own in other or other in own for other in known):
            known.add(own)
            left -= 1
            yield passage.content


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _scored(
    teacher: Reranker, question: MiningQuestion, texts: list[str], how: MiningSettings
) -> dict[str, Any]:
    """The negatives that a teacher scores below the best positive, and the scores of all texts."""
    near, far = list(question.positives), [*question.negatives, *texts]
    scores = teacher.scores(question.query, [*near, *far])
    best = scores[: len(near)]
    pairs = zip(far, scores[len(near) :], strict=True)
    kept = [(text, score) for text, score in pairs if score < max(best) - how.margin]
    kept = kept[: len(question.negatives) + how.negatives]
    return {
        "negative": [text for text, _ in kept],
        "scores": [round(score, 6) for score in (*best, *(score for _, score in kept))],
    }


def judged_questions(
    index: Index, queries: Mapping[str, str], judgements: Judgements
) -> list[MiningQuestion]:
    """Queries with the best passage of each document that is relevant to them."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for number, place in index.places().items():
        by_name[document_name(*place)].append(number)
    questions = []
    for name in judged_queries(queries, judgements):
        relevant = [document for document, grade in judgements[name].items() if grade > 0]
        documents = [by_name[document] for document in relevant if document in by_name]
        if not documents:
            continue
        words, near = index.rankings(queries[name])
        ranks = {number: rank for rank, (number, _) in enumerate(near or words)}
        best = [min(ids, key=lambda number: ranks.get(number, len(ranks))) for ids in documents]
        texts = tuple(passage.content for passage in index.passages(best))
        passages = frozenset(chain.from_iterable(documents))
        questions.append(MiningQuestion(queries[name], texts, (), passages))
    if not questions:
        raise BertsmithError("no relevant document of any query is in the index")
    return questions


def read_questions(path: Path) -> list[MiningQuestion]:
    """Queries with their positives, from any file that has columns of both."""
    examples = read_data(path, TASK.name).examples
    if not all(isinstance(example, Related) for example in examples):
        raise BertsmithError(
            f"{path}: pairs with scores; mining needs queries with texts that answer them "
            f"(columns anchor and positive), or queries with {setting_name('judgements')}"
        )
    parts = ((row, 1 + len(row.positives)) for row in examples)  # after the anchor
    return [MiningQuestion(row.anchor, row.positives, row.texts[end:]) for row, end in parts]
