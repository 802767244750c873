"""A bad model setting is one line that says which, without a long wait."""

import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.checkpoint import create
from bertsmith.errors import BertsmithError
from bertsmith.model import Config, Convolution, Disentangled, HeadConfig, Rotary, build
from model.tiny import TINY

SIZES = ["vocabulary", "width", "attention_heads", "feedforward", "max_length"]
COUNTS = ["head_width", "embedding_width", "segments", "positions", "position_offset", "pad_id"]
COUNTS += ["layers"]  # static vectors are a model without layers
RATES = [name for name in Config.__dataclass_fields__ if name.endswith("dropout")]
NOT_NUMBERS: list[Any] = [True, False, "12", None, [3], {}, 1j]


def refused(names: str, make: Any) -> str:
    """Check that making this fails, and soon, with one line that says where; return the line."""
    started = time.monotonic()
    with pytest.raises(BertsmithError) as caught:
        make()
    assert time.monotonic() - started < 30
    line = str(caught.value)
    assert line
    assert "\n" not in line
    assert names in line
    return line


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 2.0, float("nan"), 0, -1, -(10**9), 10**9, 10**30])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str, value: Any) -> None:
    line = refused(name, lambda: Config(**{name: value}))
    assert repr(value) in line


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 2.5, -1, 10**9])
@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, value: Any) -> None:
    refused(name, lambda: Config(**{name: value}))


@pytest.mark.parametrize("name", COUNTS)
def test_counts_may_be_zero(name: str) -> None:
    assert getattr(Config(**{name: 0}), name) == 0


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -0.1, 1.1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", RATES)
def test_dropout(name: str, value: Any) -> None:
    refused(name, lambda: Config(**{name: value}))


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1e-9, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["norm_epsilon", "initial_deviation"])
def test_other_numbers(name: str, value: Any) -> None:
    refused(name, lambda: Config(**{name: value}))


@pytest.mark.parametrize("name", ["gated", "pre_norm", "attention_bias", "norm_bias"])
@pytest.mark.parametrize("value", [0, 1, "yes", None, []])
def test_choices(name: str, value: Any) -> None:
    refused(name, lambda: Config(**{name: value}))


@given(st.sampled_from([*SIZES, *COUNTS]), st.text() | st.integers(max_value=-1) | st.floats())
def test_nothing_else_passes(name: str, value: Any) -> None:
    refused(name, lambda: Config(**{name: value}))


def test_width_is_a_multiple_of_heads() -> None:
    line = refused("width 770", lambda: Config(width=770))
    assert "12 attention heads" in line
    assert Config(width=770, head_width=64).per_head == 64


@pytest.mark.parametrize("part", [Config, HeadConfig])
def test_unknown_activation(part: type) -> None:
    with torch.device("meta"):
        if part is Config:
            line = refused("'gelo'", lambda: build(Config(activation="gelo")))
        else:
            head = HeadConfig(2, dense=768, activation="gelo")
            line = refused("'gelo'", lambda: build(Config(layers=1, heads={"tag": head})))
    assert "gelu_new" in line  # what is known


def test_unknown_pooling() -> None:
    config = Config(layers=1, heads={"tag": HeadConfig(2, pool="last")})
    with torch.device("meta"):
        line = refused("'last'", lambda: build(config))
    assert "first, mean" in line


