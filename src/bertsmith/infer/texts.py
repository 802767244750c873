"""Texts as callers give them: a list, a column or a generator of strings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertsmith.errors import BertsmithError


def listed(given: Any, name: str = "texts") -> list[Any]:
    """The items of a list, a column, an array or a generator; a single string is an error."""
    if hasattr(given, "columns") and not isinstance(given, Sequence):
        raise BertsmithError(f'{name} is a table; give one of its columns, such as table["text"]')
    if not isinstance(given, str | bytes | Mapping) and isinstance(given, Iterable):
        try:
            return list(given)
        except TypeError:  # an array without dimensions
            pass
    raise BertsmithError(f"{name} must be a list of strings, not of type {type(given).__name__}")


def listed_strings(given: Any, name: str = "texts") -> list[str]:
    """The same, and every item is a string."""
    items = listed(given, name)
    for number, item in enumerate(items):
        if not isinstance(item, str):
            kind = type(item).__name__
            raise BertsmithError(f"{name} must be strings, but number {number} is of type {kind}")
    return items
