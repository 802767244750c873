"""What all tests share: no network, few threads, real data where it is at hand."""

import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
if not shutil.which("nvidia-smi"):  # before anyone imports Triton: its programs run on a CPU, too
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# Busy machines are slow, not wrong; the same examples each time, so that a failure is of the change
# that was made. `pytest --hypothesis-profile explore` looks for new ones.
settings.register_profile("here", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("here")

DATA = Path(os.environ.get("BERTSMITH_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data, or a skip that says what is missing."""
    if not DATA.is_dir():
        pytest.skip(f"no real data: {DATA} is not there (set BERTSMITH_DATA)")
    return DATA
