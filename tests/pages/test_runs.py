"""Reports of runs: whole, partial, damaged and hostile ones; several beside each other."""

import html
import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from analysis.browser import Watched, chromium
from bertsmith.errors import BertsmithError
from bertsmith.pages.runs import compare_runs, read_run, report_page, write_report
from bertsmith.pages.runs.page import COLUMNS, duration
from bertsmith.pages.runs.run import KEPT, MOST, Curve
from pages.runs import HOSTILE, evaluation_row, make_run, training_row, write_lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def words(page: str) -> str:
    """What a reader sees of a page."""
    body = page[page.index("<body>") : page.index("<script>")]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body)))


# ------------------------------------------------------------------ reading


def test_a_run_is_read(run: Path) -> None:
    save_file({"a": np.zeros((3, 5)), "b": np.zeros(2)}, run.parent / "weights")
    (run / "model").mkdir()
    (run.parent / "weights").rename(run / "model" / "model.safetensors")
    read = read_run(run)
    assert read.terms() == ["masked_lm", "next_sentence"]
    assert read.measures() == {
        "finished": True,
        "steps": 40,
        "tokens": 4000,
        "minutes": 0.4,
        "tokens_per_second": 200.0,
        "ranks": 2,
        "useful_share": 0.975,
        "parameters": 17,
        "held_out_masked_lm": 4.0,
        "held_out_masked_lm_accuracy": 0.25,
        "pseudo_perplexity": 81.25,
        "unigram_entropy": 6.5,
    }
    assert read.points("held_out_masked_lm") == [(10, 7.0), (20, 6.0), (30, 5.0), (40, 4.0)]
    assert read.notes == []


def test_a_run_that_goes_on(run: Path) -> None:
    for name in ("summary.json", "ledger.json"):
        (run / name).unlink()
    with (run / "log.jsonl").open("a") as log:
        log.write('{"step": 41, "masked_')  # being written
    read = read_run(run)
    assert not read.finished
    assert read.step == 40
    assert read.minutes == pytest.approx(40 * 0.65 / 60)
    assert read.notes == []
    page = words(report_page(read))
    assert "Not finished: 40 of 40 steps so far" in page
    assert "No ledger has been written yet" in page
    assert "word frequencies" not in page


def test_the_unigram_entropy_may_stand_in_the_log(run: Path) -> None:
    (run / "summary.json").unlink()
    rows = [{**evaluation_row(0, 9.0), "unigram_entropy": 6.25}, training_row(1)]
    write_lines(run / "log.jsonl", rows)
    page = words(write_report(run).read_text("utf-8"))
    assert "has not learned more than word frequencies yet: 9.00 against 6.25" in page


@pytest.mark.parametrize("present", [["recipe.toml"], ["log.jsonl"], ["recipe.toml", "log.jsonl"]])
def test_partial_runs_have_a_page(run: Path, present: list[str]) -> None:
    for file in run.iterdir():
        if file.name not in present:
            file.unlink()
    assert "Run run" in words(write_report(run).read_text("utf-8"))


@pytest.mark.parametrize("rows", [[], [training_row(1)], [evaluation_row(0, 9.0)]])
def test_logs_of_no_and_one_row(run: Path, rows: list[Any]) -> None:
    write_lines(run / "log.jsonl", rows)
    write_lines(run / "timing.jsonl", [])
    page = write_report(run).read_text("utf-8")
    trained = bool(rows) and "loss" in rows[0]
    assert page.count("No data yet.") == (1 if trained else 3)  # speed; learning rate, gradients
    assert ("masked_lm" in read_run(run).terms()) == bool(rows)
    compare_runs([read_run(run)] * 2).html()


def test_values_that_are_not_numbers(run: Path) -> None:
    rows = [training_row(step) for step in range(1, 5)]
    for row, value in zip(rows, [math.nan, math.inf, -math.inf, 3.0], strict=True):
        row["masked_lm"] = row["gradient_norm"] = value
    rows[0]["skipped"] = "the loss is not finite"
    rows[1] |= {"next_sentence": None, "learning_rate": "fast", "tokens": 10**400}
    write_lines(run / "log.jsonl", rows)
    read = read_run(run)
    assert read.points("masked_lm") == [(4, 3.0)]
    (run / "ledger.json").unlink()
    page = write_report(run).read_text("utf-8")
    assert not re.search(r"\b(nan|inf)\b", words(page))
    assert "steps skipped: the loss is not finite 1" in words(page)


def test_damage_is_counted(run: Path) -> None:
    whole = (run / "log.jsonl").read_bytes().splitlines(keepends=True)
    garbage = [b"{not json\n", b"[1, 2]\n", b"\xff\xfe\x00\n", b'{"no": "step"}\n', b"[" * 9999]
    (run / "log.jsonl").write_bytes(b"".join([*whole[:5], *garbage[:4], *whole[5:], garbage[4]]))
    (run / "recipe.toml").write_text("not toml")
    (run / "summary.json").write_text('{"finished": tr')
    (run / "ledger.json").write_text("[]")
    read = read_run(run)
    assert read.step == 40
    assert len(read.notes) == 4
    assert "ledger.json is damaged and left out (it is not a table)" in read.notes
    assert "log.jsonl: 4 damaged lines are left out" in read.notes
    assert "log.jsonl: 4 damaged lines are left out" in words(report_page(read))
    for row in (3, "text", [{"text": 3}], [{"targets": [], "text": ""}], [[]], [{}]):
        write_lines(run / "log.jsonl", [{"step": 1, "samples": row}])
        write_report(run)


