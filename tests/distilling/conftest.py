"""Tiny teachers, and small files to distil them on."""

import pytest

from bertsmith.distilling import speed
from finetuning.conftest import base, without_vectors, write

__all__ = ["base", "without_vectors", "write"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds are measured in no time, and mean nothing."""
    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setattr(speed, "MOST", 4)
