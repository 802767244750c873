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

    def bertsmith(*words: str) -> str:
        command = [sys.executable, "-m", "bertsmith", *words]
        more = {**os.environ, "PYTHONPATH": str(place)}
        done = subprocess.run(command, capture_output=True, text=True, env=more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    learn = ("--epochs", "40", "--learning-rate", "3e-3", "--device", "cpu")
    said = bertsmith("finetune", model, str(data), "--dev", str(data), "--out", str(out), *learn)
    assert "task: grades (guessed: it has texts and grades)" in said
    report = json.loads((out / "report.json").read_text())
    assert report["scores"]["dev"]["spearman"] > 0.9
    assert '"grade": 5' in bertsmith("predict", str(out), "Paris number 3")
    assert "spearman" in bertsmith("evaluate", str(out), str(data))
    code = "import sys, bertsmith as bs; from bertsmith.tasks.registry import USES; "
    code += "bert = bs.load(sys.argv[1]); print(bert.grade('Paris number 3'), USES['grade'].title)"
    more = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=more, cwd=tmp_path)
    assert done.stdout.split() == ["5.0", "Grade"], done.stderr


@pytest.mark.slow
def test_the_task_of_the_page_passes_mypy(tmp_path: Path) -> None:
    (folder := tmp_path / "grades").mkdir()
    write_task(folder)
    command = [sys.executable, "-m", "mypy", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
