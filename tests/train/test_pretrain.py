"""Runs: every objective on every family, resumed to the bit, guarded, exported."""

import json
import math
import shutil
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import bertsmith as bs
from bertsmith.checkpoint import read
from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.files import digest
from bertsmith.train import pretrain
from bertsmith.train.building import built, examples_of
from bertsmith.train.state import Checkpoints
from bertsmith.train.step import TrainingStep
from bertsmith.train.weights import Averages
from model.tiny import TINY
from train.recipes import OBJECTIVES, Make, log


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in log(run) if "loss" in row]


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_on_every_family(
    family: str, objective: str, recipe: Make, prepared: Path
) -> None:
    """One step each: losses are near those of a guess, and every parameter gets a gradient."""
    settings = {k: v for k, v in TINY[family].items() if k != "vocab_size"}
    settings |= {"is_decoder": True} if objective == "left to right" else {}
    made = recipe(model={"size": "bert-tiny", "settings": settings}, **OBJECTIVES[objective])
    corpus = Corpus.open(prepared)
    parts = built(made, corpus.tokenizer)
    config = parts.checkpoint.config
    examples = examples_of(made, corpus, 32, config.segments)
    example = examples.make(examples.plan(0, tokens=400, micro_tokens=400).samples, fill=64)
    torch.manual_seed(0)
    loss, found = parts.learner(example, parts.learner.counts(example))
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    ratios = {name for one in parts.learner.objectives for name in one.ratios}
    assert found.keys() - ratios == parts.learner.counts(example).keys()
    without = [
        name
        for name, parameter in parts.learner.named_parameters()
        if parameter.grad is None or not torch.isfinite(parameter.grad).all()
    ]
    assert without == []


def test_a_run_leaves_a_model_that_transformers_opens(recipe: Make, tmp_path: Path) -> None:
    made = recipe(**OBJECTIVES["next"])
    found = pretrain(made, tmp_path / "run", show="none", log=["tensorboard"])
    assert found["finished"]
    assert found["steps"] == 12
    assert len(losses(tmp_path / "run")) == 12
    assert losses(tmp_path / "run")[-1] < losses(tmp_path / "run")[0]
    held = [row for row in log(tmp_path / "run") if "held_out_masked_lm" in row]
    assert [row["step"] for row in held] == [5, 10, 12]
    assert 0 <= held[-1]["held_out_next_sentence_accuracy"] <= 1
    assert found["pseudo_perplexity"] > 1
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model").eval()
    ours = bs.load(tmp_path / "run" / "model")
    text = "The [MASK] statement is used to wrap the execution of a block."
    encoded = ours.tokenizer.encode(text, spelled="mask")
    with torch.no_grad():
        logits = theirs(torch.tensor([encoded.ids])).prediction_logits[0]
    place = encoded.ids.index(ours.tokenizer.mask_id)
    # Rows that only round the table up are no tokens.
    probabilities = logits[place][: ours.tokenizer.size].softmax(0)
    for guess in ours.fill_mask(text, top=3):
        assert guess.score == pytest.approx(float(probabilities[guess.id]), rel=1e-3)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "12 steps" in card
    assert "\npipeline_tag: fill-mask\n" in card
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    reads = theirs.config.max_position_embeddings
    assert len(words("a file " * reads, truncation=True)["input_ids"]) == reads
    assert theirs.config.sep_token_id == ours.tokenizer.sep_id


def test_an_electra_leaves_its_generator_too(recipe: Make, tmp_path: Path) -> None:
    settings = {k: v for k, v in TINY["electra"].items() if k != "vocab_size"}
    made = recipe(
        model={"size": "electra-small", "settings": settings},
        train={"steps": 2},
        **OBJECTIVES["replaced"],
    )
    pretrain(made, tmp_path / "run", show="none")
    assert 0 <= log(tmp_path / "run")[-1]["held_out_replaced_recall"] <= 1
    opened = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model")
    assert type(opened).__name__ == "ElectraForPreTraining"
    generator = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "generator")
    assert generator.config.hidden_size == 16
    assert read(tmp_path / "run" / "generator").entries.keys() == {"masked_lm"}


