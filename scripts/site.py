"""What MkDocs does beyond docs/: pages from outside, notebooks, GitHub's Markdown, the explorer.

`mkdocs.yml` names this file under `hooks`. It adds CONTRIBUTING.md and CHANGELOG.md as pages, turns
the notebooks into pages with their stored outputs, and copies files that pages link to. It makes
the explorer of bertsmith-classic and a page that trains, and puts a panel of the explorer where a
page has a line such as `<!-- explorer: text=A text with [MASK].&panel=attention&layer=2 -->`.
The keys are those of the explorer's address, with `when=seen` for a panel that opens without a
click.
"""

import json
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]]*\]\()([\w/.-]+)((?:#[\w-]+)?\))")
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
EXPLORER, TRAINING = "panels/explorer.html", "panels/train.html"
PANEL = re.compile(r"^<!-- explorer: (.+?) -->$", re.MULTILINE)
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
    explorer()
    for name in (EXPLORER, TRAINING):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "build" / name)))
    return files


def explorer() -> None:
    """Make the explorer of bertsmith-classic and the page that trains, unless they are there."""
    path = ROOT / "build" / EXPLORER
    house = ROOT / "src" / "bertsmith"
    pages = house / "pages"
    sources = [
        *(house / "explorer").glob("*.py"),
        *pages.rglob("explorer*"),
        *pages.rglob("train*"),
    ]
    newest = max(source.stat().st_mtime for source in sources)
    if not path.is_file() or path.stat().st_mtime < newest:
        import bertsmith
        from bertsmith.explorer import training_page

        path.parent.mkdir(parents=True, exist_ok=True)
        bertsmith.load("bertsmith-classic", device="cpu").explorer(path, name="bertsmith-classic")
        training_page(ROOT / "build" / TRAINING)


def panel(match: re.Match[str], place: str) -> str:
    """A panel of the explorer: a link, which a script opens in place."""
    keys = dict(parse_qsl(match[1].replace("+", "%2B"), keep_blank_values=True))
    when, text = keys.pop("when", ""), keys.get("text", "")
    keys.setdefault("panel", "overview,pieces,attention,layers")
    address = f"{posixpath.relpath(EXPLORER, posixpath.dirname(place) or '.')}#{urlencode(keys)}"
    link = f'<a href="{escape(address)}" data-text="{escape(text)}">Run it in your browser</a>'
    about = f"<code>{escape(text)}</code> {link} (bertsmith-classic, 15 MB, from this site)"
    return f'<div class="panel" data-when="{escape(when)}"><p>{about}</p></div>'


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adjust a page to python-markdown: links out of docs/, Markdown in <details>, doctests."""
    name = page.file.src_uri
    if page.file.generated_by is None:
        folder = posixpath.join("docs", posixpath.dirname(name)).rstrip("/")
        markdown = moved(with_drawings(markdown, ROOT / folder), folder, name)
    place = posixpath.dirname(page.file.dest_uri) or "."
    link = f'<p><a href="{posixpath.relpath(TRAINING, place)}">Train a BERT in your browser</a></p>'
    markdown = markdown.replace("<!-- train -->", link)
    markdown = PANEL.sub(lambda one: panel(one, page.file.dest_uri), markdown)
    markdown = re.sub(r"^<details>", "<details markdown>", markdown, flags=re.MULTILINE)
    return re.sub(r"^```python\n(?=>>>)", "```pycon\n", markdown, flags=re.MULTILINE)


def with_drawings(markdown: str, folder: Path) -> str:
    """Put drawings into the page itself, so that they have the colors of its scheme."""

    def drawing(match: re.Match[str]) -> str:
        text = (folder / match[2]).read_text("utf-8")
        if 'class="pic"' not in text:
            return match[0]
        text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL).replace("\n", "")
        return f'<figure class="drawing">{text}</figure>'

    return re.sub(r"^!\[([^\]]*)\]\(([\w/.-]+\.svg)\)$", drawing, markdown, flags=re.MULTILINE)


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
