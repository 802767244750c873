"""Uses of a model: fill masks, embed, classify, tag, answer, choose."""

from bertsmith.tasks.answering import Answer
from bertsmith.tasks.bert import Bert, load
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classification import Classification
from bertsmith.tasks.filling import Guess
from bertsmith.tasks.tagging import Entity

__all__ = ["Answer", "Bert", "Choice", "Classification", "Entity", "Guess", "load"]
