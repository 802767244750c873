"""The notebooks run, their stored outputs are there, and they name no machine."""

import re
import sys
from copy import deepcopy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import notebooks  # noqa: E402 - a script, not a package

PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
QUICK = ("1-", "6-", "8-")  # the others train or ablate, for up to two minutes
MARKS = [[] if path.name.startswith(QUICK) else [pytest.mark.slow] for path in PATHS]
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=marks) for path, marks in zip(PATHS, MARKS, strict=True)],
    ids=lambda path: path.stem,
)
def test_it_runs(path: Path) -> None:
    notebook = deepcopy(notebooks.read(path))
    notebooks.run(notebook)  # its own assertions are part of it


def test_there_are_eight() -> None:
    assert [path.name[:2] for path in PATHS] == [f"{number}-" for number in range(1, 9)]


@EACH
def test_outputs_are_stored(path: Path) -> None:
    """Every cell was run, in order; of those that end with a value, the value is there."""
    cells = [cell for cell in notebooks.read(path)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= 4
    kinds = [output["output_type"] for cell in cells for output in cell["outputs"]]
    assert set(kinds) <= {"stream", "execute_result"}  # no error


@EACH
def test_no_machine_is_named(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.findall(r"(?<![\w.>)\]}])/(?:home|root|tmp|work|Users)/\w+", text) == []
    assert path.stat().st_size < 600_000


@EACH
def test_the_first_cell_says_how_to_install(path: Path) -> None:
    first = "".join(notebooks.read(path)["cells"][0]["source"])
    assert first.startswith(f"# {path.name[0]} ")
    assert "make install" in first
    assert "Colab" in first


def test_a_cell_is_run_as_jupyter_does() -> None:
    outputs = notebooks.run_cell("print('a')\nx = 2\nx + 1", {}, 5)
    assert outputs[0] == {"name": "stdout", "output_type": "stream", "text": ["a\n"]}
    assert outputs[1]["data"] == {"text/plain": ["3"]}
    assert outputs[1]["execution_count"] == 5
    assert notebooks.run_cell("x = 1\nNone", {}, 1) == []
