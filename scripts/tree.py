"""Rewrite the tree of files in docs/architecture.md from docstrings."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "src" / "bertsmith"
WIDTH = 20


PAGES = {".css": "Style of {}", ".html": "Template of {}", ".md": "Template of {}"}


def said(path: Path) -> str:
    if path.suffix == ".js":
        return path.read_text("utf-8").split("\n")[0].removeprefix("// ").rstrip(".")
    if path.suffix == ".toml":
        return str(tomllib.loads(path.read_text("utf-8"))["about"])
    if path.suffix in PAGES:
        return PAGES[path.suffix].format(path.stem.replace("_", " "))
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def lines(folder: Path, depth: int) -> list[str]:
    found = []
    for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        indent = "  " * depth
        if path.is_dir() and (path / "__init__.py").is_file():
            found.append(
                f"{indent}{path.name + '/':{WIDTH - 2 * depth}} {said(path / '__init__.py')}"
            )
            found += lines(path, depth + 1)
        elif path == HOUSE / "models":
            found += models(path, indent)
        elif path.is_dir() and path.name in ("assets", "specs", "templates"):
            found.append(f"{indent}{path.name}/")
            found += lines(path, depth + 1)
        elif path.suffix in (".py", ".pyi", ".toml", ".js", *PAGES) and path.name != "__init__.py":
            found.append(f"{indent}{path.name:{WIDTH - 2 * depth}} {said(path)}")
    return found


def models(folder: Path, indent: str) -> list[str]:
    about = "Trained models that come with the package, each a directory with a card of its own"
    found = [f"{indent}{'models/':{WIDTH - len(indent)}} {about}"]
    for path in sorted(folder.iterdir()):
        recipes = sorted((HOUSE / "recipes").glob(f"{path.name}*.toml"), key=lambda one: one.stem)
        script = f"benchmarks/{path.name.removeprefix('bertsmith-')}/encoder.py"
        makers = [f"recipes/{one.name}" for one in recipes] or [script]
        made = f"English, made by {' and '.join(makers)}"
        found.append(f"{indent}  {path.name + '/':{WIDTH - len(indent) - 2}} {made}")
    return found


def fill(path: Path, listed: list[str]) -> None:
    before, _, rest = path.read_text("utf-8").partition("src/bertsmith/\n")
    after = rest[rest.index("```") :]
    tree = "\n".join(["src/bertsmith/", *listed])
    path.write_text(f"{before}{tree}\n{after}", "utf-8")


def main() -> None:
    fill(ROOT / "docs" / "architecture.md", lines(HOUSE, 1))


if __name__ == "__main__":
    main()