def test_a_head_with_no_place_in_the_directory_is_in_the_ledger(
    recipe: Make, tmp_path: Path
) -> None:
    settings = {k: v for k, v in TINY["roberta"].items() if k != "vocab_size"}
    made = recipe(
        model={"size": "roberta-base", "settings": settings},
        train={"steps": 1},
        **OBJECTIVES["next"],
    )
    pretrain(made, tmp_path / "run", show="none")
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["heads trained that a roberta directory has no place for: next_sentence"] == 1
    assert read(tmp_path / "run" / "model").entries.keys() == {"masked_lm"}


# ------------------------------------------------------------------ guards


def test_a_bad_step_never_reaches_the_weights(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad step is skipped; three in a row roll the run back, past the bad samples."""
    gradients = TrainingStep._gradients
    bad = {3, 7, 8, 9}  # calls, not steps

    calls = 0

    def spoiled(step: TrainingStep, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = gradients(step, *arguments)
        if calls in bad:
            next(step.module.parameters()).grad.fill_(math.nan)  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(TrainingStep, "_gradients", spoiled)
    made = recipe(train={"steps": 12}, checkpoint={"every": 4})
    pretrain(made, tmp_path / "run", show="none")
    rows = [row for row in log(tmp_path / "run") if "loss" in row]
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["step"] for row in rows if "skipped" in row] == [3]
    positions = [row["samples"] for row in rows]
    assert positions == sorted(positions)
    usual = positions[1] - positions[0]
    assert positions[4] - positions[3] > 4 * usual  # the rolled-back samples are passed over
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["steps skipped because the gradients were not numbers"] == 4
    assert ledger["rollbacks after three bad steps in a row"] == 1
    weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())


def test_a_run_that_diverges_gives_up(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = TrainingStep._gradients

    def spoiled(step: TrainingStep, *arguments: Any) -> Any:
        found = gradients(step, *arguments)
        next(step.module.parameters()).grad.fill_(math.inf)  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(TrainingStep, "_gradients", spoiled)
    with pytest.raises(BertsmithError, match=r"diverges after step 0.*lower train.learning_rate"):
        pretrain(recipe(), tmp_path / "run", show="none")


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"data": {"corpus": ""}}, "no corpus"),
        ({"data": {"corpus": "nowhere"}}, "nowhere"),
        ({"data": {"length": 512}}, "the model reads 64"),
        ({"objectives": {"masked_ml": 1}}, "unknown objective 'masked_ml'; did you mean masked_lm"),
        ({"objectives": {"replaced": 50}, "generator": {"fills": 0.5}}, "needs the objectives"),
        (
            {"objectives": {"replaced": 50}, "generator": {"model": "bertsmith-small"}},
            "the generator's vocabulary is not the one",
        ),
        ({"train": {"device": "tpu7"}}, "is not a device"),
        ({"model": {"size": "bert-tiny", "settings": {"vocab_size": 9}}}, "vocab_size is 9"),
        ({"model": {"size": "bert-huge"}}, "unknown size"),
        (
            {"model": {"size": "bert-tiny", "settings": {"hiden_size": 64}}},
            "unknown key model.settings.hiden_size; did you mean hidden_size",
        ),
        ({"objectives": {"following_lm": 1}}, "is_decoder"),
        *(
            ({"objectives": {"following_lm": 1, name: 1}}, f"beside {name} its text has masks")
            for name in ("masked_lm", "replaced", "soft_targets")
        ),
    ],
)
def test_mistakes_are_found_before_anything_is_written(
    changes: Any, fault: str, recipe: Make, tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError, match=fault) as caught:
        pretrain(recipe(**changes), tmp_path / "run", show="none")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_options_of_the_loop(recipe: Make, tmp_path: Path) -> None:
    """Half precision, a ramp, accumulation and averages do what they say."""
    made = recipe(
        train={
            "steps": 8,
            "precision": "bfloat16",
            "ramp_from": 128,
            "ramp_steps": 4,
            "ema": 0.5,
            "schedule": "stable",
        }
    )
    pretrain(made, tmp_path / "run", show="none")
    rows = [row for row in log(tmp_path / "run") if "loss" in row]
    sizes = [b["tokens"] - a["tokens"] for a, b in zip([{"tokens": 0}, *rows], rows, strict=False)]
    assert 90 < sizes[0] <= 128
    assert sizes[1:5] == sorted(sizes[1:5])
    assert 480 < sizes[5] <= 512
    last = Checkpoints(tmp_path / "run" / "checkpoints").read(8)
    name = "model.encoder.blocks.0.feedforward.up.weight"
    average = last.tensors["average"][name]
    assert not torch.equal(average, last.tensors["model"][name])
    stored = load_file(tmp_path / "run" / "model" / "model.safetensors")
    key = "bert.encoder.layer.0.intermediate.dense.weight"
    assert torch.equal(stored[key], average)  # the averaged weights are the model
    assert stored[key].dtype == torch.float32


def test_parts_of_a_step_give_the_gradient_of_the_whole(recipe: Make, tmp_path: Path) -> None:
    no_dropout = {**TINY["bert"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = {"size": "bert-tiny", "settings": {**no_dropout, "vocab_size": 640}}
    for name, most in (("whole", 512), ("parts", 100)):
        made = recipe(model=model, train={"micro_tokens": most, "steps": 6}, **OBJECTIVES["next"])
        pretrain(made, tmp_path / name, show="none")
    for a, b in zip(losses(tmp_path / "whole"), losses(tmp_path / "parts"), strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_a_budget_by_the_clock_ends_its_decay_in_time(recipe: Make, tmp_path: Path) -> None:
    made = recipe(train={"steps": 0, "minutes": 0.03})
    began = time.monotonic()
    found = pretrain(made, tmp_path / "run", show="none")
    assert time.monotonic() - began < 20
    assert found["minutes"] >= 0.03
    speed = found["tokens"] / found["minutes"] / 60
    assert found["tokens_per_second"] == pytest.approx(speed)
    rates = [row["learning_rate"] for row in log(tmp_path / "run") if "loss" in row]
    assert rates[-1] < 0.5 * max(rates)


def test_stages_that_the_clock_leaves_out_are_told(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count()  # a clock that does not depend on the machine
    clock = SimpleNamespace(monotonic=lambda: 0.01 * next(ticks))
    monkeypatch.setattr("bertsmith.train.loop.time", clock)
    stages = [{"length": 16, "steps": 2}, {"length": 24, "steps": 100_000}, {"length": 32}]
    made = recipe(stages=stages, train={"steps": 0, "minutes": 0.01})
    assert pretrain(made, tmp_path / "run", show="none")["stages_not_reached"] == 1
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text("utf-8"))
    assert ledger["stages that the budget did not reach"] == 1


# ------------------------------------------------------------------ what a run says of itself


def test_continuing_is_evaluated_before_the_first_step(recipe: Make, tmp_path: Path) -> None:
    pretrain(recipe(train={"steps": 4}), tmp_path / "one", show="none")
    start = {"start": str(tmp_path / "one" / "model")}
    summary = pretrain(recipe(model=start, train={"steps": 2}), tmp_path / "two", show="none")
    first, *_ = log(tmp_path / "two")
    assert first["step"] == 0
    assert summary["held_out_masked_lm_at_start"] == first["held_out_masked_lm"]
    assert first["held_out_masked_lm"] == log(tmp_path / "one")[-1]["held_out_masked_lm"]
    assert "held_out_masked_lm_at_start" not in json.loads(
        (tmp_path / "one" / "summary.json").read_text()
    )


def test_a_run_shows_word_frequencies_samples_and_a_page(recipe: Make, tmp_path: Path) -> None:
    summary = pretrain(recipe(train={"steps": 6}), tmp_path / "run", show="none")
    assert 3 < summary["unigram_entropy"] < math.log(600)
    evaluations = [row for row in log(tmp_path / "run") if "loss" not in row]
    assert all(row["unigram_entropy"] == summary["unigram_entropy"] for row in evaluations)
    texts = [[sample["text"] for sample in row["samples"]] for row in evaluations]
    assert len(texts) == 2
    assert texts[0] == texts[1]  # the same masks, so that guesses can be compared
    for sample in evaluations[-1]["samples"]:
        masks = sample["text"].count("[MASK]")
        assert masks == len(sample["targets"]) == len(sample["guesses"])
        assert all(len(guesses) == 3 for guesses in sample["guesses"])
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "word frequencies alone" in page.lower()
    assert summary["ranks"] == 1
    assert summary["useful_share"] > 0.9


def test_a_damaged_held_out_split_is_not_passed_over(
    recipe: Make, prepared: Path, tmp_path: Path
) -> None:
    shutil.copytree(prepared, tmp_path / "corpus")
    (shard,) = (tmp_path / "corpus" / "held_out").glob("*-00000.npy")
    shard.write_bytes(shard.read_bytes()[:-2])
    made = recipe(data={"corpus": str(tmp_path / "corpus")}, train={"steps": 1})
    with pytest.raises(BertsmithError, match="held_out"):
        pretrain(made, tmp_path / "run", show="none")


def test_pairs_in_micro_batches_that_hold_less(recipe: Make, tmp_path: Path) -> None:
    """Some micro-batches are empty; none may hold half a pair."""
    made = recipe(train={"steps": 2, "batch_tokens": 128, "micro_tokens": 8}, **OBJECTIVES["crops"])
    assert pretrain(made, tmp_path / "run", show="none")["finished"]


def test_held_out_text_that_cannot_be_evaluated_is_noted(
    recipe: Make, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"A first text {n}.\nA second file {n}." for n in range(40)))
    tokenizer = prepared / "tokenizer"
    for seed in range(100):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        one = prepare([text], tokenizer, tmp_path / "one", held_out=0.03, workers=0, seed=seed)
        if one.splits["held_out"].documents == 1:
            break
    made = recipe(data={"corpus": str(tmp_path / "one"), "format": "next"}, train={"steps": 1})
    pretrain(made, tmp_path / "run", show="lines")
    assert "held-out text is not evaluated: " in capsys.readouterr().err
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text("utf-8"))
    (line,) = (line for line in ledger if "held-out text" in line)
    assert "one document has no other" in line


def test_clipping_can_be_switched_off(recipe: Make, tmp_path: Path) -> None:
    """With plain sums the norm is above 1: clipped and unclipped runs part ways."""
    for clip in (0.0, 1e9, 0.01):
        made = recipe(train={"steps": 3, "clip": clip, "optimizer": "lamb"})
        pretrain(made, tmp_path / str(clip), show="none")
    assert losses(tmp_path / "0.0") == losses(tmp_path / "1000000000.0")
    assert losses(tmp_path / "0.0") != losses(tmp_path / "0.01")


def test_averages_forget_where_the_weights_began() -> None:
    parameter = torch.nn.Parameter(torch.tensor([100.0]))
    averages = Averages({"one": parameter}, 0.9)
    values = [1.0, 4.0, 2.0]
    for value in values:
        parameter.data.fill_(value)
        averages.update()
    weights = [0.1 * 0.9 ** (2 - n) for n in range(3)]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert float(averages.values["one"]) == pytest.approx(expected)


def test_the_live_view_shows_a_run_that_resumes_into_its_last_evaluation(
    recipe: Make, tmp_path: Path
) -> None:
    made = recipe(train={"steps": 2})
    pretrain(made, tmp_path / "run", show="none")
    state = tmp_path / "run" / "checkpoints" / "step-00000002" / "state.json"
    numbers = json.loads(state.read_text())
    state.write_text(json.dumps(numbers | {"closed": False, "evaluated": -1}))
    manifest = state.with_name("manifest.json")
    manifest.write_text(
        json.dumps(json.loads(manifest.read_text()) | {"state.json": digest(state)})
    )
    (tmp_path / "run" / "summary.json").unlink()
    assert pretrain(made, tmp_path / "run", show="live", resume=True)["finished"]
