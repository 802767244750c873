"""The labelling page in a real browser: keys, marks, undo, blind suggestions, two people, kills."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from analysis.browser import chromium
from bertsmith.label import Session, labelling
from bertsmith.serve.labelling import labelling_app
from bertsmith.serve.run import config, listen
from bertsmith.settings.labelling import LabellingSettings
from bertsmith.settings.serving import LOOPBACK, ServingSettings

TEXTS = [{"text": f"message {number}"} for number in range(12)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@contextmanager
def served(
    out: Path, data: Any, labels: list[str], task: str = "classification", **more: Any
) -> Iterator[tuple[Session, str]]:
    """A session behind a server in a thread."""
    settings = LabellingSettings(**{"order": "random", "held_out": 0.0, **more})
    with labelling(data, out, task=task, labels=labels, settings=settings) as session:
        app = labelling_app(session, ServingSettings(hosts=LOOPBACK))
        listener = listen("127.0.0.1", 0)
        server = uvicorn.Server(config(app, "error"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield session, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def opened(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page, faults = context.new_page(), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    yield page
    assert faults == []
    context.close()


def press(page: Any, *keys: str) -> None:
    """Press keys; after each, wait until the page is ready for the next."""
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_selector("#card[aria-busy=false]")


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]


def test_labels_by_keyboard(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with served(out, TEXTS, ["praise", "complaint"]) as (_, url):
        with opened(browser, url, 390, "dark") as page:
            first = page.inner_text("#text p")
            press(page, "1")
            assert events(out)[-1]["text"] == first
            assert events(out)[-1]["label"] == "praise"
            press(page, "Backspace")
            assert page.inner_text("#text p") == first
            assert page.inner_text("#choices [aria-pressed=true]").startswith("praise")
            press(page, "2", " ", "Control+z", *"1" * 11)
            assert "No text is left" in page.inner_text("#text")
            assert "12 by you" in page.inner_text("#counts")
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            page.click("text=Guidelines")
            page.fill("#guidelines", "Praise is what is kind.")
            while not any(one["event"] == "guidelines" for one in events(out)):
                time.sleep(0.05)
        with opened(browser, url) as page:
            assert page.input_value("#guidelines") == "Praise is what is kind."
    found = [one["event"] for one in events(out)]
    assert found[:5] == ["label", "undo", "label", "skip", "undo"]
    assert found.count("label") == 13


def test_two_tabs_and_a_name(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    serving = served(out, TEXTS, ["a", "b"], overlap=1.0)
    with serving as (session, url), opened(browser, url) as page, opened(browser, url) as other:
        assert page.inner_text("#text p") != other.inner_text("#text p")
        name = page.get_attribute("html", "data-text")
        session.answer("elsewhere", "me", name, "b")
        press(page, "1")
        assert "labelled in another tab" in page.inner_text("#status")
        assert len(events(out)) == 1
        other.fill("#by", "bela")
        other.keyboard.press("Enter")
        other.wait_for_selector("text=0 by you")
        press(other, "1", "1", "1")
        page.click("#agreement")
        page.wait_for_selector("#people h2")
    assert {one["annotator"] for one in events(out)} == {"me", "bela"}


def test_disagreements_are_shown_and_decided(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with served(out, TEXTS[:2], ["a", "b"], overlap=1.0) as (session, url):
        for by, answer in (("anna", "a"), ("bela", "b")):
            for name in session.items:
                session.answer(f"{by}{name}", by, name, answer)
        with opened(browser, url) as page:
            page.click("#agreement")
            page.wait_for_selector("#people article")
            assert "alpha is -0.50" in page.inner_text("#people")
            page.locator("#people button", has_text="bela: b").first.click()
            page.wait_for_selector("#people [aria-pressed=true]")
    assert events(out)[-1]["final"] is True
    assert events(out)[-1]["label"] == "b"


def test_marks_by_mouse_and_keyboard(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    data = [{"text": "🎻 Anna Berg lives in Rome."}]
    with served(out, data, ["PER", "LOC"], "tagging") as (_, url), opened(browser, url) as page:
        places = [page.locator(f"[data-place='{n}']").bounding_box() for n in (1, 2)]
        x, y = places[0]["x"] + 3, places[0]["y"] + 5
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(places[1]["x"] + 3, y, steps=3)
        page.mouse.up()
        press(page, "ArrowRight", "ArrowRight", "ArrowRight", "2", "Enter")
    spans = [(2, 11, "PER"), (21, 25, "LOC")]
    assert [tuple(one.values()) for one in events(out)[0]["spans"]] == spans


def test_several_labels_and_a_filter(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    names = [f"label_{letter}" for letter in "abcdefghijklm"]
    with served(out, TEXTS[:2], names, "multilabel") as (_, url), opened(browser, url) as page:
        page.keyboard.type("label k")
        assert page.locator("#choices button").count() == 1
        page.click("#choices button")
        page.click("text=label_b")
        page.click("#done")
        page.wait_for_selector("text=1 by you")
        press(page, "Enter")
    assert [one["labels"] for one in events(out)] == [["label_b", "label_k"], []]


def test_labels_that_are_digits_are_their_own_keys(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    labels = ["0", "1", "2"]
    with served(out, TEXTS[:2], labels, "regression") as (_, url), opened(browser, url) as page:
        assert page.locator("#choices kbd").all_inner_texts() == labels
        press(page, "3", "2", "0")
    assert [one["score"] for one in events(out)] == [2, 0]


def test_suggestions_are_hidden_until_a_choice(browser: Any, tmp_path: Path) -> None:
    for blind in (False, True):
        out = tmp_path / f"{blind}.jsonl"
        with served(out, TEXTS[:3], ["a", "b"], blind=blind) as (session, url):
            session.suggestions = dict.fromkeys(session.items, ("b", 0.83))
            with opened(browser, url) as page:
                if not blind:
                    assert "with 83%: b" in page.inner_text("#suggestion")
                    press(page, "Enter")
                    continue
                text = page.inner_text("#text p")
                assert not page.is_visible("#suggestion")
                press(page, "1")
                assert page.inner_text("#text p") == text
                assert "says otherwise, with 83%: b" in page.inner_text("#suggestion")
                press(page, "2", "1", "Enter", "2")
        found = [one["label"] for one in events(out)]
        assert found == (["a", "b", "a", "b"] if blind else ["b"])
        assert all(one["suggested"] == "b" for one in events(out))


def test_held_out_texts_have_no_suggestion(tmp_path: Path) -> None:
    with served(tmp_path / "l.jsonl", TEXTS, ["a", "b"], held_out=0.5) as (session, url):
        session.suggestions = dict.fromkeys(session.items, ("b", 0.83))
        for number in range(12):
            with httpx.Client(base_url=url) as client:
                text = client.post("/next", json={"by": "me", "tab": str(number)}).json()["text"]
            assert (text["suggestion"] is None) == session.items[text["name"]].held


def test_other_sites_and_bad_requests_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "l.jsonl", TEXTS, ["a", "b"]) as (session, url):
        body = {"id": "1", "by": "me", "name": next(iter(session.items)), "answer": "a"}
        with httpx.Client(base_url=url) as client:
            foreign = {"Origin": "http://example.org"}
            assert client.post("/answer", json=body, headers=foreign).status_code == 403
            assert client.get("/", headers={"Host": "example.org"}).status_code == 403
            assert client.post("/answer", json={**body, "more": 1}).status_code == 422
            wrong = client.post("/answer", json={**body, "answer": "c"})
            assert (wrong.status_code, wrong.json()["error"]) == (422, "not among the labels: 'c'")
            assert client.get("/").headers["x-frame-options"] == "DENY"
        assert session.state("me", "t")["labelled"] == 0


@pytest.mark.slow
def test_killed_browsers_lose_nothing(browser: Any) -> None:
    """Fewer labels and kills than by default; in a process of its own, as playwright wants it."""
    script = Path(__file__).parents[1] / "slow" / "kill_labelling.py"
    port = listen("127.0.0.1", 0)
    free = str(port.getsockname()[1])
    port.close()
    words = [str(script), "--labels", "16", "--kills", "2", "--servers", "1", "--port", free]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert (found["labels"], found["browsers_killed"], found["servers_killed"]) == (16, 2, 1)
    assert found["lost"] == found["doubled"] == found["wrong"] == []