@pytest.mark.parametrize("finished", [True, False])
def test_a_log_that_is_gone_cut_or_changed_is_noted(run: Path, finished: bool) -> None:
    whole = (run / "log.jsonl").read_bytes()
    if not finished:
        (run / "summary.json").unlink()
    state = run / "checkpoints" / "step-00000040" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"sums": {"log.jsonl": zlib.crc32(whole)}}))
    assert read_run(run).notes == []
    (run / "log.jsonl").write_bytes(whole.replace(b'"samples": 24', b'"samples": 25'))
    changed = ["log.jsonl was changed since the run ended"] if finished else []
    assert read_run(run).notes == changed
    (run / "log.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:9]))
    assert read_run(run).notes == ["log.jsonl ends at step 9, but the run has 40 steps"]
    (run / "log.jsonl").unlink()
    assert read_run(run).notes == ["log.jsonl is missing or empty, but the run has 40 steps"]


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="contains no run"):
        read_run(tmp_path)
    with pytest.raises(BertsmithError, match="no such folder"):
        read_run(tmp_path / "missing")


def test_an_unreadable_log(run: Path) -> None:
    (run / "timing.jsonl").unlink()
    (run / "timing.jsonl").mkdir()
    with pytest.raises(BertsmithError, match=r"timing\.jsonl: cannot be read \(Is a directory\)"):
        read_run(run)


def test_long_curves_are_means_over_buckets() -> None:
    curve = Curve()
    for step in range(100_000):
        curve.add(step, 2.0 * step, weight=1.0 + step % 2)
    points = curve.points()
    assert MOST < len(points) <= 2 * MOST
    for x, y in points:
        assert y == pytest.approx(2 * x, abs=2)
    assert sum(bucket[0] for bucket in curve.buckets) == 100_000
    assert curve.last == 199_998


def test_speed_is_tokens_over_seconds(run: Path) -> None:
    rows = [{"step": i, "seconds": 1 + i % 2 * 9, "tokens": 100} for i in range(10 * MOST)]
    write_lines(run / "timing.jsonl", rows)
    read = read_run(run)
    assert read.median_speed == 55.0
    # A hundred tokens in a second and a hundred in ten: 200 in eleven.
    assert len(read.speed.points()) > MOST
    for _, speed in read.speed.points()[:-1]:
        assert speed == pytest.approx(200 / 11)


def test_samples_of_many_evaluations_are_spread(run: Path) -> None:
    write_lines(run / "log.jsonl", [evaluation_row(step, 5.0) for step in range(0, 10_001, 10)])
    read = read_run(run)
    steps = [step for step, _ in read.samples]
    assert len(steps) == KEPT
    assert (steps[0], steps[-1]) == (0, 10_000)
    assert max(np.diff(steps)) <= 200
    page = report_page(read)
    shown = [int(step.replace(",", "")) for step in re.findall(r">step ([\d,]+)</th>", page)]
    assert len(shown) == COLUMNS
    assert max(np.diff(shown)) <= 2300


# ------------------------------------------------------------------ the page


def test_the_page_of_a_run(run: Path) -> None:
    out = write_report(run)
    assert out == run / "report.html"
    page = words(out.read_text("utf-8"))
    for text in (
        "Finished after 40 steps",
        "The model predicts tokens better than word frequencies alone: 4.00 against 6.50 nats",
        "Held-out loss 4.000 nats/token Masked LM; word frequencies alone: 6.50",
        "Held-out accuracy 25.0% Masked LM",
        "Pseudo-perplexity 81.2",
        "Tokens 4,000 in 40 steps",
        "Time 24 s",
        "Speed 200 tokens/s median step, on 2 ranks; 98% of tokens useful",
        "word frequencies alone: 6.5 ",
        "Next sentence prediction",
        "Gradient norm",
        "Learning rate",
        "median step: 200",
        "documents too short 1,234",
        "optimizer adamw",
    ):
        assert text in page, text


def test_the_unigram_line_is_only_where_tokens_are_predicted(run: Path) -> None:
    page = write_report(run).read_text("utf-8")
    assert page.count("word frequencies alone: 6.5</text>") == 1
    masked, following = page.index("<h2>Masked LM"), page.index("<h2>Next sentence")
    assert masked < page.index("word frequencies alone: 6.5</text>") < following


def test_correct_guesses_are_marked(run: Path) -> None:
    page = write_report(run).read_text("utf-8")
    assert page.count("<mark>france</mark> <small>22%</small>") == 4  # evaluations
    assert page.count("<mark>seine</mark> <small>90%</small>") == 4
    assert "<mark>germany" not in page
    assert "The capital of <b>france</b> lies on the <b>seine</b>" in page


