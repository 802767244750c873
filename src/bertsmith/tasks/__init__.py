"""The uses of a model: fill masks, embed, classify, tag, answer, choose."""

from bertsmith.tasks.answering import Answer
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classification import Classification
from bertsmith.tasks.filling import Guess
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.tagging import Entity

__all__ = ["Answer", "Choice", "Classification", "Entity", "Guess", "LoadedModel"]
