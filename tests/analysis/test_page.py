"""The attention page in a real browser: it opens, shows, filters, and asks nobody for anything."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.browser import Watched, chromium
from analysis.conftest import Small
from bertsmith.analysis import AttentionView, attention
from bertsmith.analysis.importance import for_label
from bertsmith.analysis.maps import Token
from bertsmith.analysis.pruning import pruned
from tasks.models import Maker

HOSTILE = "The river <script>document.title='gone'</script> flows & <b>sings</b>"
SECOND = "Nobody could answer her question."


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def view(small: Small) -> AttentionView:
    return small().attention(HOSTILE, SECOND)


@pytest.fixture
def opened(browser: Any, view: AttentionView, tmp_path: Path) -> Iterator[Watched]:
    view.save(tmp_path / "page.html")
    watched = Watched(browser, tmp_path / "page.html")
    as_text(watched, 1)
    yield watched
    assert watched.faults == []
    assert watched.requests == [(tmp_path / "page.html").as_uri()]
    watched.context.close()


def as_text(watched: Watched, layer: int) -> None:
    """Select the view of the text, and the mean of all heads of a layer."""
    watched.chip("view", "text")
    for button in watched.page.get_by_role("button", name="all", exact=True).all():
        button.click()
    watched.chip("layer-0", layer)


def table(watched: Watched, number: int) -> list[tuple[str, str]]:
    """One of the two tables of the chosen token: names and shares."""
    rows = watched.page.locator(".detail table").nth(number).locator("tr").all()
    return [
        (row.locator("td").nth(0).text_content(), row.locator(".share").text_content())
        for row in rows
    ]


def label(token: Token) -> str:
    """A piece that continues a word keeps its ##."""
    return token.token if token.token.startswith("##") else token.text


def shares(view: AttentionView, weights: np.ndarray, count: int = 8) -> list[tuple[str, float]]:
    order = np.argsort(-weights)[:count]
    return [(label(view.tokens[j]), float(weights[j])) for j in order]


def assert_same(shown: list[tuple[str, str]], expected: list[tuple[str, float]]) -> None:
    """The page keeps weights in a byte, so that near ones may change places."""
    assert len(shown) >= min(5, len(expected))
    for (_, text), (_, share) in zip(shown, expected, strict=False):
        assert abs(float(text.removesuffix(" %")) / 100 - share) <= 0.008
    assert shown[0][0] in [name for name, share in expected if share > expected[0][1] - 0.01]


def test_it_opens_on_the_sharpest_head(browser: Any, view: AttentionView, tmp_path: Path) -> None:
    """Not on a mean of all heads, which is even: on the head that attends most to one word."""
    view.save(tmp_path / "page.html")
    watched = Watched(browser, tmp_path / "page.html")
    words = [n for n, token in enumerate(view.tokens) if token.source is not None]
    between = view.maps()[:, :, words][:, :, :, words]
    between[:, :, range(len(words)), range(len(words))] = 0
    sharpness = between.max(-1).mean(-1)
    layer, head = np.unravel_index(sharpness.argmax(), sharpness.shape)
    page = watched.page
    opens_with = "lines" if len(view) <= 40 else "matrix"
    assert page.locator("input[name=view]:checked").input_value() == opens_with
    assert page.locator("input[name=layer-0]:checked").input_value() == str(layer)
    chosen = page.locator("input[name=head-0]:checked").all()
    assert [one.input_value() for one in chosen] == [str(head)]
    watched.context.close()


def test_text_stays_text(opened: Watched, view: AttentionView) -> None:
    page = opened.page
    assert page.title() == "What bert 3x32 attends to"
    assert page.locator(".token").all_text_contents() == [token.text for token in view.tokens]
    assert "<script>" in page.locator(".stage").text_content()
    assert page.locator(".stage script, .stage b").count() == 0


