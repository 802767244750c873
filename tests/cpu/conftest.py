"""Models of these tests."""

from pathlib import Path

import pytest

from serve.live import tiny


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A classifier with random weights."""
    tiny(("classify",), id2label={"0": "no", "1": "yes"}, num_hidden_layers=3).save(tmp_path / "m")
    return tmp_path / "m"
