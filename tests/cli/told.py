"""The program in this process, from its words to its exit status: torch is imported only once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bertsmith.cli.app import main
from cli.conftest import Output


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str | Path
) -> Output:
    """What the program says, and its exit status."""
    monkeypatch.setattr(sys, "argv", ["bertsmith", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    return Output(int(end.value.code or 0), said.out, said.err)
