"""`compare`: run every part of a comparison that is not finished, then write the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertsmith.compare.spec import Spec
from bertsmith.errors import BertsmithError


def compare(
    spec: Spec,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    jobs: int = 0,
    merge: Sequence[str | Path] = (),
    texts: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train, fine-tune and score all variants of a spec."""
    raise BertsmithError("compare SPEC is being built: --static, --list and --print work")
