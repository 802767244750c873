"""Whole comparisons: resumed, in parallel and merged they come to the same results."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertsmith.checkpoint import Sentence, create, save
from bertsmith.compare import budget, compare
from bertsmith.compare.parts import (
    PRETRAIN,
    RATE,
    SCORE,
    ComparisonPart,
    PartStore,
    best_rate,
    parts_of,
    rate_parts,
)
from bertsmith.compare.results import _means
from bertsmith.compare.spec import Spec
from bertsmith.compare.summary import summarised
from bertsmith.compare.work import PartRunner, PartStopped
from bertsmith.errors import BertsmithError
from bertsmith.finetuning import finetune
from bertsmith.metrics import multi_bootstrap
from bertsmith.tokenizer import Tokenizer

Make = Callable[..., Spec]


@pytest.fixture(scope="module")
def done(
    material: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """The folder of a finished comparison."""
    return tmp_path_factory.mktemp("compare") / "done"


def run(spec: Spec, out: Path, **options: Any) -> dict[str, Any]:
    return compare(spec, out, **{"jobs": 1, **options})


@pytest.fixture
def finished(make_spec: Make, done: Path) -> Path:
    """A finished comparison; run once."""
    if not (done / "results.json").exists():
        run(make_spec(), done)
    return done


def test_results(make_spec: Make, finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    assert results["missing"] == []
    assert results["variants"]["pairs"]["budgets"]["tokens"]["steps"] == 8
    (held, *_), name = results["pretraining"]["tokens"]["masked"], "masked_lm"
    assert [row["at"] for row in held["held_out"]] == [0.25, 0.5, 0.75, 1.0]
    assert all(row[name] > 0 for row in held["held_out"])
    score = results["scores"]["tokens"]["words"]["masked"]
    assert score["low"] <= score["mean"] <= score["high"]
    assert len(score["runs"]) == 2
    (pair,) = results["comparisons"]["tokens"]["words"]
    assert (pair["first"], pair["second"]) == ("pairs", "masked")
    assert 0 < pair["p"] <= pair["p_corrected"] <= 1
    rates = results["learning_rates"]["tokens"]["words"]["pairs"]
    assert rates["dev"][f"{rates['chosen']:g}"] == max(rates["dev"].values())
    assert any("words (accuracy" in line for line in results["summary"])
    assert "seconds" not in json.dumps(results)
    timings = json.loads((finished / "timings.json").read_text())
    assert timings["variants"]["pairs"]["tokens_per_second"] > 0
    assert set(timings["parts"]) == {part.key for part in parts_of(make_spec())}


def test_the_page_shows_everything(make_spec: Make, finished: Path) -> None:
    page = (finished / "report.html").read_text("utf-8")
    for heading in ("Scores", "Score against cost", "Learning curves", "Costs", "Run it again"):
        assert f">{heading}" in page
    assert "the class" in page or "the list" in page or "No" in page
    run(make_spec(), finished, texts=False)
    plain = (finished / "report.html").read_text("utf-8")
    assert "Examples were left out" in plain
    assert "is empty" not in plain
    assert "is right" not in plain
    run(make_spec(), finished)


def test_finished_parts_are_not_run_again(
    make_spec: Make, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (finished / "results.json").read_bytes()
    ran: list[ComparisonPart] = []
    monkeypatch.setattr(PartRunner, "run", lambda self, part: ran.append(part))
    run(make_spec(), finished)
    assert ran == []
    assert (finished / "results.json").read_bytes() == before


def test_interrupted_after_any_part_it_ends_the_same(
    make_spec: Make, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after each part, also before a part's result is stored."""
    real, count = PartRunner.run, 0

    def stopping(self: PartRunner, part: ComparisonPart) -> None:
        nonlocal count
        count += 1
        if count % 3 == 0 and part.kind == PRETRAIN:
            self._pretrain(part)  # killed before its result is stored
            raise PartStopped
        real(self, part)
        if count % 2:
            raise PartStopped

    monkeypatch.setattr(PartRunner, "run", stopping)
    for _ in range(20):
        try:
            run(make_spec(), tmp_path)
        except PartStopped:
            continue
        break
    results = (tmp_path / "results.json").read_bytes()
    assert results == (finished / "results.json").read_bytes()


