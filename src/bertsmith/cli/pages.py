"""`--out`: the page that verbs which look inside a model can write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.errors import BertsmithError

Out = Annotated[Path | None, typer.Option(help="Write a page too: a .html file.")]


def check(out: Path | None) -> None:
    """Refuse what no browser would open as a page, before any work is done."""
    if out is not None and out.suffix not in (".html", ".htm"):
        raise BertsmithError(f"{out}: the page is a .html file")
