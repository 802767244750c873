"""Run the notebooks and store their outputs: `python scripts/notebooks.py [NAME...]`.

The code cells of a notebook run in one process without Jupyter, so that tests need no kernel. What
a cell prints and the value of its last line are stored as Jupyter would store them.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
Cell = dict[str, Any]


def main() -> None:
    """Run the notebooks that are named, or all, and write them with their outputs."""
    names = sys.argv[1:]
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or any(name in path.name for name in names):
            notebook = read(path)
            run(notebook)
            write(path, notebook)


def read(path: Path) -> dict[str, Any]:
    """Read a notebook."""
    return json.loads(path.read_text("utf-8"))


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook as Jupyter does."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def run(notebook: dict[str, Any]) -> None:
    """Run all code cells in an empty folder, and put their outputs into the notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(cells, 1):
                cell["execution_count"] = number
                cell["outputs"] = run_cell("".join(cell["source"]), names, number)
        finally:
            os.chdir(here)


def run_cell(source: str, names: dict[str, Any], number: int) -> list[Cell]:
    """Run one cell; return its outputs."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 - our own notebooks
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307
    outputs: list[Cell] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": lines(value._repr_html_()), **data}
        outputs.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def lines(text: str) -> list[str]:
    """A text as notebooks store it; temporary folders are left out."""
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/tmp\w+/", "", text)
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main()
