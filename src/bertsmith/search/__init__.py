"""An index of a person's documents: files → passages → keywords and vectors → ranked passages."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.search.adapting import Adapted, adapt
    from bertsmith.search.evaluate import SearchScores, evaluate_search
    from bertsmith.search.hits import Hit
    from bertsmith.search.index import Index
    from bertsmith.search.mining import mine
    from bertsmith.search.rerank import FoundAnswer, Reranker, answers
    from bertsmith.search.update import IndexUpdate
    from bertsmith.search.weights import LearnedWeights, learn_weights

# Imported when first used: a search by keywords does not wait for PyTorch.
_HOMES = {
    "Adapted": "adapting",
    "FoundAnswer": "rerank",
    "Hit": "hits",
    "Index": "index",
    "LearnedWeights": "weights",
    "Reranker": "rerank",
    "SearchScores": "evaluate",
    "IndexUpdate": "update",
    "adapt": "adapting",
    "answers": "rerank",
    "evaluate_search": "evaluate",
    "learn_weights": "weights",
    "mine": "mining",
}
__all__ = ["Adapted", "FoundAnswer", "Hit", "Index", "LearnedWeights", "Reranker", "SearchScores"]
__all__ += ["IndexUpdate", "adapt", "answers", "evaluate_search", "learn_weights", "mine"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith.search' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.search.{_HOMES[name]}"), name)
