"""Time, memory and work of a run before it starts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.checkpoint import Sentence, create, save
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.train import load_recipe, plan, planning, recipe_names
from bertsmith.train.planning import random_example


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_planned(name: str) -> None:
    needs = name in ("adapt", "distilbert", "bertsmith-small-replaced", "bertsmith-small-pairs")
    start = ["model.start=bertsmith-small"] if needs else []
    start += (
        []
        if name not in ("distilbert", "minilm")
        else [
            "teacher.model=bertsmith-small",
            "teacher.relation_heads=4",
        ]
    )
    size = None if start or load_recipe(name).model.start else 1000
    if name.startswith("tiny-"):
        result = plan(load_recipe(name, ["train.micro_tokens=128"]), size, "cpu")
        assert result["measured"]
        assert result["tokens_per_second"] > 0
        return
    result = plan(load_recipe(name, start), size, "h200", 8)
    assert result["hours"] > 0
    assert result["memory_bytes"] > 0
    assert 0 < result["devices_useful"] < 1
    assert 0 < result["communication_share"] < 1


def test_a_plan_by_the_clock_has_the_stages_that_fit() -> None:
    stages = "stages=[{length=128, steps=1000}, {length=512}]"
    short, long = (
        plan(
            load_recipe("bert-base", ["train.steps=0", stages, f"train.minutes={minutes}"]),
            1000,
            "h200",
        )
        for minutes in (0.1, 60)
    )
    assert 0 < short["steps"] < 1000 < long["steps"]
    for result, minutes in ((short, 0.1), (long, 60)):
        seconds = result["tokens"] / result["tokens_per_second"]
        assert seconds == pytest.approx(60 * minutes, rel=0.05)


def test_a_plan_counts_what_is_known() -> None:
    result = plan(load_recipe("bert-base"), 30522, "h200")
    assert result["parameters"] == pytest.approx(110e6, rel=0.01)
    assert result["tokens"] == 900_000 * 32_768 + 100_000 * 131_072
    # Six operations a weight and token, and attention.
    assert result["operations"] == pytest.approx(result["tokens"] * 6 * 85e6, rel=0.1)
    for bad in ("abacus", "cuda"):
        with pytest.raises(BertsmithError, match=r"device|GPU"):
            plan(load_recipe("bert-base"), 30522, bad)


@pytest.mark.parametrize("size", [1, 7, 600])
def test_small_vocabularies(size: int) -> None:
    example = random_example(4, 16, load_recipe("tiny-bert"), size)
    assert int(example.batch.ids.max()) < size
    result = plan(load_recipe("tiny-bert", ["train.micro_tokens=128"]), size, "cpu")
    assert result["vocabulary"] == size
    with pytest.raises(BertsmithError, match="at least one"):
        plan(load_recipe("tiny-bert"), 0, "h200")


def test_a_model_that_is_continued_has_its_own_shape_and_vocabulary(
    prepared: Path, tmp_path: Path
) -> None:
    tokenizer = Corpus.open(prepared).tokenizer
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings = {"model_type": "bert", **sizes, "intermediate_size": 64, "vocab_size": 640}
    save(tmp_path, create(settings), tokenizer, Sentence())
    changes = [f"model.start={tmp_path}", "train.micro_tokens=128"]
    for device in ("cpu", "h200"):
        for corpus in ([], [f"data.corpus={prepared}"]):
            result = plan(load_recipe("small-bert", [*changes, *corpus]), None, device)
            assert result["vocabulary"] == tokenizer.size
            assert result["parameters"] < 200_000
    with pytest.raises(BertsmithError, match="keeps its own vocabulary"):
        plan(load_recipe("small-bert", changes), 1000, "h200")


def test_a_cpu_is_measured_with_samples_of_the_corpus(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short sequences take longer for each token: full ones would promise too much."""
    made = []
    monkeypatch.setattr(planning, "random_example", lambda *a: made.append(a) or random_example(*a))
    recipe = load_recipe("tiny-bert", [f"data.corpus={prepared}", "train.micro_tokens=128"])
    assert plan(recipe, None, "cpu")["tokens_per_second"] > 0
    assert not made
    plan(recipe, 1000, "cpu")  # another vocabulary than that of the corpus
    assert len(made) == 1


# ------------------------------------------------------------------ several devices


def large(devices: int, each: int = 48 * 512, **train: Any) -> dict[str, Any]:
    """BERT-large with as many sequences on each device as in MLPerf's training benchmark."""
    changes = ["stages=[]", "data.length=512", f"train.batch_tokens={devices * each}"]
    changes += [f"train.micro_tokens={each}", *(f"train.{k}={v}" for k, v in train.items())]
    return plan(load_recipe("bert-large", changes), 30522, "h100", devices)


def test_scaling_is_that_of_published_runs() -> None:
    one, eight, many = (large(n)["tokens_per_second"] for n in (1, 8, 64))
    assert eight / (8 * one) == pytest.approx(0.98, abs=0.01)
    assert many / (8 * eight) == pytest.approx(0.86, abs=0.02)


def test_more_devices_never_wait_less() -> None:
    waits = [large(n)["communication_share"] for n in (1, 2, 8, 16, 256, 1024)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    # One graph sends its gradients when all of it has been computed.
    compiled = large(64, compile="true")["communication_share"]
    assert compiled > 1.5 * large(64)["communication_share"]


def test_small_steps_cannot_use_many_devices() -> None:
    recipe = load_recipe("bert-base", ["stages=[]", "train.batch_tokens=32768"])
    times = {n: plan(recipe, 30522, "h200", n) for n in (1, 8, 64)}
    assert times[1]["devices_useful"] > 0.95
    assert times[8]["hours"] > times[1]["hours"] / 4  # a pass takes time however small it is
    assert times[64]["hours"] > times[8]["hours"] / 2
    assert times[64]["devices_useful"] < 0.1
    compiled = load_recipe(
        "bert-base", ["stages=[]", "train.batch_tokens=32768", "train.compile=true"]
    )
    assert plan(compiled, 30522, "h200", 8)["hours"] < times[8]["hours"] / 2


def test_fsdp_divides_the_weights_and_sends_more() -> None:
    ddp, fsdp = large(64), large(64, parallel="fsdp")
    assert fsdp["memory_bytes"] < ddp["memory_bytes"] - 15 * ddp["parameters"]
    assert fsdp["communication_share"] > ddp["communication_share"]


def test_a_new_model_of_any_size_takes_no_memory_to_plan() -> None:
    changes = ["model.settings.num_hidden_layers=900", "model.settings.hidden_size=16384"]
    changes += ["model.settings.num_attention_heads=128", "model.settings.intermediate_size=65536"]
    result = plan(load_recipe("bert-large", changes), None, "h100", 64)
    assert result["parameters"] > 2e12
    assert result["fits"] is False


def test_precision_is_what_the_run_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.train import planning

    asked: list[tuple[str, torch.device]] = []

    def supported(name: Any, device: torch.device) -> Any:
        asked.append((name, device))
        return "float32"

    monkeypatch.setattr(planning, "supported", supported)
    plan(
        load_recipe("tiny-bert", ["train.precision=bfloat16", "train.micro_tokens=128"]), 99, "cpu"
    )
    assert asked == [("bfloat16", torch.device("cpu"))]


def test_pairs_of_crops_are_planned_whole() -> None:
    changes = ["data.format=crops", "objectives={contrastive=1.0}", "train.micro_tokens=384"]
    result = plan(load_recipe("tiny-bert", changes), 1000, "cpu")  # three sequences of 128 fit
    assert result["tokens_per_second"] > 0
