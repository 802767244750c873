"""Distillation in pre-training: the objectives, recipes, and that nothing is lost in a resume."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.batch import Layout
from bertsmith.checkpoint import Sentence, create, read, save
from bertsmith.corpus import Corpus
from bertsmith.distilling.pretraining import taught_recipe
from bertsmith.objectives.distilled import relations
from bertsmith.train.building import built, examples_of, open_corpus
from train.conftest import prepared

__all__ = ["prepared"]
SHAPE = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
QUICK = ["data.length=32", "train.steps=4", "train.batch_tokens=256", "train.micro_tokens=128"]
QUICK += ["evaluate.tokens=256", "evaluate.pseudo=0", "evaluate.every=2", "checkpoint.every=2"]
QUICK += ["train.precision=float32", "train.device=cpu"]
SMALL = "model.settings={hidden_size=16, num_hidden_layers=1, num_attention_heads=4, "
SMALL += "intermediate_size=16, max_position_embeddings=64}"


def stored(folder: Path, prepared: Path, family: str = "bert", **changes: Any) -> Path:
    """A tiny teacher with the corpus's vocabulary."""
    words = Corpus.open(prepared).tokenizer
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = {"model_type": family, "vocab_size": words.size, **SHAPE, "num_hidden_layers": 4}
    settings |= {"initializer_range": 0.3, **({} if family == "modernbert" else off)}
    special = {f"{role}_token_id": words.pad_id for role in ("pad", "bos", "eos", "cls", "sep")}
    save(folder, create({**settings, **special, **changes}, seed=3), words, Sentence())
    return folder


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2", "albert", "electra"])
def test_a_teacher_is_its_own_best_student(family: str, prepared: Path, tmp_path: Path) -> None:
    """All losses of a student that has all layers are 0, in every family; others learn."""
    teacher = stored(tmp_path / "teacher", prepared, family)
    objectives = "objectives={soft_targets=5.0, cosine=1.0, relations=1.0}"
    own = taught_recipe(teacher, prepared, None, [*QUICK, objectives], layers=4)
    half = taught_recipe(teacher, prepared, None, [*QUICK, objectives])
    assert half.model.keep == (0, 3)
    losses = []
    for recipe in (own, half):
        corpus = open_corpus(recipe)
        made = built(recipe, corpus.tokenizer)
        examples = examples_of(recipe, corpus, 32, made.checkpoint.config.segments)
        (parts,) = examples.plan(0, tokens=256, micro_tokens=256).micro_batches
        example = examples.make(parts[0])
        learner = made.learner.eval()
        counts = learner.counts(example)
        loss, sums = learner(example, counts)
        losses.append(float(loss.detach()))
        assert sums.keys() == {"soft_targets", "cosine", "relations"}
        if recipe is own:
            for name, (_, correct) in sums.items():
                assert float(correct) == pytest.approx(counts[name], rel=0.01), name
        else:
            loss.backward()
            grads = [p.grad for p in made.checkpoint.model.encoder.parameters()]
            assert sum(one is not None and bool(one.abs().sum()) for one in grads) > 5
        assert len(dict(made.learner.named_parameters())) == len(
            dict(made.learner.model.named_parameters())
        )
    assert losses[0] == pytest.approx(0, abs=1e-2)
    assert losses[1] > 0.1


@pytest.mark.parametrize("more", [5, 64, 300])
def test_padding_is_not_learned(more: int, prepared: Path, tmp_path: Path) -> None:
    """Sums and counts of every objective are those of the same samples without padding."""
    teacher = stored(tmp_path / "teacher", prepared)
    objectives = "objectives={soft_targets=5.0, cosine=1.0, relations=1.0}"
    recipe = taught_recipe(teacher, prepared, None, [*QUICK, objectives])
    corpus = open_corpus(recipe)
    made = built(recipe, corpus.tokenizer)
    examples = examples_of(recipe, corpus, 32, made.checkpoint.config.segments)
    samples = examples.plan(0, tokens=256, micro_tokens=256).samples
    plain = examples.make(samples)
    padded = examples.make(samples, fill=plain.tokens + more)
    assert padded.batch.layout.total == plain.tokens + more
    learner = made.learner.eval()
    counts = learner.counts(plain)
    assert learner.counts(padded) == counts
    assert counts["cosine"] == counts["relations"] == plain.tokens
    expected, sums = learner(plain, counts)[1], learner(padded, counts)[1]
    for name in ("soft_targets", "cosine", "relations"):
        torch.testing.assert_close(sums[name], expected[name], rtol=1e-4, atol=1e-4)


