"""Reranking with pairs and token states; answers with their place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Hit, Index, Reranker, answers, evaluate_search
from bertsmith.search.build import BuildSettings, add_documents
from bertsmith.search.evaluate import write_run
from tasks.models import Maker


def test_pairs(index: Index, made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=1).ours
    hits = index.search("cats eat fish", top=5, rerank=Reranker(bert))
    plain = {hit.passage: hit for hit in index.search("cats eat fish", top=50)}
    want = {
        hit.passage: bert.classify("cats eat fish", f"{above(hit)}{hit.text}").score
        for hit in plain.values()
    }
    best = sorted(want.values(), reverse=True)[:5]
    assert [hit.score for hit in hits] == pytest.approx(best, abs=1e-5)
    assert all(hit.score == pytest.approx(want[hit.passage], abs=1e-5) for hit in hits)


def above(hit: object) -> str:
    title, heading = hit.title, hit.heading
    parts = [heading] if title and heading.startswith(title) else [title, heading]
    return "".join(f"{part}\n" for part in parts if part)


def test_late_interaction(index: Index, made: Maker) -> None:
    """The mean over the query's tokens of the largest cosine with a token of the passage."""
    bert = made("bert", "Model").ours
    hit = index.search("cats eat fish", top=1, rerank=Reranker(bert))[0]
    states = bert.states(["cats eat fish", f"{above(hit)}{hit.text}"])
    first, second = (one.vectors / np.linalg.norm(one.vectors, axis=1)[:, None] for one in states)
    assert hit.score == pytest.approx(float((first @ second.T).max(1).mean()), abs=1e-5)


def test_answers_know_their_place(index: Index, made: Maker, folder: Path) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    hits = index.search("where do cats sleep", top=8)
    for one in answers(bert, "where do cats sleep?", hits):
        hit = next(hit for hit in hits if hit.passage == one.passage)
        assert hit.text[one.start - hit.start : one.end - hit.start] == one.text
        if hit.unit == "line" and hit.kind in ("text", "markdown", "code"):
            text = Path(one.file).read_text("utf-8")
            assert text[one.start : one.end] == one.text
            assert text.count("\n", 0, one.start) == one.line - 1
    assert answers(bert, "  ", hits) == answers(bert, "a question", []) == []


def test_answers_need_a_head(index: Index, made: Maker) -> None:
    with pytest.raises(BertsmithError, match="fine-tuned for answering"):
        answers(made("bert", "Model").ours, "who?", index.search("cats"))


class FavouriteFirst:
    """A reranker of the first 50 passages; its scores are negative, as logits are."""

    def __init__(self, favourite: str) -> None:
        self.favourite = favourite

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        scores = [-0.5 if hit.document == self.favourite else -9.0 for hit in hits[:50]]
        scored = [replace(hit, score=one) for hit, one in zip(hits, scores, strict=False)]
        return [*sorted(scored, key=lambda hit: -hit.score), *hits[50:]]


def test_the_order_of_a_reranker_counts(tmp_path: Path) -> None:
    """Reranked passages come first, whatever the scale of their scores."""
    documents = [{"id": f"d{n}", "text": "apple " * (n % 7 + 1) + str(n)} for n in range(120)]
    add_documents(tmp_path / "i", documents, BuildSettings(keywords_only=True))
    index = Index(tmp_path / "i")
    plain = index.search("apple", 150, mode="keywords", by_document=True)
    name = plain[40].document
    options: Any = {"mode": "keywords", "rerank": FavouriteFirst(name)}
    scores = evaluate_search(index, {"q": "apple"}, {"q": {name: 1}}, draws=20, **options)
    assert scores.means == {"ndcg@10": 1.0, "recall@100": 1.0, "mrr": 1.0}
    hits = index.search("apple", 150, by_document=True, **options)
    assert list(scores.run["q"]) == [hit.document for hit in hits][:100]
    write_run(tmp_path / "run", scores)
    columns = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    written = [float(score) for *_, score, _ in columns]
    assert written == sorted(written, reverse=True)
    assert len({*written}) == 100


def test_a_reranker_reads_as_many_passages_as_asked(tmp_path: Path) -> None:
    documents = [{"id": f"d{n}", "text": "apple " * (n % 7 + 1) + str(n)} for n in range(60)]
    add_documents(tmp_path / "i", documents, BuildSettings(keywords_only=True))
    index = Index(tmp_path / "i")
    plain = [hit.document for hit in index.search("apple", 60)]
    for depth, place in ((5, 4), (5, 5), (60, 59)):
        options: Any = {"rerank": FavouriteFirst(plain[place]), "rerank_top": depth}
        first = index.search("apple", **options)[0].document
        assert (first == plain[place]) == (place < min(depth, 50))
    with pytest.raises(BertsmithError, match="rerank_top"):
        index.search("apple", rerank=FavouriteFirst("d1"), rerank_top=0)
