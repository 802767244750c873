"""Choices of a run: early stopping, best weights, freezing, rates, recomputed activations."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from bertsmith import load
from bertsmith.errors import BertsmithError
from bertsmith.train import Recipe, evaluate, pretrain
from bertsmith.train.building import built, open_corpus
from bertsmith.train.loop import Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.recipe import checked
from bertsmith.train.state import Checkpoints
from train.conftest import SMALL
from train.test_distributed import STILL, Runner, assert_alike, ranks

__all__ = ["ranks"]  # the fixture
Make = Callable[..., Recipe]
NEW = {"train": ("freeze", "layer_decay", "checkpointing"), "evaluate": ("keep", "patience")}


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in rows(run) if "loss" in row]


def stored(run: Path, step: int, file: str = "model") -> dict[str, torch.Tensor]:
    return Checkpoints(run / "checkpoints").read(step).tensors[file]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def scripted(monkeypatch: pytest.MonkeyPatch, *found: float) -> None:
    """Held-out losses of evaluations at steps 2, 4, 6 and so on; the last stays."""
    trainers: list[Trainer] = []
    run = Trainer.run

    def watched(trainer: Trainer) -> bool:
        trainers.append(trainer)
        return run(trainer)

    def held_out(*_: Any, **__: Any) -> dict[str, Any]:
        number = trainers[-1].progress.step // 2 - 1
        loss = found[min(number, len(found) - 1)]
        return {"masked_lm": loss, "masked_lm_accuracy": 0.5}

    monkeypatch.setattr(Trainer, "run", watched)
    monkeypatch.setattr(evaluate, "held_out", held_out)


# ------------------------------------------------------------------ early stopping, best weights


def test_patience_ends_a_run(
    recipe: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted(monkeypatch, 5.0, 4.0, 4.5, 4.0, 3.0)  # an equal loss is not a lower one
    made = recipe(evaluate={"every": 2, "patience": 2, "pseudo": 0})
    found = pretrain(made, tmp_path / "run", show="none")
    assert (found["finished"], found["steps"], found["ended_early"]) == (True, 8, True)
    assert len(losses(tmp_path / "run")) == 8
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == found
    assert pretrain(made, tmp_path / "run", resume=True, show="lines") == found
    assert "this run has ended at step 8" in capsys.readouterr().err
    patient = recipe(evaluate={"every": 2, "patience": 3, "pseudo": 0})
    found = pretrain(patient, tmp_path / "patient", show="none")
    assert found["steps"] == 12
    assert "ended_early" not in found


@pytest.mark.parametrize("more", [{}, {"ema": 0.5}])
def test_the_best_weights_are_stored(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    scripted(monkeypatch, 5.0, 3.0, 4.0, 3.5, 4.0)
    made = recipe(
        train={"steps": 10, **more},
        evaluate={"every": 2, "keep": "best", "pseudo": 0},
        checkpoint={"every": 2, "keep": 9},
    )
    found = pretrain(made, tmp_path / "run", show="none")
    assert (found["steps"], found["best_step"]) == (10, 4)
    best = stored(tmp_path / "run", 4, "average" if more else "model")
    assert equal(stored(tmp_path / "run", 10, "best"), best)
    # The model directory holds the same numbers under the names of its family.
    model = load_file(tmp_path / "run" / "model" / "model.safetensors")
    table = max(best, key=lambda name: best[name].numel())
    assert any(torch.equal(one, best[table]) for one in model.values())
    last = stored(tmp_path / "run", 10, "average" if more else "model")
    assert not any(torch.equal(one, last[table]) for one in model.values())

    step = Trainer._step

    def stopping(trainer: Trainer, *arguments: Any) -> Any:
        if trainer.progress.step == 6:  # after the best
            trainer.stopped.number = 15
        return step(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        assert not pretrain(made, tmp_path / "again", show="none")["finished"]
    again = pretrain(made, tmp_path / "again", resume=True, show="none")
    assert again["best_step"] == 4
    assert equal(load_file(tmp_path / "again" / "model" / "model.safetensors"), model)


@pytest.mark.slow
def test_best_weights_of_shards(recipe: Make, ranks: Runner, tmp_path: Path) -> None:
    made = recipe(
        model={"size": "bert-tiny", "settings": {**SMALL, **STILL}},
        train={"parallel": "fsdp", "steps": 6, "freeze": "embedding", "layer_decay": 0.5},
        evaluate={"every": 2, "keep": "best", "patience": 1},
    )
    assert_alike(ranks(made, tmp_path / "one", 1), ranks(made, tmp_path / "two", 2))


# ------------------------------------------------------------------ freezing, layer-wise rates


@pytest.fixture(scope="module")
def begun(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that a run may continue."""
    out = tmp_path_factory.mktemp("begun") / "run"
    made = {
        "model": {"size": "bert-tiny", "settings": SMALL},
        "data": {"corpus": str(prepared), "length": 32},
        "train": {"steps": 1, "batch_tokens": 256},
        "evaluate": {"tokens": 0, "pseudo": 0},
    }
    pretrain(checked(made, "test"), out, show="none")
    return out / "model"


