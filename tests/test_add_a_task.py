"""The task in docs/architecture.md works: its files in a folder, and nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.models import Maker

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "src" / "bertsmith"
FILE = re.compile(r"^`tasks/grades/(\w+\.py)`.*?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

BREAK = "----"
# The program with each command, and the use in Python: one process, which imports torch once.
USE_IT = f"""
import json, sys
import bertsmith as bs
from bertsmith.cli import main
from bertsmith.tasks.registry import USES
sys.stderr = sys.stdout
for words in json.loads(sys.argv[1]):
    commands, sys.argv[1:] = sys.argv[1:], words
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words
    sys.argv[1:] = commands
    print({BREAK!r})
print(bs.load(sys.argv[2]).grade('Paris number 3'), USES['grade'].title)
"""


def with_task(folder: Path) -> Path:
    """A copy of the package, of links, with one more folder in tasks/."""
    package = folder / "bertsmith"
    (package / "tasks" / "grades").mkdir(parents=True)
    for source, target in ((HOUSE, package), (HOUSE / "tasks", package / "tasks")):
        for path in source.iterdir():
            if path.name not in ("tasks", "__pycache__"):
                (target / path.name).symlink_to(path)
    write_task(package / "tasks" / "grades")
    return folder


def write_task(folder: Path) -> None:
    """Write the task's files."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    files = dict(FILE.findall(page))
    assert set(files) == {"__init__.py", "reading.py", "task.py"}
    for name, code in files.items():
        (folder / name).write_text(code, "utf-8")


def test_the_task_of_the_page_works(made: Maker, tmp_path: Path) -> None:
    place = with_task(tmp_path / "with")
    rows = [
        {"text": f"{words} number {n}", "grades": stars}
        for n in range(12)
        for words, stars in (("the storm", 1), ("old bees", 2), ("Paris", 5))
    ]
    data, out = tmp_path / "rows.jsonl", tmp_path / "grader"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(made("bert", "Model").folder)
    learn = ("--epochs", "40", "--learning-rate", "3e-3", "--device", "cpu")
    commands = [
        ["finetune", model, str(data), "--dev", str(data), "--out", str(out), *learn],
        ["predict", str(out), "Paris number 3"],
        ["evaluate", str(out), str(data)],
    ]
    command = [sys.executable, "-c", USE_IT, json.dumps(commands), str(out)]
    more = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(command, capture_output=True, text=True, env=more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    learned, predicted, evaluated, used = done.stdout.split(BREAK)
    assert "task: grades (guessed: it has texts and grades)" in learned
    report = json.loads((out / "report.json").read_text())
    assert report["scores"]["dev"]["spearman"] > 0.9
    assert '"grade": 5' in predicted
    assert "spearman" in evaluated
    assert used.split() == ["5.0", "Grade"]


@pytest.mark.slow
def test_the_task_of_the_page_passes_mypy(tmp_path: Path) -> None:
    (folder := tmp_path / "grades").mkdir()
    write_task(folder)
    command = [sys.executable, "-m", "mypy", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