def test_relations_are_minilms() -> None:
    vectors = torch.randn(7, 2, 4)
    parts = [*relations(vectors, Layout.of([3, 4]))]
    second = vectors[3:, 1]
    expected = F.log_softmax(second @ second.T / 2, -1)
    assert torch.allclose(parts[1][0, 1], expected, atol=1e-6)


def test_a_run_and_its_resume(prepared: Path, tmp_path: Path) -> None:
    """DistilBERT's recipe: stopped after a checkpoint and resumed, the weights are the same."""
    teacher = stored(tmp_path / "teacher", prepared)
    whole = bs.distill(teacher, prepared, tmp_path / "whole", changes=QUICK, show="none")
    content = json.loads((tmp_path / "whole" / "distill.json").read_text())
    assert content["student"]["layers_kept"] == [0, 3]
    assert set(content["scores"]["held_out"]) == {"teacher", "student"}
    assert content["summary"]["finished"]
    recipe = tomllib.loads((tmp_path / "whole" / "recipe.toml").read_text())
    assert recipe["objectives"] == {"soft_targets": 5.0, "masked_lm": 2.0, "cosine": 1.0}
    assert recipe["teacher"]["model"] == str(teacher)
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "whole", again)
    newest = max(path.name for path in (again / "checkpoints").iterdir())
    for name in ("model", "summary.json", "report.html", "distill.json", f"checkpoints/{newest}"):
        path = again / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    resumed = bs.distill(teacher, prepared, again, changes=QUICK, resume=True, show="none")
    for one, other in zip(
        whole.student.model.parameters(), resumed.student.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    assert (again / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


def test_a_new_student_of_another_width(prepared: Path, tmp_path: Path) -> None:
    """MiniLM's recipe: other widths and heads, a chosen layer of the teacher."""
    teacher = stored(tmp_path / "teacher", prepared)
    changes = [*QUICK, SMALL, "teacher.relation_heads=8", "teacher.layer=3", "train.steps=6"]
    result = bs.distill(
        teacher, prepared, tmp_path / "run", recipe="minilm", changes=changes, show="none"
    )
    assert (result.student.checkpoint.config.width, result.content["student"]["layers"]) == (16, 1)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").open()]
    losses = [row["relations"] for row in rows if "relations" in row]
    assert losses[-1] < losses[0]


def test_what_cannot_be(prepared: Path, tmp_path: Path) -> None:
    teacher = stored(tmp_path / "teacher", prepared)
    out = tmp_path / "out"

    def refused(message: str, teacher: Path | str = teacher, **options: Any) -> None:
        with pytest.raises(BertsmithError, match=message):
            bs.distill(teacher, prepared, out, show="none", **options)
        assert not out.exists()

    refused("vocabulary is not the one", "bertsmith-small", changes=QUICK)
    refused("models of one width", recipe="minilm", changes=[*QUICK, SMALL, "objectives.cosine=1"])
    heads = "relation heads do not divide"
    refused(heads, recipe="minilm", changes=[*QUICK, SMALL, "teacher.relation_heads=5"])
    refused("it has 4 layers", changes=[*QUICK, "teacher.layer=9"])
    refused("train.compile", changes=[*QUICK, "train.compile=true", "objectives.relations=1"])
    refused("change its keys with changes=", epochs=3)
    refused("unknown key", changes=["teacher.modle=a"])
    refused("lower data.length", changes=["data.length=500"])
    refused("increasing numbers", layers=[9])
    headless = read(teacher)
    bare = create(headless.settings, heads=[])
    save(tmp_path / "bare", bare, Corpus.open(prepared).tokenizer, Sentence())
    refused("no masked-LM head", tmp_path / "bare", changes=QUICK)
    with pytest.raises(BertsmithError, match="needs a teacher"):
        bs.pretrain("minilm", prepared, out, changes={"train.steps": 1})
    with pytest.raises(BertsmithError, match="needs a prepared corpus"):
        bs.distill(teacher, ["a text"], changes=["train.steps=3"])


def test_the_recipe_of_distilbert_masks_rare_tokens_more_often(
    prepared: Path, tmp_path: Path
) -> None:
    teacher = stored(tmp_path / "teacher", prepared)
    recipe = taught_recipe(teacher, prepared, None, QUICK)
    corpus = open_corpus(recipe)
    ids = corpus.gather(np.array([0]), np.array([corpus.tokens]))
    counts = np.bincount(ids, minlength=corpus.tokenizer.size)
    masking = examples_of(recipe, corpus, 32, 2).masking
    assert masking is not None
    assert np.allclose(masking.weights, np.maximum(counts, 1.0) ** -0.7)
    evenly = examples_of(recipe, open_corpus(recipe, "held_out"), 32, 2).masking
    assert evenly is not None
    assert evenly.weights is None