def test_pointing_at_a_token_shows_what_it_looks_at(opened: Watched, view: AttentionView) -> None:
    weights = view.maps()[1].mean(0)
    opened.page.locator('.token[data-token="4"]').hover()
    assert opened.page.locator(".detail b").text_content() == view.tokens[4].text
    assert_same(table(opened, 0), shares(view, weights[4]))
    assert_same(table(opened, 1), shares(view, weights[:, 4]))
    later = f"{100 * weights[4, 5:].sum():.0f} % of its attention goes to later tokens"
    assert later in opened.page.locator(".detail p").text_content()


def test_layers_and_heads_are_chosen(opened: Watched, view: AttentionView) -> None:
    opened.chip("view", "lines")
    opened.page.get_by_role("button", name="none").click()
    opened.chip("head-0", 2)
    opened.chip("layer-0", 0)
    opened.page.locator('.asks[data-token="5"]').hover()
    assert "layer 0, head 2" in opened.page.locator(".detail h3").text_content()
    assert_same(table(opened, 0), shares(view, view.maps()[0, 2, 5]))
    opened.page.locator('.asked[data-token="5"]').hover()
    assert_same(table(opened, 1), shares(view, view.maps()[0, 2, :, 5]))


def test_special_tokens_can_be_left_out(opened: Watched, view: AttentionView) -> None:
    opened.chip("switch", "special")
    opened.page.locator('.token[data-token="4"]').hover()
    shown = {name for number in (0, 1) for name, _ in table(opened, number)}
    assert shown
    assert not shown & {"[CLS]", "[SEP]"}


def test_only_from_the_first_text_to_the_second(opened: Watched, view: AttentionView) -> None:
    opened.chip("between", "AB")
    first = next(n for n, token in enumerate(view.tokens) if token.source == 0)
    opened.page.locator(f'.token[data-token="{first}"]').hover()
    second = {label(token) for token in view.tokens if token.source == 1}
    shown = [name for name, _ in table(opened, 0)]
    assert shown
    assert set(shown) <= second
    assert table(opened, 1) == []


def test_left_to_right(opened: Watched, view: AttentionView) -> None:
    """A token sees what stands before it, with the weights of a causal softmax."""
    opened.chip("switch", "causal")
    opened.page.locator('.token[data-token="3"]').hover()
    heads = view.maps()[1][:, 3, :4]
    expected = (heads / heads.sum(-1, keepdims=True)).mean(0)
    assert_same(table(opened, 0), shares(view, expected))
    assert len(table(opened, 0)) == 4
    assert "it sees 4 of" in opened.page.locator(".detail p").text_content()
    assert "Left to right" in opened.page.locator("#note").text_content()


def test_rollout(opened: Watched, view: AttentionView) -> None:
    opened.chip("source-0", "rollout")
    opened.chip("layer-0", 2)
    opened.page.locator('.token[data-token="6"]').hover()
    assert_same(table(opened, 0), shares(view, view.rollout()[2, 6]))
    assert opened.page.locator(".heads").is_hidden()


def test_all_heads(opened: Watched) -> None:
    opened.chip("view", "heads")
    heads = opened.page.locator(".grid button")
    heads.nth(11).wait_for()
    assert heads.count() == 12
    labels = [one.get_attribute("aria-label") for one in heads.all()]
    assert all(re.match(r"layer \d, head \d: (spread out|\d.* % on )", label) for label in labels)
    heads.nth(7).hover()
    assert opened.page.locator(".detail h3").text_content() == "layer 1, head 3"
    assert opened.page.locator('.grid button[tabindex="0"]').count() == 1  # one stop of the Tab key
    heads.nth(0).focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowRight"):
        opened.page.keyboard.press(key)
    focused = opened.page.evaluate("document.activeElement.ariaLabel")
    assert focused.startswith("layer 1, head 1: ")
    heads.nth(7).click()
    opened.page.locator('.asks[data-token="1"]').hover()
    assert "layer 1, head 3" in opened.page.locator(".detail h3").text_content()


