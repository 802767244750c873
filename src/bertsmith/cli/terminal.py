"""The consoles on which tables and progress are printed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Where tables go; as wide as the terminal, and as wide as they like where there is none."""
    from rich.console import Console

    class Tables(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich's own ends with status 1

    return Tables(highlight=False, width=None if sys.stdout.isatty() else 1000)
