"""What all tests share: no network, few threads, real data where it is at hand."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

torch.set_num_threads(1)

DATA = Path(os.environ.get("BERTSMITH_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data, or a skip that says what is missing."""
    if not DATA.is_dir():
        pytest.skip(f"no real data: {DATA} is not there (set BERTSMITH_DATA)")
    return DATA
