"""Distillation: a teacher → a smaller or faster student; an encoder → static vectors.

distill("my-model", out="vectors", to="static")   # seconds, without data
"""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from bertsmith.distill.result import Distilled
from bertsmith.distill.run import distill
from bertsmith.distill.static import to_static

__all__ = ["Distilled", "distill", "to_static"]
__signature__ = signature(distill)  # shown by editors and notebooks, since the module is callable


class _Callable(ModuleType):
    """Lets `bertsmith.distill(...)` be the function of the same name in it."""

    def __call__(self, *arguments: Any, **options: Any) -> Distilled:
        return distill(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