@pytest.mark.parametrize(
    ("names", "make"),
    [
        ("outputs", lambda: HeadConfig(-1)),
        ("outputs", lambda: HeadConfig(True)),
        ("outputs", lambda: HeadConfig(10**12)),
        ("dropout", lambda: HeadConfig(2, dropout=1.5)),
        ("tied", lambda: HeadConfig(2, tied="no")),  # type: ignore[arg-type]
        ("activation", lambda: HeadConfig(2, activation=["gelu"])),  # type: ignore[arg-type]
        ("span", lambda: Disentangled(0)),
        ("span", lambda: Disentangled(10**12)),
        ("buckets", lambda: Disentangled(8, buckets=-1)),
        ("bucket", lambda: Disentangled(8, buckets=1)),
        ("size", lambda: Convolution(4)),
        ("size", lambda: Convolution(0)),
        ("groups", lambda: Convolution(3, groups=0)),
        ("groups=5", lambda: Config(convolution=Convolution(3, groups=5))),
        ("bases", lambda: Rotary((10_000.0, 0.0))),
        ("bases", lambda: Rotary((float("nan"),))),
        ("odd", lambda: Config(width=36, signal=Rotary((10_000.0,) * 12))),
    ],
)
def test_parts(names: str, make: Any) -> None:
    refused(names, make)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("bert", {"num_hidden_layers": 10**9}, "layers"),
    ("bert", {"num_hidden_layers": True}, "layers"),
    ("bert", {"hidden_size": "32"}, "width"),
    ("bert", {"hidden_dropout_prob": 7}, "dropout"),
    ("bert", {"hidden_act": "gelo"}, "gelo"),
    ("bert", {"hidden_act": ["gelu"]}, "activation"),
    ("bert", {"num_labels": -3}, "outputs"),
    ("bert", {"num_labels": "x"}, "config.json"),
    ("bert", {"id2label": 7}, "config.json"),
    ("bert", {"classifier_dropout": "a"}, "dropout"),
    ("bert", {"tie_word_embeddings": "no"}, "tied"),
    ("bert", {"model_type": ["bert"]}, "model_type"),
    ("bert", {"model_type": None}, "model_type"),
    ("bert", {"model_type": "gpt2"}, "gpt2"),
    ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
    ("bert", {"add_cross_attention": True}, "add_cross_attention"),
    ("roberta", {"max_position_embeddings": 1}, "max_length"),
    ("albert", {"num_hidden_groups": 4}, "4 groups"),
    ("albert", {"num_hidden_groups": 0}, "0 groups"),
    ("albert", {"num_hidden_groups": "2"}, "config.json"),
    ("albert", {"inner_group_num": 0}, "groups of 0"),
    ("albert", {"inner_group_num": 10**9}, "groups of 1000000000"),
    ("deberta", {"pos_att_type": 5}, "config.json"),
    ("deberta", {"max_relative_positions": 10**9}, "span"),
    ("deberta-v2, own projections", {"position_buckets": "8"}, "config.json"),
    ("deberta-v2, own projections", {"position_buckets": 1}, "bucket"),
    ("deberta-v2, own projections", {"norm_rel_ebd": 5}, "config.json"),
    ("deberta-v3, shared, convolved", {"conv_kernel_size": 4}, "even"),
    ("deberta-v3, shared, convolved", {"conv_groups": 5}, "groups=5"),
    ("deberta-v3, shared, convolved", {"conv_act": "gelo"}, "gelo"),
    ("modernbert", {"local_attention": -2}, "local_attention"),
    ("modernbert", {"local_attention": "6"}, "config.json"),
    ("modernbert", {"global_rope_theta": 0}, "bases"),
    ("modernbert", {"global_attn_every_n_layers": 0}, "config.json"),
    ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
    ("modernbert", {"layer_types": ["round"] * 4}, "layer_types"),
    ("modernbert", {"layer_types": 7}, "config.json"),
    ("modernbert", {"rope_scaling": {"factor": 2}}, "scaling"),
    ("modernbert", {"rope_parameters": [1]}, "config.json"),
    ("modernbert", {"classifier_pooling": "max"}, "max"),
    ("modernbert", {"hidden_size": 36}, "odd"),
]


@pytest.mark.parametrize(("name", "change", "says"), BAD)
def test_config_files(name: str, change: dict[str, Any], says: str) -> None:
    refused(says, lambda: create({**TINY[name], **change}, heads=["masked_lm", "classify"]))


def test_a_head_the_family_has_not() -> None:
    line = refused("distilbert", lambda: create(TINY["distilbert"], heads=["next_sentence"]))
    assert "masked_lm, classify" in line
