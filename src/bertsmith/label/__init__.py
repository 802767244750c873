"""Labelling: a file of labels that loses nothing, the texts to label next, and agreement."""

from bertsmith.label.file import agreement
from bertsmith.label.session import Session, labelling, texts_to_label

__all__ = ["Session", "agreement", "labelling", "texts_to_label"]