def test_hostile_text_stays_text(run: Path) -> None:
    page = write_report(run).read_text("utf-8")
    assert HOSTILE not in page
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert words(page).count(HOSTILE) > 2  # the recipe's `about`, the sample, its guesses


def test_the_page_is_one_file(run: Path) -> None:
    page = write_report(run).read_text("utf-8")
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"https?://", page)
    assert re.findall(r'<[^>]+(?:src|href)="([^"]*)"', page) == ["data:,"]


def test_replaced_tokens_have_a_recall(run: Path) -> None:
    row = {"generator": 7.0, "generator_accuracy": 0.1, "replaced": 0.3, "replaced_accuracy": 0.9}
    row |= {"replaced_recall": 0.5}
    held = {f"held_out_{key}": value for key, value in row.items()}
    write_lines(run / "log.jsonl", [{"step": 1, "loss": 9.0, **row}, {"step": 1, **held}])
    page = words(write_report(run).read_text("utf-8"))
    assert "The generator has not learned more than word frequencies yet" in page
    assert "held-out, recall" in page
    assert page.index("Replaced token detection") < page.index("held-out, recall")


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(0.05, "3 s"), (5.7, "5 min 42 s"), (125, "2 h 5 min"), (60 * 24 * 3.5, "3 d 12 h")],
)
def test_durations(minutes: float, text: str) -> None:
    assert duration(minutes) == text


# ------------------------------------------------------------------ several runs


def test_runs_beside_each_other(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b", steps=20, optimizer="lamb")]
    compared = compare_runs([read_run(folder) for folder in folders])
    assert compared.names == ("a", "b")
    assert compared.measures["held_out_masked_lm"] == [4.0, 6.0]
    assert compared.recipe == {"train.optimizer": ["adamw", "lamb"]}
    assert compared.notes == []
    rows = dict(compared.rows())
    assert rows["steps"] == ["40", "20"]
    assert rows["held-out loss, Masked LM"] == ["4.0000 nats", "6.0000 nats"]
    assert rows["held-out accuracy, Masked LM"] == ["25.0%", "25.0%"]
    page = compared.html()
    assert page.count("word frequencies alone: 6.5</text>") == 2  # held-out and training
    x = re.findall(r'data-x="([^"]*)" data-y="8 7 6 5 4|data-x="([^"]*)" data-y="7 6"', page)
    assert ("", "1000 2000") in x  # over tokens, not steps


def test_runs_on_other_text(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / name / "run", unigram=value))
            for name, value in (("a", 6.5), ("b", 7.0))]  # fmt: skip
    compared = compare_runs(runs)
    assert compared.names == ("a/run", "b/run")  # folders of one name
    [note] = compared.notes
    assert "cannot be compared directly" in note
    assert "word frequencies alone, b/run: 7<" in compared.html()


def test_baselines_belong_to_the_runs_that_are_drawn(tmp_path: Path) -> None:
    masked, causal = make_run(tmp_path / "masked"), make_run(tmp_path / "causal", unigram=7.0)
    row = {"step": 1, "held_out_following_lm": 6.0, "held_out_following_lm_accuracy": 0.1}
    write_lines(causal / "log.jsonl", [{**row, "tokens": 100}])
    page = compare_runs([read_run(masked), read_run(causal)]).html()
    first, second = page.split("<h2>Causal LM")
    assert "word frequencies alone: 6.5</text>" in first
    assert "word frequencies alone: 7</text>" not in first
    assert "word frequencies alone: 7</text>" in second


def test_runs_with_nothing_in_common(tmp_path: Path) -> None:
    run, empty = make_run(tmp_path / "a"), tmp_path / "empty"
    empty.mkdir()
    (empty / "recipe.toml").write_text("[train]\nsteps = 7\n")
    compared = compare_runs([read_run(empty), read_run(run)])
    assert compared.measures["tokens"] == [None, 4000]
    assert list(compared.measures)[-1] == "unigram_entropy"
    assert compared.recipe["train.steps"] == [7, 40]
    assert "–" in words(compared.html())
    json.dumps(compared.measures, allow_nan=False)


# ------------------------------------------------------------------ in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(browser: Any, run: Path, scheme: str) -> None:
    shown = Watched(browser, write_report(run), color_scheme=scheme)
    page = shown.page
    assert page.title() == "Run run"
    page.evaluate("document.querySelector('.tiles li').append('a/long/path/'.repeat(9))")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    chart = page.locator(".chart").first
    chart.locator("svg").hover()
    values = chart.locator("output").all_inner_texts()
    assert len(values) == 2
    assert all(2 <= float(value) <= 9 for value in values)
    assert chart.locator(".at").inner_text().startswith("step ")
    page.mouse.move(0, 0)
    assert chart.locator("output").all_inner_texts() == ["", ""]
    assert shown.faults == []
    assert len(shown.requests) == 1
    shown.context.close()
