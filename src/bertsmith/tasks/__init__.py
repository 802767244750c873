"""Uses of a model: fill masks, embed, classify, tag, answer, choose; and how it learns them."""

from typing import TYPE_CHECKING, Any

from bertsmith.tasks.answering import Answer
from bertsmith.tasks.bert import Bert, load
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classification import Classification
from bertsmith.tasks.filling import Guess
from bertsmith.tasks.tagging import Entity

if TYPE_CHECKING:
    from bertsmith.tasks.classifier import Classifier

__all__ = ["Answer", "Bert", "Choice", "Classification", "Classifier", "Entity", "Guess", "load"]


def __getattr__(name: str) -> Any:
    """Find the classifier when it is first asked for: it looks for scikit-learn, which is slow."""
    if name == "Classifier":
        from bertsmith.tasks.classifier import Classifier

        return Classifier
    raise AttributeError(f"module 'bertsmith.tasks' has no attribute {name!r}")
