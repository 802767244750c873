"""Pages: one file, a policy under which nothing else runs, text that stays text."""

import base64
import hashlib
import html
import re

import jinja2
import pytest

from bertsmith import __version__
from bertsmith.pages import page

HOSTILE = '"><script>alert(1)</script><b onclick="x">'
EMPTY = {"names": [], "rows": [], "differences": [], "notes": [], "objectives": [], "tree": []}


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_admits_the_one_style_and_the_one_script() -> None:
    text = page("runs.html", "A title", **EMPTY)
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src '{digest(style)}'" in policy
    assert f"script-src '{digest(script)}'" in policy
    assert "unsafe" not in policy
    # Neither style attributes nor event handlers: the policy would refuse them.
    assert not re.search(r"<[^>]+\s(style|on\w+)=", text.replace(style, "").replace(script, ""))


def test_nothing_is_loaded_from_anywhere() -> None:
    text = page("runs.html", "A title", **EMPTY)
    assert not re.search(r"https?:|//\w", text.partition("<script>")[0])
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,"]
    assert "@import" not in text
    assert "url(" not in text


def test_text_is_escaped() -> None:
    text = page("runs.html", HOSTILE, **{**EMPTY, "notes": [HOSTILE]})
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;alert(1)") == 3  # the title, the heading, the note


def test_frame() -> None:
    text = page("runs.html", "A title", **EMPTY)
    assert text.startswith("<!doctype html>")
    assert '<html lang="en">' in text
    assert "<title>A title</title>" in text
    assert "width=device-width" in text
    assert f"bertsmith {__version__}" in text


def test_more_assets_are_covered_by_the_policy() -> None:
    text = page("runs.html", "A title", scripts=["page.js", "page.js"], **EMPTY)
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert digest(script) in html.unescape(text)
    assert script.count('dataset.ready = "yes"') == 2


def test_pages_without_a_script_admit_none() -> None:
    text = page("runs.html", "A title", scripts=(), **EMPTY)
    assert "<script" not in text
    assert "script-src" not in text


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        page("runs.html", "A title")
