"""An index of a person's documents: files → passages → keywords and vectors → ranked passages."""

from bertsmith.search.evaluate import SearchScores, evaluate_search
from bertsmith.search.hits import Hit
from bertsmith.search.index import Index
from bertsmith.search.rerank import FoundAnswer, Reranker, answers
from bertsmith.search.update import Update

__all__ = ["FoundAnswer", "Hit", "Index", "Reranker", "SearchScores", "Update", "answers"]
__all__ += ["evaluate_search"]
