"""The explorer in a real browser, opened as a file: it answers, and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.browser import Watched, chromium
from bertsmith import Bert
from bertsmith.explorer import explorer
from bertsmith.explorer.page import UNRELATED
from explorer.models import tiny

TEXT = "The river Vltava flows through <b>Prague</b>."


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


class Opened(Watched):
    """An explorer that is open; every change is waited for."""

    def change(self, action: Any) -> None:
        runs = int(self.page.evaluate("document.documentElement.dataset.runs"))
        action()
        self.page.wait_for_selector(f"html:not([data-runs='{runs}'])")

    def write(self, text: str, field: str = "first") -> None:
        self.change(lambda: self.page.fill(f"#{field}", text))

    def rows(self, answer: str) -> list[tuple[str, str]]:
        rows = self.page.locator(f"[data-answer={answer}] .rows li").all()
        names = (":scope > button, :scope > .name", ".value")
        return [tuple(row.locator(name).inner_text() for name in names) for row in rows]  # type: ignore[misc]

    def close(self) -> None:
        blob, requests = self.requests.pop(), self.requests
        assert blob.startswith("blob:null/")  # the worker
        assert [address[:5] for address in requests] == ["file:"]
        assert self.faults == []
        self.context.close()


def opened(browser: Any, bert: Bert, folder: Path, **options: Any) -> Opened:
    explorer(bert, folder / "page.html", name="<i>toy</i>")
    return Opened(browser, folder / "page.html", **options)


def test_a_masked_language_model(browser: Any, tmp_path: Path) -> None:
    bert = tiny("bert", "masked_lm", "next_sentence")
    shown = opened(browser, bert, tmp_path)
    page = shown.page
    assert page.inner_text("h1") == "<i>toy</i>"
    shown.write(TEXT)
    pieces = page.locator("#tokens button").all()
    encoding = bert.tokenizer.encode(TEXT)
    assert [int(piece.locator("small").inner_text()) for piece in pieces] == encoding.ids
    assert page.locator("#app b", has_text="Prague").count() == 0  # text is never markup

    # Masking a word by a click: guesses appear, and with a head off they change.
    row = next(row for row, (start, end) in enumerate(encoding.offsets) if start == 4 < end)
    page.click(f"#tokens [data-row='{row}']")
    shown.change(lambda: page.click("text=Mask “river”"))
    assert page.input_value("#first") == TEXT.replace("river", "[MASK]")
    guesses = shown.rows("masked_lm")
    expected = bert.fill_mask(TEXT.replace("river", "[MASK]"), top=8)
    names = {bert.tokenizer.token(guess.id) for guess in expected}
    assert len(names & {name for name, _ in guesses}) >= 6  # int8 may swap near ones
    shown.change(lambda: page.click("#head-off"))
    assert "was" in shown.rows("masked_lm")[0][1]
    assert page.locator("#grid .off").count() == 1
    shown.change(lambda: page.click("#layer-off"))
    assert "switched off: layer" in page.inner_text("#status")
    shown.change(lambda: page.click("text=Switch all on"))
    assert [name for name, _ in shown.rows("masked_lm")] == [name for name, _ in guesses]
    shown.change(lambda: page.click("text=Undo"))
    assert page.locator("#grid .off").count() > 0

    # A second text: segments, and whether it follows.
    shown.change(lambda: page.click("text=Add a second text"))
    shown.write("My sister's dog.", "second")
    vectors = bert.embed(UNRELATED, normalise=True)
    usual = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)].mean()
    assert f"about {usual:.2f} in this model" in page.inner_text("[data-answer=similarity]")
    shown.write(" ", "second")
    assert page.locator("[data-answer=similarity]").count() == 0  # nothing to compare with
    shown.write("My sister's dog.", "second")
    assert {name for name, _ in shown.rows("follows")} == {"follows", "does not follow"}
    assert page.locator("#tokens .second").count() > 0
    columns = page.locator("#embeddings thead th").all_inner_texts()
    assert columns[1:] == ["token", "+ segment", "+ position", "= sum", "→ first states"]
    names = page.locator(".lens tbody th").all_inner_texts()  # as the verb `lens` counts
    assert names[0] == "embedding (depth 0)"
    assert names[1:] == [f"layer {n} (depth {n + 1})" for n in range(3)]
    width = bert.checkpoint.config.width
    about = page.inner_text("#embeddings-about")
    assert f"has {width} values" in about if width > 48 else f"shows the {width} values" in about
    shown.close()


def test_keyboard_and_small_screens(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tiny("modernbert"), tmp_path, color_scheme="dark")
    page = shown.page
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.focus("#tokens [tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#tokens [aria-pressed=true]").get_attribute("data-row") == "1"
    page.focus("#grid [tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.inner_text("#head h3") == "Layer 1, head 0"
    page.click("text=matrix")
    page.focus("#stage canvas")
    page.keyboard.press("ArrowRight")
    assert "attends to" in page.inner_text("#looks")
    page.click("#theme")
    shown.close()


def test_the_address_keeps_what_is_shown(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tiny("bert", "masked_lm", "next_sentence"), tmp_path)
    page = shown.page
    shown.write("The river & the [MASK].")
    page.click("#grid [data-head='2.1']")
    page.click("#tokens [data-row='2']")
    page.click("text=matrix")
    page.wait_for_selector("#head-steps [data-cell='3']")
    page.click("#head-steps [data-cell='3']")
    shown.change(lambda: page.click("#head-off"))
    page.wait_for_function("location.hash.includes('off=')")
    address = page.url
    other = Watched.__new__(Watched)
    Watched.__init__(other, browser, tmp_path / "page.html")
    runs = other.page.evaluate("document.documentElement.dataset.runs")
    other.page.evaluate("(hash) => { location.hash = hash; }", address.partition("#")[2])
    other.page.wait_for_selector(f"html:not([data-runs='{runs}'])")
    assert other.page.input_value("#first") == "The river & the [MASK]."
    assert other.page.inner_text("#head h3") == "Layer 2, head 1"
    assert other.page.locator("#tokens [aria-pressed=true]").get_attribute("data-row") == "2"
    assert other.page.locator("#head-steps [aria-pressed=true]").get_attribute("data-cell") == "3"
    assert other.page.locator("#stage.matrix").count() == 1
    assert other.page.locator("#grid .off").count() == 1
    # Nonsense in an address is passed over; parts can be chosen for a frame.
    other.page.evaluate("location.hash = 'layer=99&head=-1&token=9999&off=x&panel=arithmetic'")
    other.page.wait_for_selector("html.embedded")
    seen = other.page.locator("[data-panel]:visible").evaluate_all("all => all.map(e => e.id)")
    assert seen == ["steps-part"]
    assert other.faults == shown.faults == []
    other.context.close()
    shown.close()


def test_the_tour_and_the_overview_by_keyboard(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tiny("bert"), tmp_path)
    page = shown.page
    page.focus("#start-tour")
    page.keyboard.press("Enter")
    titles = []
    while page.locator("#tour").is_visible():
        titles.append(page.inner_text("#tour-title"))
        assert page.locator(".toured").count() == 1
        page.keyboard.press("Enter")  # the focus is on the way on
    assert len(titles) == len(set(titles)) == 7
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert not page.locator("#tour").is_visible()
    boxes = [box.split("\n")[0] for box in page.locator("#flow button").all_inner_texts()]
    layers = [f"Layer {number}" for number in range(3)]
    assert boxes == ["Tokens", "Embeddings", *layers, "States", "Answer"]
    page.focus("#flow button:has-text('Layer 1')")
    page.keyboard.press("Enter")
    assert page.inner_text("#head h3").startswith("Layer 1")
    shown.close()


CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
SHIFTS = """window.shifted = 0; new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifted += one.value;
}).observe({ type: "layout-shift", buffered: true });"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_contrast_names_and_shifts(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    """What WCAG AA asks of the colours of text; a name for every control; nothing that jumps."""
    explorer(tiny("bert", "masked_lm", "next_sentence"), tmp_path / "p.html", name="toy")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.add_init_script(SHIFTS)
    page.goto((tmp_path / "p.html").as_uri() + "#text=The river and the [MASK].&view=matrix")
    page.wait_for_selector("html[data-ready=yes]")
    page.click("#start-tour")
    found = page.evaluate(f"({CONTRAST.partition(chr(10))[2]})()")
    assert found["seen"] > 100
    assert found["bad"] == []
    assert page.evaluate("window.shifted") < 0.1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = page.locator("button, input, textarea, canvas[tabindex], [role=region]").evaluate_all(
        "all => all.filter((e) => !(e.innerText || '').trim() && !e.labels?.length"
        " && !e.ariaLabel && !e.getAttribute('aria-labelledby')).map((e) => e.outerHTML)"
    )
    assert unnamed == []
    context.close()


def test_fine_tuned_models_have_their_own_panels(browser: Any, tmp_path: Path) -> None:
    labels = {"id2label": {"0": "good", "1": "bad", "2": "so so"}, "num_labels": 3}
    bert = tiny("electra", "classify", **labels)
    shown = opened(browser, bert, tmp_path)
    shown.write(TEXT)
    best = bert.classify(TEXT)
    assert shown.page.inner_text("[data-answer=classify] .big") == best.label
    shares = {name: float(value.rstrip("%")) / 100 for name, value in shown.rows("classify")}
    assert shares == pytest.approx(best.scores, abs=0.03)
    shown.close()


def test_labels_of_a_multi_label_model_are_those_above_their_thresholds(
    browser: Any, tmp_path: Path
) -> None:
    several = {"problem_type": "multi_label_classification"}
    labels = {"id2label": {"0": "good", "1": "bad", "2": "so so"}, "num_labels": 3}
    bert = tiny("electra", "classify", **labels, **several)
    scores = bert.classify(TEXT).scores
    middle = sorted(scores.values())[1]
    limits = {name: 0.0 if score >= middle else 1.0 for name, score in scores.items()}
    bert.checkpoint.settings["label_thresholds"] = limits
    shown = opened(browser, bert, tmp_path)
    shown.write(TEXT)
    found = shown.page.inner_text("[data-answer=classify] .big").split(", ")
    assert set(found) == set(bert.classify(TEXT).labels or ())
    assert len(found) == 2
    shown.close()