@pytest.mark.parametrize(
    ("which", "frozen"),
    [
        ("embedding", [".embedding."]),
        ("1", [".embedding.", ".blocks.0."]),
        ("encoder", [".encoder."]),
    ],
)
def test_frozen_weights_stay(
    which: str, frozen: list[str], begun: Path, recipe: Make, tmp_path: Path
) -> None:
    made = recipe(
        model={"start": str(begun)},
        train={"steps": 3, "freeze": which, "weight_decay": 0.1, "ema": 0.5},
        evaluate={"tokens": 0, "pseudo": 0},
        checkpoint={"every": 3},
    )
    pretrain(made, tmp_path / "run", show="none")
    before, after = stored(tmp_path / "run", 0), stored(tmp_path / "run", 3)
    same = {name for name in before if torch.equal(before[name], after[name])}
    chosen = {name for name in before if any(part in name for part in frozen)}
    assert chosen
    assert chosen <= same
    # Key biases of attention have no gradient, but their tensor is that of queries and values, too.
    assert same - chosen == set()
    states = {name.rpartition(":")[0] for name in stored(tmp_path / "run", 3, "optimizer")}
    assert not states & chosen


def test_lower_layers_learn_at_lower_rates(recipe: Make) -> None:
    made = recipe(train={"layer_decay": 0.5, "learning_rate": 0.8})
    learner = built(made, open_corpus(made).tokenizer).learner
    names = {parameter: name for name, parameter in learner.named_parameters()}
    (one,) = optimizer_for(learner, made.train).optimizers
    rates = {names[p]: group["lr"] for group in one.param_groups for p in group["params"]}
    assert rates.keys() == set(names.values())
    for name, rate in rates.items():
        expected = 0.8
        for part, share in ((".embedding.", 0.125), (".blocks.0.", 0.25), (".blocks.1.", 0.5)):
            expected = 0.8 * share if f"encoder{part}" in name else expected
        assert rate == pytest.approx(expected), name
    assert len(set(rates.values())) == 4


# ------------------------------------------------------------------ recomputed activations


@pytest.fixture(scope="module")
def plain(prepared: Path) -> dict[str, Any]:
    """Without dropout, whose draws differ from rank to rank."""
    return {
        "model": {"size": "bert-tiny", "settings": {**SMALL, **STILL}},
        "data": {"corpus": str(prepared), "length": 32},
        "train": {"steps": 6, "batch_tokens": 512, "micro_tokens": 256, "learning_rate": 1e-3},
        "evaluate": {"tokens": 512, "pseudo": 0, "every": 3},
    }


def changed(plain: dict[str, Any], **train: Any) -> Recipe:
    return checked({**plain, "train": {**plain["train"], **train}}, "test")


def test_recomputed_activations_are_the_same(recipe: Make, tmp_path: Path) -> None:
    """Also with dropout: the same draws are made again."""
    for precision, exact in (("float32", 1e-6), ("bfloat16", 2e-2)):
        runs = [tmp_path / f"{precision} {flag}" for flag in (False, True)]
        for run, flag in zip(runs, (False, True), strict=True):
            train = {"steps": 6, "precision": precision, "checkpointing": flag}
            pretrain(recipe(train=train, evaluate={"every": 3, "pseudo": 0}), run, show="none")
        assert losses(runs[0]) == pytest.approx(losses(runs[1]), abs=exact)


@pytest.mark.parametrize("parallel", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp"])
def test_ranks_recompute_the_same(
    parallel: str, plain: dict[str, Any], ranks: Runner, tmp_path: Path
) -> None:
    pretrain(changed(plain), tmp_path / "one", show="none")
    made = changed(plain, parallel=parallel, checkpointing=True)
    assert_alike(tmp_path / "one", ranks(made, tmp_path / "two", 2))


# ------------------------------------------------------------------ mistakes, older runs


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"train": {"checkpointing": True, "compile": True}}, "needs train.compile = false"),
        ({"evaluate": {"patience": 1, "every": 0}}, "evaluate.patience needs evaluate.every and"),
        ({"evaluate": {"keep": "best", "every": 0}}, "evaluate.keep needs evaluate.every and"),
        ({"evaluate": {"keep": "best", "tokens": 0}}, "evaluate.keep needs evaluate.every and"),
        ({"train": {"freeze": "x"}}, "train.freeze: "),
        ({"train": {"freeze": "9"}}, "9 layers cannot be frozen: the model has 2"),
        ({"train": {"freeze": "encoder", "layer_decay": 0.0}}, "train.layer_decay: "),
    ],
)
def test_mistakes_are_one_line(
    tables: dict[str, Any], message: str, recipe: Make, tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError) as error:
        pretrain(recipe(**tables), tmp_path / "run", show="none")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()  # nothing is left behind


