"""What MkDocs does beyond docs/: pages from outside, notebooks, GitHub's Markdown.

`mkdocs.yml` names this file under `hooks`. It adds CONTRIBUTING.md and CHANGELOG.md as pages, turns
the notebooks into pages with their stored outputs, and copies files that pages link to.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]]*\]\()([\w/.-]+)((?:#[\w-]+)?\))")
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ABOUT = "\n\n*This page is the notebook [{name}](files/{name}) with its stored outputs.*"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and files that are not in docs/."""
    from mkdocs.structure.files import File

    for source, name in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, name, content=moved(text, "", name)))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        title, _, rest = notebook_page(json.loads(path.read_text("utf-8"))).partition("\n")
        about = ABOUT.format(name=path.name)
        text = moved(f"{title}\n{rest}", "notebooks", name).replace(title, title + about, 1)
        files.append(File.generated(config, name, content=text))
        copy = f"notebooks/files/{path.name}"
        files.append(File.generated(config, copy, abs_src_path=str(path)))
    for name in sorted(outside_files()):
        files.append(File.generated(config, f"files/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adjust a page to python-markdown: links out of docs/, Markdown in <details>, doctests."""
    name = page.file.src_uri
    if page.file.generated_by is None:
        folder = posixpath.join("docs", posixpath.dirname(name)).rstrip("/")
        markdown = moved(markdown, folder, name)
    markdown = re.sub(r"^<details>", "<details markdown>", markdown, flags=re.MULTILINE)
    return re.sub(r"^```python\n(?=>>>)", "```pycon\n", markdown, flags=re.MULTILINE)


def outside_files() -> set[str]:
    """Files outside docs/ that pages link to, relative to the repository."""
    names = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for _, link, _ in LINK.findall(page.read_text("utf-8")):
            name = posixpath.relpath((page.parent / link).resolve(), ROOT)
            if not name.startswith("docs/") and Path(name).name not in PAGES:
                names.add(name)
    return {name for name in names if not name.endswith((".ipynb", ".md"))}


def moved(markdown: str, folder: str, name: str) -> str:
    """Rewrite the links of a page that lies in `folder` for the page `name` of the site."""

    def link(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        return before + posixpath.relpath(site_path(path), posixpath.dirname(name) or ".") + after

    return LINK.sub(link, markdown)


def site_path(path: str) -> str:
    """The place on the site of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("notebooks/"):
        return path.replace(".ipynb", ".md")
    return f"files/{path}"


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook as Markdown, with their outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := output_block(output))]
    return "\n\n".join(parts) + "\n"


def output_block(output: dict[str, Any]) -> str:
    """One output of a cell: its HTML if there is any, else its text."""
    data = output.get("data", {})
    if "text/html" in data:
        # One line: python-markdown ends a block of raw HTML at a blank line. In a style a line
        # break is a space, in the source of a frame it is a character.
        html = "".join(data["text/html"])
        html = re.sub(
            r"<style>.*?</style>", lambda one: one[0].replace("\n", " "), html, flags=re.S
        )
        return f'<div class="output">{html.replace(chr(10), "&#10;")}</div>'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'```text title="output"\n{text.rstrip()}\n```' if text.strip() else ""