def test_the_matrix_zooms(opened: Watched, view: AttentionView) -> None:
    opened.chip("view", "matrix")
    canvas = opened.page.locator(".matrix canvas")
    box = canvas.bounding_box()
    opened.page.mouse.move(box["x"] + 92 + 2, box["y"] + 84 + 2)
    said = opened.page.locator(".matrix .bar span")
    weights = view.maps()[1].mean(0)
    name, share = said.text_content().split("→ [CLS] ")
    assert name == "[CLS] "
    assert abs(float(share.removesuffix(" %")) / 100 - weights[0, 0]) <= 0.008
    before = canvas.screenshot()
    opened.page.get_by_role("button", name="Zoom in").click()
    assert canvas.screenshot() != before
    opened.page.get_by_role("button", name="Show all").click()
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+"):
        canvas.press(key)
    expected = f"{view.tokens[2].text} → {view.tokens[1].text} "
    assert opened.page.locator("#live").text_content().startswith(expected)


def test_keys_and_screen_readers(opened: Watched, view: AttentionView) -> None:
    """Tab reaches the tokens once; arrows move; Enter keeps, Escape lets go; all is said."""
    page = opened.page
    assert page.locator('.token[tabindex="0"]').count() == 1
    page.locator('.token[tabindex="0"]').focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    chosen = page.locator(".token.chosen")
    assert chosen.get_attribute("data-token") == "2"
    live = page.locator("#live").text_content()
    assert live.startswith(f"{view.tokens[2].text}, token 2, attends to ")
    page.locator('.token[data-token="7"]').hover()
    page.mouse.move(2, 2)
    assert chosen.get_attribute("data-token") == "2"  # it was kept
    page.keyboard.press("Escape")
    assert chosen.count() == 0
    unnamed = page.locator("button, input, canvas").evaluate_all(
        "all => all.filter(e => !(e.textContent || e.labels?.length || e.ariaLabel)).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(scheme: str, browser: Any, view: AttentionView, tmp_path: Path) -> None:
    view.save(tmp_path / "page.html")
    watched = Watched(browser, tmp_path / "page.html", color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    levels = [int(part) for part in re.findall(r"\d+", watched.page.evaluate(ground))]
    assert (sum(levels) > 600) == (scheme == "light")
    watched.page.locator("#theme").click()
    turned = [int(part) for part in re.findall(r"\d+", watched.page.evaluate(ground))]
    assert (sum(turned) > 600) == (scheme == "dark")
    watched.context.close()


def test_two_models_side_by_side(browser: Any, small: Small, tmp_path: Path) -> None:
    one, other = small().attention(HOSTILE), small("modernbert").attention(HOSTILE)
    one.beside(other).save(tmp_path / "both.html")
    watched = Watched(browser, tmp_path / "both.html")
    assert watched.page.locator(".pane h2").all_text_contents() == ["bert 3x32", "modernbert 4x32"]
    left, right = (watched.page.locator(".pane").nth(number).bounding_box() for number in (0, 1))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] < right["x"]
    as_text(watched, 1)
    watched.chip("layer-1", 3)
    watched.page.locator(".pane").nth(1).locator('.token[data-token="2"]').hover()
    assert "layer 3" in watched.page.locator(".pane").nth(1).locator("h3").text_content()
    assert watched.faults == []
    watched.context.close()


def test_word_importance_beside_attention(browser: Any, made: Maker, tmp_path: Path) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=2).ours
    view = attention(bert, "Anna lives in Uppsala.", importance=True)
    words = for_label(bert, "Anna lives in Uppsala.")
    view.save(tmp_path / "page.html")
    watched = Watched(browser, tmp_path / "page.html")
    as_text(watched, 1)
    page = watched.page
    strongest = max(words, key=lambda word: abs(word.importance))
    place = strongest.tokens[0]
    token = page.locator(f'.token[data-token="{place}"]')
    assert page.locator(".token.worth").count() == sum(len(word.tokens) for word in words)
    assert token.evaluate("e => e.style.getPropertyValue('--tall')") == "5.0px"
    token.hover()
    kind = "supports" if strongest.importance > 0 else "opposes"
    label = bert.classify("Anna lives in Uppsala.").label
    said = page.locator(".detail .speaks").text_content()
    assert said.startswith(f"Its word {kind} the label “{label}”: ")
    assert said.endswith(f"{abs(strongest.importance):.2f}.")
    assert (
        f"Underlined: words that support the label “{label}”"
        in page.locator("#note").text_content()
    )
    watched.chip("switch", "worth")
    assert page.locator(".token.worth").count() == 0
    assert page.locator("#note").text_content() == ""
    assert watched.faults == []
    watched.context.close()


