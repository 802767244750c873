"""Texts as callers give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bertsmith as bs
from bertsmith.errors import BertsmithError
from bertsmith.infer.texts import listed, listed_strings


class Table:
    """What a table of pandas or polars has."""

    columns = ("text", "label")

    def __iter__(self) -> Any:
        return iter(self.columns)


def test_lists_columns_and_generators() -> None:
    for given in (["a", "b"], ("a", "b"), np.array(["a", "b"]), (one for one in "ab")):
        assert listed_strings(given) == ["a", "b"]
    assert listed([("a", "b")]) == [("a", "b")]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("a text", "must be a list of strings, not of type str"),
        (None, "not of type NoneType"),
        ({"text": "a"}, "not of type dict"),
        (np.array("a"), "not of type ndarray"),
        (Table(), 'texts is a table; give one of its columns, such as table\\["text"\\]'),
        (["a", 1], "number 1 is of type int"),
    ],
)
def test_mistakes(given: Any, fault: str) -> None:
    with pytest.raises(BertsmithError, match=fault):
        listed_strings(given)


def test_the_package_names_what_it_has() -> None:
    assert set(bs.__all__) <= set(dir(bs))
