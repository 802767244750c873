"""What config.json means where it is silent, and where it speaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import transformers

from bertsmith.errors import BertsmithError
from bertsmith.families import FAMILIES, family_of
from bertsmith.model import Config, Disentangled, DistanceBias, Rotary

# transformers does not know the family "static".
KINDS = [kind for f in FAMILIES.values() for kind in f.stems if kind != "static"]


def config(kind: str, **settings: Any) -> Config:
    given = {"model_type": kind, **settings}
    return family_of(given).config(given)


@pytest.mark.parametrize("kind", KINDS)
def test_silence_means_the_defaults_of_transformers(kind: str) -> None:
    family = FAMILIES.get(kind) or family_of({"model_type": kind})
    # Kin of a family may differ in the vocabulary, which every checkpoint states.
    silent = {"model_type": kind} | ({} if kind == family.name else {"vocab_size": 99})
    spoken = transformers.AutoConfig.for_model(**silent).to_dict()
    assert family.config(silent) == family.config(spoken)
    for entry in family.heads:
        quiet = entry.config(family.config(silent), silent)
        assert quiet == entry.config(family.config(spoken), spoken), entry.kind


@pytest.mark.parametrize("kind", KINDS)
def test_null_means_silence(kind: str) -> None:
    """A key that is null is a key that is not there."""
    family = family_of({"model_type": kind})
    nulls = dict.fromkeys(family.keys)
    assert config(kind, **nulls) == config(kind)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_key_is_read(kind: str) -> None:
    """Each key of config.json that a family names changes each field it names."""
    for key, fields in FAMILIES[kind].keys.items():
        for field in fields.split():
            value = other(getattr(FAMILIES[kind].base, field))
            found = getattr(config(kind, **{key: value}), field)
            offset = field == "max_length" and kind in ("roberta", "mpnet")
            places = 2 if offset else 0  # before the first
            assert found == (value - places if places else value), (key, field)


def other(value: Any) -> Any:
    """A good value that is not this one."""
    match value:
        case bool():
            return not value
        case float():
            return 0.25
        case str():
            return "relu"
    return 2 * value or 1


def test_roberta_counts_from_the_row_after_the_padding() -> None:
    made = config("roberta", max_position_embeddings=514)
    assert (made.position_offset, made.max_length, made.positions) == (2, 512, 514)
    assert config("roberta", pad_token_id=5).position_offset == 6


def test_mpnet_counts_from_the_third_row_and_has_32_buckets() -> None:
    made = config("mpnet", max_position_embeddings=514, pad_token_id=5)
    assert (made.position_offset, made.max_length, made.positions) == (2, 512, 514)
    assert made.signal == DistanceBias(32, 128)
    with pytest.raises(BertsmithError, match="relative_attention_num_buckets = 64"):
        config("mpnet", relative_attention_num_buckets=64)
    with pytest.raises(BertsmithError, match="cannot be pruned"):
        replace(made, kept=(11,) * 12)


def test_nomic_bert_reads_its_authors_settings() -> None:
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 64, "layer_norm_epsilon": 1e-7}
    more = {"n_positions": 8192, "max_trained_positions": 2048, "rotary_emb_base": 500}
    more |= {"activation_function": "swiglu", "prenorm": False, "rotary_emb_fraction": 1.0}
    made = config("nomic_bert", **sizes, **more)
    assert (made.width, made.layers, made.attention_heads, made.feedforward) == (32, 3, 4, 64)
    assert (made.max_length, made.norm_epsilon) == (2048, 1e-7)
    assert made.signal == Rotary((500.0,) * 3)
    for change in ({"prenorm": True}, {"rotary_emb_fraction": 0.5}, {"rope_scaling": {"a": 1}}):
        with pytest.raises(BertsmithError, match="not supported"):
            config("nomic_bert", **sizes, **change)


@pytest.mark.parametrize(
    ("layers", "groups", "inner", "order"),
    [
        (4, 1, 1, (0, 0, 0, 0)),
        (4, 2, 1, (0, 0, 1, 1)),
        (3, 3, 1, (0, 1, 2)),
        (5, 2, 1, (0, 0, 0, 1, 1)),
        (2, 1, 2, (0, 1, 0, 1)),
        (4, 2, 2, (0, 1, 0, 1, 2, 3, 2, 3)),
    ],
)
def test_albert_shares(layers: int, groups: int, inner: int, order: tuple[int, ...]) -> None:
    settings = {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    assert config("albert", **settings).plan == order


def test_modernbert_alternates() -> None:
    made = config("modernbert", num_hidden_layers=7, local_attention=10)
    assert made.windows == (None, 5, 5, None, 5, 5, None)
    wide, near = 160_000.0, 10_000.0
    assert made.signal == Rotary((wide, near, near, wide, near, near, wide))
    older = {"global_rope_theta": 7.0, "local_rope_theta": 3.0, "global_attn_every_n_layers": 2}
    made = config("modernbert", num_hidden_layers=3, **older)
    assert made.signal == Rotary((7.0, 3.0, 7.0))
    newer = {"full_attention": {"rope_theta": 5.0}, "sliding_attention": {"rope_theta": 2.0}}
    kinds = ["sliding_attention", "full_attention"]
    made = config("modernbert", num_hidden_layers=2, rope_parameters=newer, layer_types=kinds)
    assert made.signal == Rotary((2.0, 5.0))
    assert made.windows == (64, None)


@pytest.mark.parametrize(
    ("terms", "keys", "queries", "scale"),
    [
        ("c2p|p2c", True, True, 3),
        (" P2C | C2P ", True, True, 3),
        (["c2p"], True, False, 2),
        (["p2c"], False, True, 2),
        (None, False, False, 1),
        ("", False, False, 1),
    ],
)
@pytest.mark.parametrize("kind", ["deberta", "deberta-v2"])
def test_deberta_terms(kind: str, terms: Any, keys: bool, queries: bool, scale: int) -> None:
    made = config(kind, relative_attention=True, pos_att_type=terms)
    assert isinstance(made.signal, Disentangled)
    assert (made.signal.keys, made.signal.queries, made.scale_terms) == (keys, queries, scale)
    assert config(kind, pos_att_type=terms).signal is None


def test_deberta_spans() -> None:
    def signal(**settings: Any) -> Disentangled:
        made = config("deberta-v2", relative_attention=True, **settings).signal
        assert isinstance(made, Disentangled)
        return made

    assert (signal().span, signal().buckets) == (512, 0)
    assert (signal(position_buckets=256).span, signal(position_buckets=256).furthest) == (256, 512)
    assert signal(max_relative_positions=100).span == 100
    far = signal(max_relative_positions=100, position_buckets=32)
    assert (far.span, far.buckets, far.furthest) == (32, 32, 100)


@pytest.mark.parametrize("inner", [16, 32])
@pytest.mark.parametrize("kind", ["electra", "deberta", "deberta-v2"])
def test_embeddings_are_projected_where_widths_differ(kind: str, inner: int) -> None:
    made = config(kind, hidden_size=32, num_attention_heads=4, embedding_size=inner)
    assert made.project_embedding == (inner != 32)
    assert made.token_width == inner