def test_a_pruned_model(browser: Any, small: Small, tmp_path: Path) -> None:
    smaller = pruned(small(), [(1, 1), (1, 2)])
    view = smaller.attention("The river flows.")
    view.save(tmp_path / "page.html")
    watched = Watched(browser, tmp_path / "page.html")
    as_text(watched, 1)
    page = watched.page
    page.locator("input[name=head-0]:disabled").nth(1).wait_for(state="attached")
    assert page.locator("input[name=head-0]:disabled").count() == 2
    page.locator('.token[data-token="2"]').hover()
    assert "mean of all heads" in page.locator(".detail h3").text_content()
    assert_same(table(watched, 0), shares(view, view.maps()[1, :2].mean(0)[2]))
    watched.chip("layer-0", 0)
    page.locator('.token[data-token="2"]').hover()
    assert_same(table(watched, 0), shares(view, view.maps()[0].mean(0)[2]))
    assert page.locator("input[name=head-0]:disabled").count() == 0
    watched.chip("view", "heads")
    page.locator(".grid button").nth(9).wait_for()
    assert page.locator(".grid button").count() == 10
    assert watched.faults == []
    watched.context.close()


def test_512_tokens(browser: Any, small: Small, tmp_path: Path) -> None:
    """Every view of a long page answers; what is stored is what the model computed."""
    bert = small(max_position_embeddings=512)
    bert.tokenizer = copy(bert.tokenizer)  # other tests use the same one
    bert.tokenizer.max_length = None
    view = bert.attention("river , flows ; " * 120)
    assert 400 < len(view) <= 512
    view.save(tmp_path / "long.html")
    stored = re.search(r'id="maps-0-1">([^<]+)<', (tmp_path / "long.html").read_text("utf-8"))
    codes = np.frombuffer(zlib.decompress(base64.b64decode(stored[1])), np.uint8)
    found = (codes.reshape(4, len(view), len(view)) / 255.0) ** 2
    assert np.abs(found - view.maps()[1]).max() <= 0.004
    watched = Watched(browser, tmp_path / "long.html")
    page = watched.page
    assert page.locator(".matrix canvas").count() == 1
    watched.chip("view", "text")
    assert page.locator(".token").count() == len(view)
    watched.chip("view", "lines")
    assert page.locator(".lines canvas").count() == 1
    page.locator(".stage").evaluate("stage => { stage.scrollTop = 4000; }")
    page.locator('.asks[data-token="210"]').hover()
    assert page.locator(".detail table").count() == 2
    watched.chip("view", "matrix")
    assert len(page.locator(".matrix canvas").screenshot()) > 2000
    watched.chip("view", "heads")
    page.locator(".grid button").nth(11).wait_for()
    assert watched.faults == []
    watched.context.close()


def test_a_frame_in_a_notebook_works(browser: Any, view: AttentionView, tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(f"<html>{view._repr_html_()}", "utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=yes]").wait_for(state="attached")
    frame.locator("#views label").first.click()
    assert frame.locator(".token").count() == len(view)
    context.close()