def test_best_weights_need_held_out_text(
    recipe: Make, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = evaluate.Manifest.read(prepared)
    manifest.splits["held_out"] = replace(manifest.splits["held_out"], documents=0)
    monkeypatch.setattr(evaluate.Manifest, "read", lambda path: manifest)
    for key, value in (("patience", 1), ("keep", "best")):
        with pytest.raises(BertsmithError, match=f"no held-out text, which evaluate.{key} needs"):
            pretrain(recipe(evaluate={key: value}), tmp_path / "run", show="none")
    assert not (tmp_path / "run").exists()


def older(made: Recipe) -> Iterator[tuple[str, Any]]:
    """The tables of a recipe without the keys that came later."""
    for name, table in made.model_dump().items():
        new = NEW.get(name, ())
        yield name, table if not new else {k: v for k, v in table.items() if k not in new}


def test_an_older_run_is_resumed(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, run, step = recipe(train={"steps": 6}), tmp_path / "run", Trainer._step
    pretrain(made, tmp_path / "whole", show="none")

    def stopping(trainer: Trainer, *arguments: Any) -> Any:
        trainer.stopped.number = 15 if trainer.progress.step == 4 else 0
        return step(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        assert not pretrain(made, run, show="none")["finished"]
    (run / "recipe.toml").write_text(tomli_w.dumps(dict(older(made))))
    assert pretrain(made, run, resume=True, show="none")["finished"]
    assert (run / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


def test_an_adapter_is_stored_instead(recipe: Make, tmp_path: Path) -> None:
    """It opens as the merged model: the same weights, the same guesses for masks."""
    pretrain(recipe(), tmp_path / "first", show="none")
    start = {"start": str(tmp_path / "first" / "model")}
    for name, more in (("run", {}), ("adapter", {"adapter": True})):
        train = {"trained": "lora", "steps": 3, "learning_rate": 1e-2, **more}
        one = recipe(model=start, train=train, lora={"rank": 2})
        pretrain(one, tmp_path / name, show="none")
    stored = tmp_path / "adapter" / "model"
    assert not (stored / "model.safetensors").exists()
    assert json.loads((stored / "adapter_config.json").read_text())["r"] == 2
    card = (stored / "README.md").read_text()
    assert "This is an adapter (LoRA) of `model`" in card
    assert "## Training" in card
    bert, merged = (load(tmp_path / name / "model", device="cpu") for name in ("adapter", "run"))
    for name, weights in merged.model.named_parameters():
        torch.testing.assert_close(dict(bert.model.named_parameters())[name], weights)
    text = f"the {bert.tokenizer.mask_token} of it"
    filled, expected = (
        [(one.token, one.score) for one in model.fill_mask(text)] for model in (bert, merged)
    )
    assert [token for token, _ in filled] == [token for token, _ in expected]
    assert [s for _, s in filled] == pytest.approx([s for _, s in expected], rel=1e-4)
    with pytest.raises(BertsmithError, match=r'train.adapter needs train.trained = "lora"'):
        recipe(model=start, train={"adapter": True})


def test_lora_is_merged_and_resumed(recipe: Make, tmp_path: Path) -> None:
    """Continued pre-training of low-rank updates: the stored model is a plain one."""
    pretrain(recipe(), tmp_path / "first", show="none")
    start = {"start": str(tmp_path / "first" / "model")}
    one = recipe(model=start, train={"trained": "lora"}, lora={"rank": 2})
    pretrain(one, tmp_path / "run", show="none")
    before, after = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("first", "run")
    )
    assert before.keys() == after.keys()
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(before[name], after[name])
    name = "bert.encoder.layer.1.attention.self.value.weight"
    assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-6) == 2
    for train, match in (
        ({"trained": "lora"}, "continues a model: name it with model.start"),
        ({"trained": "lora", "freeze": "1"}, "continues a model"),
    ):
        with pytest.raises(BertsmithError, match=match):
            recipe(train=train)
    with pytest.raises(BertsmithError, match=r"train.freeze needs train.trained"):
        recipe(model=start, train={"trained": "biases", "freeze": "1"})
