"""An index of a person's documents: files → passages → keywords and vectors → ranked passages."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.search.evaluate import SearchScores, evaluate_search
    from bertsmith.search.hits import Hit
    from bertsmith.search.index import Index
    from bertsmith.search.rerank import FoundAnswer, Reranker, answers
    from bertsmith.search.update import Update

# Imported when first used: a search by keywords does not wait for PyTorch.
_HOMES = {
    "FoundAnswer": "rerank",
    "Hit": "hits",
    "Index": "index",
    "Reranker": "rerank",
    "SearchScores": "evaluate",
    "Update": "update",
    "answers": "rerank",
    "evaluate_search": "evaluate",
}
__all__ = ["FoundAnswer", "Hit", "Index", "Reranker", "SearchScores", "Update", "answers"]
__all__ += ["evaluate_search"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith.search' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.search.{_HOMES[name]}"), name)