def test_variants_run_apart_are_merged(make_spec: Make, finished: Path, tmp_path: Path) -> None:
    first = run(make_spec(), tmp_path / "first", only=["pairs"])
    assert {key.split("/")[0] for key in first["missing"]} == {"masked"}
    assert any("missing" in line for line in first["summary"])
    run(make_spec(), tmp_path / "second", only=["masked"])
    lines: list[str] = []
    run(make_spec(), tmp_path / "first", merge=[tmp_path / "second"], say=lines.append)
    assert "12 of 12 parts are finished" in lines
    results = (tmp_path / "first" / "results.json").read_bytes()
    assert results == (finished / "results.json").read_bytes()


def test_parts_of_another_machine_keep_its_name(
    make_spec: Make, finished: Path, tmp_path: Path
) -> None:
    """Parts that a GPU ran are reported here, where there is none."""
    for path in finished.glob("parts/*/*/*.json"):
        content = json.loads(path.read_text())
        content["measured"]["device"] = "NVIDIA X"
        target = tmp_path / path.relative_to(finished)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content))
    run(make_spec(device="cuda"), tmp_path)
    assert json.loads((tmp_path / "timings.json").read_text())["device"] == "NVIDIA X"
    results = (tmp_path / "results.json").read_bytes()
    assert results == (finished / "results.json").read_bytes()


def test_earlier_quarters_are_scored_once(make_spec: Make) -> None:
    spec = make_spec(finetune={"seeds": 3, "learning_rates": [1e-3], "at": [0.25, 0.5]})
    scored = [(part.at, part.finetune_seed) for part in parts_of(spec) if part.kind == SCORE]
    assert sorted(set(scored)) == [(0.25, 0), (0.5, 0), (1.0, 0), (1.0, 1), (1.0, 2)]


def test_undefined_scores_do_not_stop_a_comparison(make_spec: Make, tmp_path: Path) -> None:
    """The correlation with constant predictions is undefined: the lowest rate is used."""
    spec, store = make_spec(), PartStore(tmp_path)
    part = next(part for part in parts_of(spec) if part.kind == SCORE)
    for trial in rate_parts(spec, part):
        store.write(trial, {}, {"dev": None}, {})
    assert best_rate(spec, store, part) == 1e-3
    store.write(trial, {}, {"dev": -0.5}, {})
    assert best_rate(spec, store, part) == trial.rate == 1e-2


def test_the_summary_names_the_cheapest_of_equals(make_spec: Make) -> None:
    names = ("wide", "fast", "poor")
    rows = [("wide", "fast", -0.01, False), ("wide", "poor", -0.3, True)]
    pairs: list[dict[str, Any]] = [
        {"first": a, "second": b, "difference": d, "different": r, "seeds_needed": None}
        | {"test_set_too_small": False}
        for a, b, d, r in rows
    ]
    means = {"wide": 0.9, "fast": 0.89, "poor": 0.6}
    scores = {name: {"mean": means[name], "low": 0.5, "high": 1.0} for name in names}
    results: dict[str, Any] = {
        "scores": {"tokens": {"words": scores}},
        "mean": {"tokens": scores},
        "comparisons": {"tokens": {"words": pairs}},
        "tasks": {"words": {"metric": "accuracy", "test": 9}},
        "variants": dict(zip(names, ({"flops_per_token": n} for n in (100, 40, 10)), strict=True)),
        "missing": [],
    }
    lines = summarised(make_spec(), results)
    assert any("2 variants" in line and "fast needs the fewest" in line for line in lines)
    assert any("40% of those of wide" in line for line in lines)
    assert any("than poor (0.6000), fast (0.8900) and wide (0.9000)" in line for line in lines)
    assert any("Few test examples: words (9). With fewer than 30" in line for line in lines)
    results["tasks"]["words"]["test"] = 30
    assert not any("Few test examples" in line for line in summarised(make_spec(), results))
    for pair in pairs:
        pair.update(difference=0.0, different=False)
    assert "On words (accuracy), all variants score the same" in summarised(make_spec(), results)[0]


def test_more_seeds_are_added(make_spec: Make, finished: Path, tmp_path: Path) -> None:
    run(make_spec(seeds=1), tmp_path)
    lines: list[str] = []
    run(make_spec(), tmp_path, say=lines.append)
    assert lines[0] == "8 of 12 parts are finished"
    results = (tmp_path / "results.json").read_bytes()
    assert results == (finished / "results.json").read_bytes()


