"""Layers of a teacher as a student's first weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from numpy.testing import assert_allclose

import bertsmith as bs
from bertsmith import BertsmithError, create
from bertsmith.batch import Batch
from bertsmith.checkpoint import keep_layers, read, spread_layers
from bertsmith.infer.loaded import LoadedModel
from tasks.models import STEMS, Maker, tokenizer

FAMILIES = ["bert", "roberta", "albert", "deberta", "deberta-v2", "modernbert"]


def test_they_are_spread_from_the_first_to_the_last() -> None:
    assert spread_layers(12, 6) == (0, 2, 4, 7, 9, 11)  # DistilBERT's
    assert spread_layers(6, 6) == tuple(range(6))
    assert spread_layers(9, 1) == (0,)
    for depth in range(1, 14):
        for count in range(1, depth + 1):
            layers = spread_layers(depth, count)
            assert len({*layers}) == count
            assert list(layers) == sorted(layers)
            assert layers[-1] < depth
    with pytest.raises(BertsmithError, match="cannot keep 3"):
        spread_layers(2, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_keeps_some(family: str, made: Maker, tmp_path: Path) -> None:
    """The stored student computes what the teacher computes without the other layers."""
    deep = {"num_hidden_layers": 4, "conv_kernel_size": 3} if "v2" in family else {}
    teacher = read(made(family, "Model", **{"num_hidden_layers": 4, **deep}).folder)
    student = keep_layers(teacher, (0, 2))
    words = tokenizer(family)
    LoadedModel(student, words).save(tmp_path / "student")
    again = bs.load(tmp_path / "student")
    whole = LoadedModel(teacher, words)
    for depth in (1, 3):  # layers that the student does not have
        whole.model.encoder.skipped[depth] = torch.zeros(teacher.config.width)
    text = "The river Vltava flows through Prague; " * 4
    assert_allclose(again.embed([text]), bs.Bert.of(whole).embed([text]), atol=1e-5)
    theirs = getattr(transformers, f"{STEMS[family]}Model").from_pretrained(tmp_path / "student")
    encoded = words.encode(text)
    inputs = {"input_ids": torch.tensor([encoded.ids])}
    with torch.no_grad():
        states = theirs.eval()(**inputs).last_hidden_state[0]
    assert_allclose(again.states(text, special=True).vectors, states, atol=1e-4)


def test_rotary_positions_without_windows_stay() -> None:
    settings = {"model_type": "nomic_bert", "vocab_size": 60, "hidden_size": 16}
    settings |= {"num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 4}
    student = keep_layers(create(settings, heads=()), (0, 3))
    assert (student.config.layers, student.config.windows) == (2, ())
    assert "layer_types" not in student.settings


def test_windows_follow_their_layers() -> None:
    settings = {"model_type": "modernbert", "vocab_size": 60, "hidden_size": 16}
    settings |= {"num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 6}
    teacher = create(settings, heads=["masked_lm"], pad_token_id=0)
    student = keep_layers(teacher, (0, 2, 3, 5))
    assert student.settings["layer_types"] == [
        *("full_attention", "sliding_attention", "full_attention", "sliding_attention")
    ]
    for name in ("windows", "signal"):
        assert getattr(student.config, name) is not None
    assert student.config.windows == tuple(teacher.config.windows[n] for n in (0, 2, 3, 5))
    assert "layer_types" not in keep_layers(teacher, (0, 1, 2)).settings


def test_pruned_heads_move_with_their_layers(made: Maker) -> None:
    teacher = read(made("bert", "Model").folder)
    teacher = create({**teacher.settings, "num_hidden_layers": 3, "pruned_heads": {"2": [1]}})
    student = keep_layers(teacher, (0, 2))
    assert student.settings["pruned_heads"] == {"1": [1]}
    assert student.config.kept == (4, 3)


def test_repeated_layers_change_nothing_at_first() -> None:
    settings = {"model_type": "modernbert", "vocab_size": 60, "hidden_size": 16, "mlp_bias": True}
    settings |= {"num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 4}
    model = create(settings, heads=["masked_lm"], pad_token_id=0)
    deeper = keep_layers(model, (0, 1, 1, 2, 3, 3, 3), repeats=True)
    assert deeper.settings["num_hidden_layers"] == 7
    batch = Batch.of([[1, 5, 9, 2], [7, 8]])
    with torch.no_grad():
        one, other = (each.model.eval()(batch, "masked_lm") for each in (model, deeper))
    assert_allclose(other, one, atol=1e-6)
    copied = deeper.model.encoder.blocks[2]
    assert torch.equal(
        copied.attention.qkv.weight, model.model.encoder.blocks[1].attention.qkv.weight
    )
    with pytest.raises(BertsmithError, match="layer 0 cannot be repeated"):
        keep_layers(model, (0, 0, 1), repeats=True)
    with pytest.raises(BertsmithError, match="increasing numbers"):
        keep_layers(model, (0, 1, 1))
    post_norm = create({"model_type": "bert", "vocab_size": 60, "num_hidden_layers": 2})
    with pytest.raises(BertsmithError, match="normalise before each layer"):
        keep_layers(post_norm, (0, 1, 1), repeats=True)


def test_what_cannot_be(made: Maker) -> None:
    teacher = read(made("bert", "Model").folder)
    for layers in ((), (1, 0), (0, 0), (0, 2), (-1, 0)):
        with pytest.raises(BertsmithError, match="increasing numbers from 0 to 1"):
            keep_layers(teacher, layers)
    with pytest.raises(BertsmithError, match="layer 0"):
        keep_layers(read(made("modernbert", "Model").folder), (1, 2))
    grouped = create(
        {**read(made("albert", "Model").folder).settings, "num_hidden_groups": 2}, heads=[]
    )
    with pytest.raises(BertsmithError, match="share weights in groups"):
        keep_layers(grouped, (0,))
