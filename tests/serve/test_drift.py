"""Inputs and predictions of a served model, compared with those of its evaluation."""

import json
import math
from collections import Counter
from pathlib import Path

import httpx
import pytest

import bertsmith as bs
from bertsmith.metrics.drift import FEW, Figures, drift
from bertsmith.serve import ServingSettings
from serve.live import serving, tiny


def test_the_index_is_as_defined() -> None:
    stored = Figures(lengths=Counter({"8": 300, "16": 100}))
    seen = Figures(lengths=Counter({"8": 100, "16": 300}))
    p, q = 300.5 / 401, 100.5 / 401
    expected = 2 * (p - q) * math.log(p / q)
    assert drift(stored, seen)["lengths"] == pytest.approx(expected)
    assert drift(stored, stored)["lengths"] == 0
    few = Figures(lengths=Counter({"8": FEW - 1}))
    assert drift(stored, few)["lengths"] is None
    assert drift(stored, seen)["labels"] is None


@pytest.mark.parametrize("content", [None, [], "x", {}, {"lengths": []}, {"lengths": {"8": -1}}])
def test_other_content_is_no_figures(content: object) -> None:
    assert Figures.read(content) is None


def test_figures_are_stored_by_finetune_and_compared_by_the_server(tmp_path: Path) -> None:
    tiny(("masked_lm",)).save(tmp_path / "start")
    texts = [f"the river {'flows ' * (n % 5)}to the sea {n}" for n in range(120)]
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(texts)]
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows[:60]), "utf-8")
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    bs.finetune(tmp_path / "start", train, tmp_path / "model", dev=dev, epochs=1, device="cpu")
    noted = json.loads((tmp_path / "model" / "bertsmith.json").read_text("utf-8"))["figures"]
    assert sum(noted["lengths"].values()) == 120
    assert sum(noted["labels"].values()) == 120
    bert = bs.load(tmp_path / "model")
    assert bert.checkpoint.notes["figures"] == noted  # also when it is saved again
    settings = ServingSettings(drift_limit=0.2, drift_examples=5)
    with serving({"model": bert}, settings) as http:
        same = ask(http, texts)
        assert same["stored"] == noted
        assert same["today"] == noted  # the same texts, asked one by one, give the same figures
        assert all(value == 0 for value in same["drift"].values())
        assert same["beyond"] == []
        assert len(same["examples"]) == 5
        assert same["examples"][0]["text"] in texts
        ask(http, ["ⴰⵎⴰⵣⵉⵖ " * 30 + text for text in texts])
        later = http.get("/drift").json()["models"]["model"]
        assert "unknown_tokens" in later["beyond"]
        http.app.state.service.drift.models["model"].measured = 0  # type: ignore[attr-defined]
        ask(http, texts[:1])
        metrics = http.get("/metrics").text
        assert 'bertsmith_drift_beyond_limit{figure="unknown_tokens",model="model"} 1.0' in metrics
        assert http.get("/models/model/drift").json()["models"].keys() == {"model"}


def ask(http: httpx.Client, texts: list[str]) -> dict[str, dict[str, object]]:
    for text in texts:
        http.post("/classify", json={"inputs": text}).raise_for_status()
    found: dict[str, dict[str, object]] = http.get("/drift").json()["models"]["model"]
    return found


def test_without_figures_and_without_examples() -> None:
    with serving({"tiny": tiny(("tag",))}) as http:
        http.post("/tag", json={"inputs": ["Anna", "bees"]}).raise_for_status()
        found = http.get("/drift").json()["models"]["tiny"]
    assert (found["stored"], found["drift"], found["examples"]) == (None, {}, [])
    assert sum(found["today"]["lengths"].values()) == 2
