"""Pages: self-contained HTML files with a content security policy."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bertsmith import __version__


def page(
    template: str,
    title: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = ("page.js",),
    code: Sequence[str] = (),
    worker: Sequence[str] = (),
    connects: bool = False,
    **context: Any,
) -> str:
    """Render a template that extends frame.html to a whole page; text in `context` is escaped.

    `styles` are assets beyond page.css, `scripts` all scripts in their order, and `code` more of
    them as text. The content policy admits these by their hashes and nothing else, so templates
    must use neither style attributes nor event handlers. A page that `connects` may send requests
    to its server. `worker` are scripts of a worker, which the page starts from a Blob: its text.
    """
    style, script = _assets("page.css", *styles), "\n".join([_assets(*scripts), *code])
    allowed = f"script-src '{_hash(script)}'; " if script else ""
    allowed += "worker-src blob:; " if worker else ""
    allowed += "connect-src 'self'; " if connects else ""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; {allowed}"
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    frame = {"policy": policy, "style": Markup(style), "script": Markup(script)}
    frame["worker"] = Markup(_assets(*worker))
    return str(render(template, title=title, version=__version__, **frame, **context))


def render(template: str, **context: Any) -> Markup:
    """Render a template of this package; a value that is not there is an error."""
    return Markup(_environment().get_template(template).render(context))


def markdown(template: str, **context: Any) -> str:
    """Render a Markdown template of this package, such as a model card; nothing is escaped."""
    text = _environment(html=False).get_template(template).render(context, version=__version__)
    return f"{text}\n"


@cache
def _environment(html: bool = True) -> Environment:
    return Environment(
        loader=PackageLoader("bertsmith.pages"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _assets(*names: str) -> str:
    folder = files("bertsmith.pages") / "assets"
    return "\n".join((folder / name).read_text("utf-8") for name in names)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
