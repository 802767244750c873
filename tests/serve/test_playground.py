"""The playground in a real browser: every task answers, by keyboard too, on small screens."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serve.live import serving, tiny

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        for options in ({"executable_path": "/usr/bin/chromium"}, {}):
            try:
                opened = driver.chromium.launch(args=["--no-sandbox"], **options)
                break
            except playwright.Error:
                continue
        else:
            pytest.skip("there is no browser")
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, http: httpx.Client) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else 0)
    page.goto(f"{http.base_url}/")
    page.wait_for_selector("html[data-ready]")
    yield page
    assert page.problems == []
    page.close()


def answered(page: Any) -> str:
    page.wait_for_selector(".panel:not([hidden]) .result[aria-busy=false] > *")
    text: str = page.inner_text(".panel:not([hidden]) .result")
    return text


def test_every_task_answers_on_a_small_screen(opened: Any) -> None:
    names = opened.locator("#tabs button").all_inner_texts()
    shown = ["Fill mask", "Classify", "Entities", "Answer", "Choose"]
    assert names == [*shown, "Similarity", "Tokens", "Attention", "Drift"]
    for number, name in enumerate(names):
        if number:
            opened.keyboard.press("ArrowRight")
        else:
            opened.focus("#tabs button")
        assert opened.inner_text("[aria-selected=true]") == name
        assert answered(opened)
        assert opened.locator(".panel:not([hidden]) .problem").count() == 0
        code = opened.text_content(".panel:not([hidden]) .request")
        assert "curl http://127.0.0.1" in code
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


def test_answers_follow_typing_and_errors_are_shown(opened: Any) -> None:
    opened.fill("#fill-mask-inputs", "The [MASK] and the [MASK].")
    opened.wait_for_selector("text=Mask 2")
    opened.fill("#fill-mask-inputs", "nothing is missing")
    opened.wait_for_selector("text=where a word is missing")
    opened.click("#tab-attention")
    answered(opened)
    opened.fill("#attention-text", "bees " * 100)
    opened.wait_for_selector(".problem")
    assert "102 tokens" in opened.inner_text(".panel:not([hidden]) .problem")
    opened.problems.clear()  # the browser reports the refused request


def test_only_what_the_model_can_do_is_shown(opened: Any) -> None:
    opened.select_option("#model", "reranker")
    names = opened.locator("#tabs button").all_inner_texts()
    assert names == ["Classify", "Similarity", "Tokens", "Attention", "Drift"]
    assert "score" in answered(opened)
    opened.evaluate("location.hash = '#fill-mask'")  # the other model can
    opened.wait_for_selector("#panel-fill-mask:not([hidden])")
    assert opened.locator("#model").input_value() == "tiny"
    answered(opened)


def test_texts_are_never_markup(browser: Any) -> None:
    name = "<img src=x onerror=alert(1)>"
    with serving({name: tiny(("classify",), id2label={"0": "<b>a</b>", "1": "b"})}) as http:
        page = browser.new_page()
        page.on("dialog", lambda dialog: pytest.fail("a script ran"))
        page.goto(f"{http.base_url}/")
        page.wait_for_selector("html[data-ready]")
        page.fill("#classify-inputs", name)
        assert "<b>a</b>" in answered(page)
        assert page.locator("img").count() == 0
        page.close()


def test_the_address_keeps_the_state(opened: Any, http: httpx.Client) -> None:
    opened.click("#tab-classify")
    opened.fill("#panel-classify textarea >> nth=0", "Anna & the bees = 5?\nA second line")
    opened.wait_for_url(lambda url: "second" in url)
    answered(opened)
    address = opened.url
    assert "#classify?model=tiny&inputs=Anna" in address
    opened.goto("about:blank")
    opened.goto(address)
    opened.wait_for_selector("html[data-ready]")
    field = opened.locator("#panel-classify textarea >> nth=0")
    assert field.input_value() == "Anna & the bees = 5?\nA second line"
    assert opened.is_visible("#panel-classify")
    opened.evaluate("location.hash = '#tokens?model=reranker&inputs=other'")
    opened.wait_for_selector("#panel-tokens:not([hidden])")
    assert opened.locator("#model").input_value() == "reranker"


def test_every_request_is_shown_as_code_that_runs(opened: Any, http: httpx.Client) -> None:
    text = 'It\'s "quoted" \\ text'
    opened.click("#tab-classify")
    opened.fill("#panel-classify textarea >> nth=0", text)
    opened.wait_for_url(lambda url: "quoted" in url)
    opened.click("#panel-classify summary")
    curl, python, javascript = opened.locator("#panel-classify .request pre").all_inner_texts()
    expected = http.post("/classify", json={"model": "tiny", "inputs": text}).json()
    ran = subprocess.run(curl, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["results"] == expected["results"]
    values: dict[str, Any] = {}
    *lines, last = python.splitlines()
    exec("\n".join([*lines, f"found = {last}"]), values)
    assert values["found"].label == expected["results"][0]["label"]
    values["bert"].close()
    found = opened.evaluate(f"async () => {{ {javascript}; return answer; }}")
    assert found["results"] == expected["results"]


def test_drift_is_shown(opened: Any, http: httpx.Client) -> None:
    http.post("/classify", json={"model": "tiny", "inputs": "bees"})
    opened.click("#tab-drift")
    opened.wait_for_selector("#panel-drift .rows")
    text = answered(opened)
    assert "lengths" in text
    assert "The model has no figures" in text
