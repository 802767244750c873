"""The report: one file that asks nobody, shows the errors and escapes what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.browser import chromium
from bertsmith.finetuning import finetune
from finetuning.conftest import Write, labelled
from finetuning.test_words import asked, chosen, sentences, stored
from tasks.models import Maker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, base: Maker) -> Path:
    """A badly trained classifier: it has errors to show."""
    path = tmp_path_factory.mktemp("report")
    rows = labelled(24)
    rows[0]["text"] += ' <script>alert("x")</script> {{style}}'
    rows += [{"text": "the river", "label": "a & <b>"}] * 2
    file = path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    finetune(base().folder, file, path / "out", dev=file, seeds=2, epochs=1, batch_size=16)
    return path / "out"


def test_it_is_one_file_that_asks_nobody(folder: Path) -> None:
    page = (folder / "report.html").read_text("utf-8")
    assert "default-src &#39;none&#39;" in page
    assert re.findall(r"(?:src|href)=\S+", page) == ['href="data:,">']
    assert not re.search(r"url\(|https?://", page)
    assert page.count("<script>") == 1
    assert "&lt;script&gt;alert(" in page
    assert "{{style}}" in page  # what a text says is never filled in
    for title in ("Scores", "Learning curves", "Classes", "Confusion matrix", "Calibration"):
        assert f"<h2>{title}</h2>" in page
    for title in ("Thresholds", "Errors", "Ledger", "Settings"):
        assert f"<h2>{title}</h2>" in page
    assert "2 seeds" in page
    assert "TF-IDF + logistic regression" in page


def test_the_card_says_what_the_model_is(folder: Path) -> None:
    card = (folder / "README.md").read_text("utf-8")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert card.splitlines()[6] == "# out"
    accuracy, between = report["scores"]["dev"]["accuracy"], report["intervals"]["dev"]
    assert between["low"] <= accuracy <= between["high"]
    for part in (
        "fine-tuned for classification",
        "- Data, train: t.jsonl, 26 examples",
        "- Labels (3): a & <b>, city, thing",
        f"| accuracy | {accuracy:.4g} |",
        f"95 % interval {between['low']:.4f} to {between['high']:.4f} (bootstrap",
        "over 2 seeds",
        f"Learning rate {report['settings']['learning_rate']:.4g}, optimizer adamw, epochs 1",
        'bs.load("out").classify(',
        "bertsmith predict out FILE",
        'AutoModelForSequenceClassification.from_pretrained("out")',
    ):
        assert part in card


def test_cells_open_their_examples(folder: Path) -> None:
    with chromium() as browser:
        tab = browser.new_page()
        faults: list[Any] = []
        tab.on("pageerror", lambda fault: faults.append(fault))
        tab.goto((folder / "report.html").as_uri())
        fill = "getComputedStyle(document.querySelector('svg .line')).fill"
        assert tab.evaluate(fill) == "none"
        assert tab.locator("#cell-examples").is_hidden()
        button = tab.locator(".matrix button").first
        button.click()
        count = int(button.get_attribute("data-count") or 0)
        shown = tab.locator("#cell-examples article:visible")
        assert shown.count() == min(count, 25)
        assert f"{count} examples" in tab.locator("#cell-title").inner_text()
        tab.get_by_role("button", name="% of label").click()
        share = round(float(button.get_attribute("data-row") or 0))
        assert button.inner_text() == str(share)
        tab.get_by_role("button", name="counts").click()
        assert button.inner_text() == str(count)
        assert faults == []


@pytest.mark.slow
def test_errors_are_searched_and_filtered(folder: Path) -> None:
    with chromium() as browser:
        tab = browser.new_page()
        tab.goto((folder / "report.html").as_uri())
        errors = tab.locator("#errors article")
        shown = tab.locator("#errors article:visible")
        assert 0 < shown.count() <= 25
        label = errors.first.get_attribute("data-label") or ""
        tab.locator("#filters select[name=label]").select_option(label)
        assert {one.get_attribute("data-label") for one in shown.all()} == {label}
        tab.locator("#filters input").fill("no such text")
        assert shown.count() == 0
        assert f"0 of {errors.count()} errors" in tab.locator("#filters").inner_text()


def test_every_task_has_a_report(base: Maker, write: Write, tmp_path: Path) -> None:
    files = [
        write("tags.jsonl", sentences(8)),
        stored(tmp_path / "q.json", asked(8, impossible=True)),
        write("choice.jsonl", chosen(6)),
        write("numbers.jsonl", [{"text": f"river {n}", "score": n / 3} for n in range(8)]),
        write(
            "several.jsonl",
            [{"text": f"river {n}", "labels": ["a", "b"][: n % 3]} for n in range(8)],
        ),
        write("near.jsonl", [{"anchor": f"a {n}", "positive": f"b {n}"} for n in range(4)]),
    ]
    for number, file in enumerate(files):
        out = tmp_path / str(number)
        finetune(base().folder, file, out, dev=file, epochs=1)
        text = (out / "report.html").read_text("utf-8")
        numeric = file.name in ("numbers.jsonl", "near.jsonl")
        assert f"<h2>{'Largest errors' if numeric else 'Errors'}</h2>" in text
        assert ("examples are not predicted exactly" in text) != numeric
        assert ("Predictions by label" in text) == (file.name == "numbers.jsonl")
        assert ("temperature" in text) == (file.name == "near.jsonl")  # settings of its own task
        assert "matrix_learning_rate" not in text
        card = (out / "README.md").read_text("utf-8")
        assert f"\n# {number}\n" in card
        assert "AutoModelFor" in card or "SentenceTransformer(" in card
        assert ('aggregation_strategy="first"' in card) == (file.name == "tags.jsonl")
        json.loads((out / "report.json").read_text("utf-8"))


def test_many_classes_are_sorted_and_folded(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [{"text": f"river {n}", "label": f"class_{n % 24}"} for n in range(72)]
    file = write("many.jsonl", rows)
    finetune(base().folder, file, tmp_path / "out", dev=file, epochs=1)
    text = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "4 more classes" in text
    assert "Most frequent confusions" in text
    assert 'class="matrix dense"' in text
    first = text[text.index("<h2>Classes</h2>") : text.index("4 more classes")]
    shown = [float(one) for one in re.findall(r'<td class="number">([\d.]+)%', first)[::3]]
    assert len(shown) == 20
    assert shown == sorted(shown)
