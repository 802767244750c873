"""The page at the end."""

import re
from dataclasses import replace
from typing import Any

import pytest

from analysis.browser import chromium
from bertsmith.demo.page import page
from bertsmith.tasks.task import Display, DisplayText, Mark
from demo.conftest import Made

EVIL = '<script>alert("1")</script>'
KEPT = ("folder",)  # in a link, and not from any text


def hostile(value: Any, key: str = "") -> Any:
    """The same value with a script in the place of every text."""
    if isinstance(value, dict):
        return {EVIL if key == "areas" else name: hostile(one, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(one, key) for one in value]
    if isinstance(value, str) and key not in KEPT:
        return f"{EVIL} [MASK]" if key == "sentences" else EVIL
    return value


def test_no_text_can_act(made: Made) -> None:
    results, run, head, _, own = made.parts
    labelled = Display((DisplayText(EVIL),), EVIL, "x", 0.5)
    tagged = Display((DisplayText(EVIL + EVIL, (Mark(0, len(EVIL), "missed"),)),))
    head = replace(head, tokens=[EVIL] * len(head.tokens))
    written = page(hostile(results), run, head, ([labelled], [tagged]), own)
    assert written.count("<script") == 1  # the page's own, which its policy names
    assert "alert(" not in written.partition("<script>")[2]
    assert written.count("&lt;script&gt;") > 20


def test_links_lead_to_what_was_made(made: Made) -> None:
    links = re.findall(r'href="([^"]+)"', (made.out / "index.html").read_text("utf-8"))
    assert set(links) == {
        "data:,",
        "classifier/report.html",
        "tagger/report.html",
        "attention.html",
        "film.html",
        "senses.html",
    }
    assert all((made.out / link).is_file() for link in links if link != "data:,")


@pytest.mark.parametrize("width", [700, 1280])
def test_a_browser_shows_it_in_both_schemes(made: Made, width: int) -> None:
    with chromium() as browser:
        grounds = []
        for scheme in ("light", "dark"):
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 900}
            )
            shown, asked, said = context.new_page(), [], []
            shown.on("request", lambda request, asked=asked: asked.append(request.url))
            shown.on("console", lambda message, said=said: said.append(message.text))
            shown.goto((made.out / "index.html").as_uri())
            assert (len(asked), said) == (1, [])
            assert shown.locator("svg").count() >= 6
            assert shown.evaluate("document.documentElement.scrollWidth") == width
            grounds.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
            if width == 1280:  # the heat map is not cut
                room = shown.locator(".wide:has(table.heat)").last
                assert room.evaluate("e => e.scrollWidth <= e.clientWidth")
        assert grounds == ["rgb(251, 250, 248)", "rgb(22, 23, 26)"]
