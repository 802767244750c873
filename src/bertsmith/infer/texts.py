"""Texts as callers give them: a list, a column or a generator of strings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertsmith.errors import BertsmithError


def listed(texts: Any, name: str = "texts") -> list[Any]:
    """The items of a list, a column, an array or a generator; a single string is an error."""
    if hasattr(texts, "columns") and not isinstance(texts, Sequence):
        raise BertsmithError(f'{name} is a table; give one of its columns, such as table["text"]')
    if not isinstance(texts, str | bytes | Mapping) and isinstance(texts, Iterable):
        try:
            return list(texts)
        except TypeError:  # an array without dimensions
            pass
    raise BertsmithError(f"{name} must be a list of strings, not of type {type(texts).__name__}")


def listed_strings(texts: Any, name: str = "texts") -> list[str]:
    """The same, and every item is a string."""
    items = listed(texts, name)
    for number, item in enumerate(items):
        if not isinstance(item, str):
            kind = type(item).__name__
            raise BertsmithError(f"{name} must be strings, but number {number} is of type {kind}")
    return items