def test_other_settings_are_refused(make_spec: Make, finished: Path) -> None:
    message = r"with other settings, data or corpus \(recipe\.train\.steps differs\); choose"
    with pytest.raises(BertsmithError, match=message):
        run(make_spec(budget={"tokens": 2000}), finished)


def test_early_models_and_trained_models(make_spec: Make, material: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(material / "tokenizer")
    model = create("bert-tiny", vocab_size=448, hidden_size=16, num_attention_heads=2)
    save(tmp_path / "model", model, tokenizer, Sentence())
    spec = make_spec(
        seeds=1,
        variants={
            "masked": {"recipe": "tiny-bert-no-nsp"},
            "own": {"model": str(tmp_path / "model")},
        },
        finetune={"seeds": 1, "learning_rates": [1e-3], "at": [0.5], "settings": {"epochs": 1}},
    )
    results = run(spec, tmp_path / "out")
    scores = results["scores"]["tokens"]["words"]
    assert set(scores) == {"masked", "own"}
    assert set(scores["masked"]["at"]) == {"0.5", "1"}
    assert results["variants"]["own"]["parameters"] > 0
    assert any("pre-trained once" in line for line in results["summary"])


def test_means_of_tasks_that_were_drawn_unequally_often() -> None:
    """A task that more variants have finished has more pairs to correct for, so more draws."""

    def half(weights: Any) -> float:
        return float(weights[:5].sum() / weights.sum())

    drawn = {
        "one": multi_bootstrap({"x": [half], "y": [half]}, 10, draws=40),
        "two": multi_bootstrap({"x": [half]}, 10, draws=60),
    }
    means = _means(drawn)
    assert means.keys() == {"x"}
    assert means["x"]["low"] < means["x"]["mean"] == 0.5 < means["x"]["high"]


def test_all_variants_have_the_same_settings(
    make_spec: Make, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in a model's own bertsmith.json are not used."""
    tokenizer = Tokenizer.load(material / "tokenizer")
    notes = {"finetune": {"optimizer": "muon", "layer_decay": 0.5, "dropout": 0.3}}
    model = create("bert-tiny", vocab_size=448, hidden_size=16, num_attention_heads=2)
    for name, own in (("plain", {}), ("own", notes)):
        save(tmp_path / name, replace(model, notes=own), tokenizer, Sentence())
    used = []

    def record(*given: Any, **more: Any) -> Any:
        result = finetune(*given, **more)
        used.append(result.kept.settings.model_dump(exclude={"seed"}))
        return result

    monkeypatch.setattr("bertsmith.compare.work.finetune", record)
    spec = make_spec(
        corpus="",
        budget={},
        settings={},
        variants={name: {"model": str(tmp_path / name)} for name in ("plain", "own")},
        finetune={"seeds": 1, "learning_rates": [1e-3], "settings": {"epochs": 1}},
    )
    run(spec, tmp_path / "out")
    assert len(used) > 1
    assert all(one == used[0] for one in used)
    assert used[0]["optimizer"] == "adamw"


def test_parts_and_their_order(make_spec: Make) -> None:
    parts = parts_of(make_spec())
    assert len({part.key for part in parts}) == len(parts) == 12
    for place, part in enumerate(parts):
        assert set(part.needs(make_spec())) <= set(parts[:place])
    assert {part.kind for part in parts} == {PRETRAIN, RATE, SCORE}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"corpus": ""}, "no corpus to pre-train pairs on"),
        ({"corpus": "nowhere"}, "variants.pairs: .*nowhere"),
        ({"budget": {"tokens": 100}}, "less than 4 steps; it needs at least"),
        (
            {
                "variants": {
                    "m": {
                        "recipe": "tiny-bert-no-nsp",
                        "settings": {"train": {"ramp_from": 64, "ramp_steps": 4}},
                    }
                }
            },
            "variants.m: its batch grows from train.ramp_from = 64 tokens",
        ),
        ({"tasks": {"x": {"data": "no.csv"}}}, "tasks.x: no.csv: no such file"),
        ({"tasks": {"x": {"data": "glue", "folder": "."}}}, "unknown GLUE task 'x'"),
        ({"tasks": {"sst2": {"data": "glue", "folder": "/nowhere"}}}, "no such folder"),
        ({"tasks": {"x": {"data": "ROWS hello,a|world,b|more,a"}}}, "tasks.x: .*least two labels"),
        ({"tasks": {"x": {"data": "ROWS "}}}, "tasks.x: .*contains no rows"),
        (
            {"tasks": {"x": {"data": "ROWS a,1|b,2|c,1|d,2|e,1", "kind": "regression"}}},
            "tasks.x: its dev data has fewer than 3 different scores",
        ),
        (
            {"tasks": {"x": {"data": "ROWS a,1", "columns": {"txet": "text"}}}},
            "tasks.x: no role 'txet' of columns; did you mean text",
        ),
        ({"variants": {"m": {"model": "no/such/model/here"}}}, "no such directory"),
        ({"variants": {"m": {"recipe": "tiny-brt"}}}, "did you mean tiny-bert"),
        ({"finetune": {"settings": {"epohcs": 1}}}, "did you mean 'epochs'|did you mean epochs"),
        ({"finetune": {"settings": {"seed": 1}}}, "chosen by compare itself"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_trained(
    make_spec: Make, tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    for task in changes.get("tasks", {}).values():
        if task["data"].startswith("ROWS "):
            rows = ["text,label", *task["data"][5:].split("|")]
            (tmp_path / "rows.csv").write_text("\n".join(rows))
            task["data"] = str(tmp_path / "rows.csv")
    with pytest.raises(BertsmithError, match=fault) as error:
        run(make_spec(**changes), tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "out").rglob("recipe.toml"))


def test_unknown_variants_and_metrics(make_spec: Make, material: Path, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="did you mean masked"):
        run(make_spec(), tmp_path, only=["maskd"])
    task = {"words": {"data": str(material / "task.csv"), "metric": "bleu"}}
    with pytest.raises(BertsmithError, match="no score 'bleu'"):
        run(make_spec(tasks=task), tmp_path)


@pytest.mark.slow
def test_several_jobs(make_spec: Make, finished: Path, tmp_path: Path) -> None:
    run(make_spec(), tmp_path, jobs=2)
    results = (tmp_path / "results.json").read_bytes()
    assert results == (finished / "results.json").read_bytes()


def test_static_vectors_of_another_variant(make_spec: Make, tmp_path: Path) -> None:
    spec = make_spec(
        seeds=1,
        variants={"masked": {"recipe": "tiny-bert-no-nsp"}, "static": {"static": "masked"}},
        finetune={"seeds": 1, "learning_rates": [1e-2], "settings": {"epochs": 1}},
    )
    results = run(spec, tmp_path)
    assert results["variants"]["static"]["flops_per_token"] == 0
    assert set(results["scores"]["tokens"]["words"]) == {"masked", "static"}


def test_minutes_become_steps_once(
    make_spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several budgets side by side, without tasks; a continued comparison keeps its steps."""
    spec = make_spec(
        seeds=1,
        budget={"tokens": 600, "minutes": 0.1},
        variants={"masked": {"recipe": "tiny-bert-no-nsp"}},
        tasks={},
    )
    for steps in (9, 400):
        monkeypatch.setattr(budget, "plan", lambda *_, steps=steps, **__: {"steps": steps})
        results = run(spec, tmp_path)
        costs = results["variants"]["masked"]["budgets"]
        assert {kind: cost["steps"] for kind, cost in costs.items()} == {"tokens": 4, "minutes": 8}
    assert len(results["summary"]) == 2
    assert all("lowest held-out loss of masked_lm" in line for line in results["summary"])
    assert "0.1 minutes" in results["summary"][1]


def test_damaged_parts_are_one_line(make_spec: Make, tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "pairs" / "tokens"
    folder.mkdir(parents=True)
    for text, fault in (("{", "not valid JSON"), ("{}", "not the result of a part")):
        (folder / "seed-0.json").write_text(text)
        with pytest.raises(BertsmithError, match=fault):
            run(make_spec(), tmp_path)
    (folder / "seed-0.json").write_text("{")
    with pytest.raises(BertsmithError, match="not valid JSON"):
        run(make_spec(), tmp_path / "new", merge=[tmp_path])
    with pytest.raises(BertsmithError, match="no parts of a comparison"):
        run(make_spec(), tmp_path / "new", merge=[tmp_path / "nowhere"])
