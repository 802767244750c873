"""The areas of the standard library: which of them a module belongs to."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def _areas() -> dict[str, str]:
    """The area of each module and package that has one, from areas.toml."""
    areas = tomllib.loads((files("bertsmith.demo") / "areas.toml").read_text("utf-8"))["areas"]
    return {module: area for area, modules in areas.items() for module in modules.split()}


def area_of(module: str) -> str:
    """The area of a module, by the package it is in; "" where it has none."""
    return _areas().get(module.partition(".")[0], "")
