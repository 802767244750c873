"""The page at the end."""

import re
from dataclasses import replace

from analysis.browser import chromium
from bertsmith.demo.introduction import Introduction, Near
from bertsmith.demo.page import page
from bertsmith.demo.pretraining import Pretraining, Round
from bertsmith.demo.results import Results
from bertsmith.demo.vocabulary import Piece
from bertsmith.tasks.task import Display, Mark, Passage
from demo.conftest import Made

EVIL = '<script>alert("1")</script>'


def hostile(results: Results) -> Results:
    """The results with a script in every text."""
    run, head = results.pretraining, results.inspection.head
    guesses = [[(EVIL, 0.5)]]
    return replace(
        results,
        introduction=Introduction(EVIL, 1, [f"{EVIL} [MASK]"], guesses, [Near(EVIL, EVIL, 0.5)]),
        reading=replace(
            results.reading, source=EVIL, areas={EVIL: 1}, pieces=[Piece(EVIL, 1, 0, 0)]
        ),
        pretraining=Pretraining(
            [f"{EVIL} [MASK]"],
            curve=run.curve,
            accuracy=run.accuracy,
            rounds=[Round(0.0, guesses)],
            longer=guesses,
        ),
        classifier=replace(
            results.classifier,
            baseline_label=EVIL,
            shown=[Display((Passage(EVIL),), EVIL, "x", 0.5)],
        ),
        tagger=replace(
            results.tagger,
            shown=[Display((Passage(EVIL + EVIL, (Mark(0, len(EVIL), "missed"),)),))],
        ),
        inspection=replace(
            results.inspection,
            head=replace(head, tokens=[EVIL] * len(head.tokens)),
            word=EVIL,
            groups=[
                replace(one, words=[EVIL], examples=[EVIL]) for one in results.inspection.groups
            ],
        ),
        commands=[EVIL],
    )


def test_no_text_can_act(made: Made) -> None:
    written = page(hostile(made.results))
    assert written.count("<script") == 1  # the page's own, which its policy names
    assert "alert(" not in written.partition("<script>")[2]
    assert written.count("&lt;script&gt;") > 20


def test_links_lead_to_what_was_made(made: Made) -> None:
    links = re.findall(r'href="([^"]+)"', page(made.results))
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
