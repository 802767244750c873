"""A whole run, as short as it can be."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import bertsmith as bs
from bertsmith.demo.folder import MADE, MARK
from bertsmith.demo.run import run
from bertsmith.demo.steps import affordable
from demo.conftest import TINY, Made


def test_everything_is_there(made: Made) -> None:
    assert {path.name for path in made.out.iterdir()} == {*MADE, MARK}
    for page in ("index.html", "attention.html", "senses.html", "classifier/report.html"):
        assert "Content-Security-Policy" in (made.out / page).read_text("utf-8")


def test_the_models_are_as_others(made: Made) -> None:
    bert = bs.load(made.out / "model")
    assert set(bert.checkpoint.entries) == {"masked_lm", "next_sentence"}
    assert bert.fill_mask("Return the [MASK] of it.", top=1)
    area = bs.load(made.out / "classifier").classify("Close the window that is called window_name.")
    assert area.label in {"network", "windows", "text"}
    assert bs.load(made.out / "tagger").checkpoint.labels == ["O", "B-CODE"]


def test_what_is_told_to_machines(made: Made) -> None:
    told = json.loads((made.out / MARK).read_text("utf-8"))
    assert told == {"made_by": "bertsmith demo", **json.loads(json.dumps(made.results))}
    assert told["finished"] is True
    assert told["met"]["model"] == "bertsmith-small"
    assert told["pretraining"]["steps"] == TINY.steps
    assert told["classifier"]["held_out"] == 30
    assert told["classifier"]["baseline"] < 0.6
    assert told["tagger"]["baseline_label"] == "O"
    assert told["few_labels"]["learned_from"] == TINY.few
    starts = [one["name"] for one in told["few_labels"]["starts"]]
    assert [name.partition(",")[0] for name in starts] == [
        "this BERT before pre-training",
        "this BERT",
        "bertsmith-small",
    ]
    assert all(0 <= one["f1"] <= 1 for one in told["few_labels"]["starts"])
    assert told["pretraining"]["guesses_after"] == [0, 1, 2, 4, 8]
    assert {len(guesses) for guesses in told["pretraining"]["guesses"]} == {5}
    report = json.loads((made.out / "classifier" / "report.json").read_text("utf-8"))
    assert report["scores"]["test"]["accuracy"] == told["classifier"]["accuracy"]
    simple = report["baseline"]["scores"]["test"]["accuracy"]
    assert told["classifier"]["tfidf"] == simple
    assert told["tagger"]["tfidf"] is None


def test_tfidf_is_shown_beside_the_classifier(made: Made) -> None:
    for shown in (made.shown, (made.out / "index.html").read_text("utf-8")):
        assert shown.count("baseline: TF-IDF") == 1


def test_what_a_person_sees_without_a_terminal(made: Made) -> None:
    headings = [line for line in made.shown.splitlines() if " of 5 " in line]
    assert [line[0] for line in headings] == list("12345")
    assert "\x1b" not in made.shown
    assert "Berlin is the capital of germany." in made.shown
    commands = [f"   {one}" for one in made.results["commands"]]
    assert made.shown.rstrip().splitlines()[-3:] == commands


def test_guesses_begin_before_training_and_end_after_it(made: Made) -> None:
    training = made.results["pretraining"]
    for model, guesses in (
        ("beginning", training["guesses"][0]),
        ("model", training["guesses"][-1]),
    ):
        bert = bs.load(made.out / model, device="cpu")
        expected = bert.fill_mask(training["sentences"][0], top=1)[0]
        token, score = guesses[0][0]
        # The weights of the steps before the last are kept in half precision.
        assert (token, score) == (expected.token, pytest.approx(expected.score, rel=1e-2))


@pytest.mark.slow
def test_again_in_the_same_folder(made: Made, library: Path, tmp_path: Path) -> None:
    """A run that was stopped leaves a folder in which the next begins anew."""
    out = tmp_path / "demo"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.demo.steps.DemoTuning.tagger", stop)
        with pytest.raises(KeyboardInterrupt):
            run(out, None, replace(TINY, steps=1), Console(quiet=True))
    assert not (out / "index.html").exists()
    assert json.loads((out / MARK).read_text("utf-8"))["finished"] is False
    (out / "mine.txt").write_text("kept")
    results = run(out, None, replace(TINY, steps=1), Console(quiet=True))
    assert (out / "mine.txt").read_text() == "kept"
    assert (out / "index.html").exists()
    assert results["text"] == made.results["text"]


def test_a_signal_during_pretraining_stops_everything(library: Path, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.train.watch.Watch.step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "demo", None, TINY, Console(quiet=True))
    assert not (tmp_path / "demo" / "classifier").exists()


def test_slow_machines_learn_from_fewer_items(made: Made) -> None:
    tokenizer = bs.load(made.out / "model").tokenizer
    texts = ["the the"] * 1000  # four tokens each, with [CLS] and [SEP]
    budget = replace(TINY, epochs=2)
    read = [affordable(texts, tokenizer, tokens, budget) for tokens in (10, 4000, 1e9)]
    assert read == [(200, 2), (500, 2), (1000, 15)]
    assert affordable(texts, tokenizer, 1e9, replace(budget, most_items=300)) == (300, 15)


def test_a_clock_that_counts_once(made: Made) -> None:
    assert 0 < 60 * made.results["pretraining"]["minutes"] <= made.trained
