"""Triton's interpreter, without the work that it repeats."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def quick_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the functions of Triton's language once a program.

    The interpreter does it again for each call of a function inside a program, which takes a third
    of its time. It looks for the language in the globals of a function.
    """
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    patch, language = interpreter._patch_lang, interpreter.tl
    both = SimpleNamespace(__globals__={"tl": language, "core": language.core})
    monkeypatch.setattr(interpreter, "_patch_lang", lambda _: patch(both))

    def call(function: Any, *arguments: Any, **more: Any) -> Any:
        return function.rewrite()(*arguments, **more)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)


@pytest.fixture
def unchecked_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers that may be too large for 32 bits: to look for them takes a third of the time.

    Tests of windows, of tiles and of odd layouts do look for them in the same programs.
    """
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
