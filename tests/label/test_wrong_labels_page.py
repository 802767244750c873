"""The page of labels that may be wrong: keys, undo, what is kept, and the file it gives."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.browser import chromium
from bertsmith.label.errors import WRONG, Suspect, WrongLabels
from bertsmith.tasks.corrections import corrected
from bertsmith.tasks.read import read_data
from bertsmith.tasks.task import Prediction


def test_decisions_are_kept_and_downloaded(tmp_path: Path) -> None:
    rows = [{"text": f"<b>text {n}</b>", "label": "a" if n % 2 else "b"} for n in range(4)]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read_data(file)
    suspects = [
        Suspect(one, Prediction("b" if one.label == "a" else "a", 0.9), 0.1, WRONG)
        for one in data.examples
    ]
    WrongLabels(data, "some-model", tuple(suspects), 4).save(page := tmp_path / "page.html")
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 800})
        tab, faults = context.new_page(), []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
        tab.goto(page.as_uri())
        for key in "xsku":  # leave out, relabel, keep; and the last is undone
            tab.keyboard.press(key)
        assert tab.inner_text("#progress") == "2 of 4 decided"
        for _ in range(20):  # a busy browser stores what a page keeps a little later
            tab.reload()
            if tab.inner_text("#progress") == "2 of 4 decided":
                break
            tab.wait_for_timeout(500)
        assert tab.inner_text("#progress") == "2 of 4 decided"
        tab.click("article:nth-of-type(4) button[data-decision=keep]")
        with tab.expect_download() as waiting:
            tab.click("#download")
        waiting.value.save_as(out := tmp_path / "corrections.jsonl")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert faults == []
        context.close()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["decision"] for line in lines] == ["leave out", "relabel", "keep"]
    after = corrected(data, out)
    assert [one.label for one in after.examples] == ["b", "b", "a"]
