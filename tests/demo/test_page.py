"""The page at the end."""

import re
from dataclasses import replace

from analysis.browser import chromium
from bertsmith.demo.forging import Lesson, Piece, Round
from bertsmith.demo.meeting import Met, Near
from bertsmith.demo.page import page
from bertsmith.demo.story import Story
from bertsmith.demo.tuning import Shown, Words
from demo.conftest import Made

EVIL = '<script>alert("1")</script>'


def hostile(story: Story) -> Story:
    """The story with a script in every text."""
    lesson = story.pretraining.lesson
    rounds = [Round(0.0, [[(EVIL, 0.5)]])]
    bad = Lesson([f"{EVIL} [MASK]"], curve=lesson.curve, accuracy=lesson.accuracy, rounds=rounds)
    looked = story.inside.looked
    return replace(
        story,
        met=Met(EVIL, 1, [f"{EVIL} [MASK]"], [[(EVIL, 0.5)]], [Near(EVIL, EVIL, 0.5)]),
        reading=replace(story.reading, source=EVIL, areas={EVIL: 1}, pieces=[Piece(EVIL, 1, 0, 0)]),
        pretraining=replace(story.pretraining, lesson=bad),
        tuning=replace(
            story.tuning,
            classifier=replace(story.tuning.classifier, baseline_label=EVIL),
            texts=[Shown(EVIL, EVIL, "x", 0.5)],
            words=[Words([(EVIL, True, False), (EVIL, False, False)])],
        ),
        inside=replace(
            story.inside,
            looked=replace(looked, tokens=[EVIL] * len(looked.tokens)),
            word=EVIL,
            groups=[replace(one, words=[EVIL], examples=[EVIL]) for one in story.inside.groups],
        ),
        commands=[EVIL],
    )


def test_no_text_can_act(made: Made) -> None:
    written = page(hostile(made.story))
    assert written.count("<script") == 1  # the page's own, which its policy names
    assert "alert(" not in written.partition("<script>")[2]
    assert written.count("&lt;script&gt;") > 20


def test_links_lead_to_what_was_made(made: Made) -> None:
    links = re.findall(r'href="([^"]+)"', page(made.story))
    assert set(links) == {
        "data:,",
        "classifier/report.html",
        "tagger/report.html",
        "attention.html",
        "senses.html",
    }
    assert all((made.out / link).is_file() for link in links if link != "data:,")


def test_a_browser_shows_it_in_both_schemes(made: Made) -> None:
    with chromium() as browser:
        grounds = []
        for scheme in ("light", "dark"):
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": 700, "height": 900}
            )
            shown, asked, said = context.new_page(), [], []
            shown.on("request", lambda request, asked=asked: asked.append(request.url))
            shown.on("console", lambda message, said=said: said.append(message.text))
            shown.goto((made.out / "index.html").as_uri())
            assert (len(asked), said) == (1, [])
            assert shown.locator("svg").count() >= 6
            assert shown.evaluate("document.documentElement.scrollWidth") == 700
            grounds.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert grounds == ["rgb(251, 250, 248)", "rgb(22, 23, 26)"]
