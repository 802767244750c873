"""Models that the tests of analysis share, each made once; two fixtures are those of tasks."""

from collections.abc import Callable
from typing import Any

import pytest

from bertsmith import Bert, create
from conftest import made, minilm_folder
from model.tiny import TINY
from tasks.words import tokenizer

__all__ = ["made", "minilm_folder", "small"]
Small = Callable[..., Bert]
KINDS = {name: name.split(",")[0].replace("v3", "v2") for name in TINY}


@pytest.fixture(scope="session")
def small() -> Small:
    """A toy model of a family, with a tokenizer of its own and weights that matter."""
    known: dict[str, Bert] = {}

    def make(name: str = "bert", heads: tuple[str, ...] = ("masked_lm",), **changes: Any) -> Bert:
        key = repr((name, heads, changes))
        if key not in known:
            words = tokenizer("bert" if KINDS[name] in ("electra", "distilbert") else KINDS[name])
            longest = {"max_position_embeddings": 130}
            settings = {**TINY[name], **longest, "vocab_size": words.size, **changes}
            known[key] = Bert(create(settings, heads=heads), words)
        return known[key]

    return make
