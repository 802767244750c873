"""The panels of the guide: the explorer knows their keys and has their parts."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "src/bertsmith/pages"
CHAPTERS = [p for p in (ROOT / "docs/understand").glob("*.md") if p.stem != "glossary"]


def hook() -> Any:
    spec = spec_from_file_location("site_hook", ROOT / "scripts/site.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [ROOT / "docs/index.md", *CHAPTERS], ids=lambda p: p.stem)
def test_a_page_has_a_panel_that_the_explorer_understands(path: Path) -> None:
    site, place = hook(), path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
    panels = list(site.PANEL.finditer(path.read_text("utf-8")))
    assert len(panels) == 1
    html = site.panel(panels[0], place)
    folder, keys = re.findall(r'href="([^"#]*)#([^"]*)"', html)[0]
    assert folder == ("../" if "/" in place else "") + "panels/explorer.html"
    given = parse_qs(keys.replace("&amp;", "&"))
    address = (ASSETS / "assets/explorer_address.js").read_text("utf-8")
    known = {"text", "second", "token", "cell", "layer", "head", "view", "panel"}
    assert given.keys() <= known
    assert all(f'"{key}"' in address for key in given)
    parts = re.findall(r'data-panel="(\w+)"', (ASSETS / "templates/explorer.html").read_text())
    assert set(given["panel"][0].split(",")) <= set(parts)
