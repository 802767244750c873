"""Parameters of a large table of cases: a few run always, the others are marked slow."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """All cases for `parametrize`; those that are not in `quick` run in `make test-all` only."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if case in quick else [pytest.mark.slow],
        )
        for case in cases
    ]
