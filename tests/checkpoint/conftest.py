"""Good directories, made once, and copies of them to break."""

from pathlib import Path

import pytest

from checkpoint.folders import TINY, copy, make


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of each family; do not change them."""
    root = tmp_path_factory.mktemp("good")
    return {kind: make(root / kind, kind) for kind in TINY}


@pytest.fixture
def bert(good: dict[str, Path], tmp_path: Path) -> Path:
    """A BERT directory to break."""
    return copy(good["bert"], tmp_path / "model")
