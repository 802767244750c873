"""A config.json that is damaged or means no model: one line each, soon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batch import Batch
from bertsmith.checkpoint import create, read, write
from bertsmith.errors import BertsmithError
from bertsmith.families import FAMILIES
from checkpoint.folders import TINY, copy, outcome, refused, settings
from sampled import sampled

NAN = float("nan")
INFINITE = float("inf")
ANY = ["x", "", None, True, -1, 0, 2, 10**7, 10**18, 1.5, NAN, INFINITE, [], [1], {"a": 1}]
BATCH = Batch.of([[3, 4, 5, 6], [7], [8, 9, 10, 11, 12, 13, 14, 15, 16]])
# What a family's settings say beside the sizes, and values that are bad for just that key.
HEADS: dict[str, list[Any]] = {
    "num_labels": [10**400, "a\nb"],
    "id2label": [{"a": "b", "c": "d"}, ["x", "y", "z"]],
    "architectures": ["BertModel", [None], [5], {"0": "x"}, ["../../x"]],
    "tie_word_embeddings": ["no"],
}
RELATIVE_KEYS: dict[str, list[Any]] = {
    "pos_att_type": ["c2p|", [None], [["c2p"]], "q2q"],
    "relative_attention": [False],
    "position_biased_input": [],
    "max_relative_positions": [1, 2, 10**7],
    "pooler_hidden_act": ["new\nline"],
    "cls_dropout": [2],
    "legacy": [],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "bert": {"classifier_dropout": [2], "is_decoder": [], "position_embedding_type": ["relative"]},
    "roberta": {"pad_token_id": [23, 24, 10**6]},
    "albert": {
        "num_hidden_groups": [3, 1000],
        "inner_group_num": [2, 3, 100],
        "num_hidden_layers": [1000],
        "classifier_dropout_prob": [],
    },
    "distilbert": {"seq_classif_dropout": [], "qa_dropout": [], "sinusoidal_pos_embds": []},
    "electra": {"summary_activation": [], "summary_type": [], "summary_last_dropout": []},
    "deberta": RELATIVE_KEYS,
    "deberta-v2": {
        **RELATIVE_KEYS,
        "position_buckets": [1, 2, 7, 9],
        "norm_rel_ebd": [],
        "share_att_key": [],
        "conv_kernel_size": [1, 2, 4, 10**6],
        "conv_groups": [3, 8],
        "conv_act": ["new\nline"],
        "attention_head_size": [3],
    },
    "modernbert": {
        "local_attention": [-8, 1],
        "global_attn_every_n_layers": [1, 10**9],
        "global_rope_theta": [],
        "local_rope_theta": [-1e308],
        "layer_types": [["full_attention"], ["x", "y"], [None, None], [["full_attention"]] * 2],
        "rope_parameters": [
            {"full_attention": {"rope_theta": 0}},
            {"full_attention": {"rope_theta": "x"}},
            {"full_attention": {"rope_type": "yarn"}},
            {"sliding_attention": [1]},
        ],
        "rope_scaling": [],
        "classifier_pooling": ["max"],
        "classifier_bias": [],
        "classifier_activation": ["new\nline"],
        "decoder_bias": [],
    },
}


def cases(kind: str) -> Iterator[tuple[str, Any]]:
    """Every key that the family reads, with every value that may be bad for it."""
    keys = {**dict.fromkeys(FAMILIES[kind].keys, ()), **HEADS, **OWN[kind]}
    for key, special in keys.items():
        yield from ((key, value) for value in (*ANY, *special))


@torch.no_grad()
@pytest.mark.parametrize("kind", sampled(TINY, {"bert", "modernbert"}))
def test_every_key_with_every_bad_value(kind: str, good: dict[str, Path], tmp_path: Path) -> None:
    """Either the model is read and runs, or one line says why not: no hang, no other error."""
    folder = copy(good[kind], tmp_path / "model")
    before = (folder / "config.json").read_text("utf-8")
    read_anyway = 0
    for key, value in cases(kind):
        (folder / "config.json").write_text(before, "utf-8")
        settings(folder, **{key: value})
        message = outcome(folder, seconds=2)
        if not message:
            found = read(folder)
            hidden = found.model.encoder(BATCH)
            for head in found.model.heads.values():
                head(hidden, BATCH)
            read_anyway += 1
    assert read_anyway < len(list(cases(kind))) / 2  # most of them are refused


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "5", '"x"', "{", "{'a': 1}", "\ufeff{}", "[" * 100_000, '{"a":' * 100_000,
     '{"a": ' + "1" * 10_000 + "}", "{}"],
)  # fmt: skip
def test_not_a_config(text: str, bert: Path) -> None:
    (bert / "config.json").write_text(text, "utf-8")
    refused(bert, "config.json")


def test_not_text(bert: Path) -> None:
    (bert / "config.json").write_bytes(b'{"model_type": "\xff\xfe"}')
    refused(bert, "config.json")


def test_no_config(bert: Path) -> None:
    (bert / "config.json").unlink()
    refused(bert, "config.json")
    (bert / "config.json").mkdir()
    refused(bert, "config.json")


def test_a_config_of_100_megabytes(bert: Path) -> None:
    with (bert / "config.json").open("wb") as file:
        file.truncate(100_000_000)
    refused(bert, "config.json: holds more than 16 MiB")


def test_a_config_with_millions_of_labels(bert: Path) -> None:
    settings(bert, id2label=dict.fromkeys(range(100000), "a label"))
    refused(bert, "classifier.weight has shape [2, 8]")
    settings(bert, id2label=dict.fromkeys(range(1000000), "a label"))
    refused(bert, "config.json: holds more than 16 MiB")


@pytest.mark.parametrize("kind", ["gpt2", "", None, 5, ["bert"], {"bert": 1}, "BERT", "b\nert"])
def test_unknown_families(kind: Any, bert: Path) -> None:
    settings(bert, model_type=kind)
    refused(bert, "model_type")


def test_the_family_can_be_told(bert: Path) -> None:
    settings(bert, model_type=None)
    assert read(bert, settings={"model_type": "bert"}).family.name == "bert"


def test_another_family_than_the_weights(bert: Path) -> None:
    settings(bert, model_type="roberta")
    refused(bert, "missing")


def test_a_thousand_layers(bert: Path) -> None:
    settings(bert, num_hidden_layers=1000)
    refused(bert, "config.json")


def test_bad_values_are_not_repeated_at_length(bert: Path) -> None:
    settings(bert, hidden_act="x" * 1_000_000)
    refused(bert, "config.json")


# ------------------------------------------------------------------ code that a config names


def test_named_code_is_neither_run_nor_passed_on(bert: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (bert / "modeling_evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
    settings(
        bert,
        auto_map={"AutoModel": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Evil"},
        custom_pipelines={"evil": {"impl": "modeling_evil.Evil"}},
        mine={"kept": [1, None, "ü"]},
    )
    found = read(bert)
    assert not marker.exists()
    assert "modeling_evil" not in sys.modules
    write(found, tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert not {"auto_map", "custom_pipelines"} & stored.keys()
    assert stored["mine"] == {"kept": [1, None, "ü"]}


# ------------------------------------------------------------------ labels


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ({}, ["LABEL_0", "LABEL_1"]),
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"id2label": {"1": "b", "0": "a"}}, ["a", "b"]),
        ({"id2label": {"10": "k", "9": "j"}}, ["j", "k"]),
        ({"id2label": {0: "a", 1: None}}, ["a", "None"]),
        ({"id2label": {"0": "a"}, "num_labels": 2}, ["LABEL_0", "LABEL_1"]),
        ({"id2label": {}, "num_labels": None}, ["LABEL_0", "LABEL_1"]),
    ],
)
def test_labels(given: dict[str, Any], labels: list[str]) -> None:
    made = create({"model_type": "bert", **TINY["bert"][0], **given}, heads=["classify"])
    assert made.labels == labels
    assert made.config.heads["classify"].outputs == len(labels)


@pytest.mark.parametrize("given", [{"id2label": {"a": 0, "b": 1}}, {"id2label": ["a", "b"]}])
def test_labels_that_are_not_numbered(given: dict[str, Any]) -> None:
    made = create({"model_type": "bert", **TINY["bert"][0], **given}, heads=["classify"])
    with pytest.raises(BertsmithError, match=r"config\.json: labels"):
        _ = made.labels


@pytest.mark.parametrize("count", [10**18, 10**400, -1, "x", NAN])
def test_label_counts_that_no_head_has_looked_at(count: Any) -> None:
    made = create({"model_type": "bert", **TINY["bert"][0], "num_labels": count})
    with pytest.raises(BertsmithError, match=r"config\.json: labels"):
        _ = made.labels


def test_label_count_differs_from_the_weights(good: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(good["roberta"], tmp_path / "model")
    settings(folder, id2label={str(number): str(number) for number in range(5)})
    assert "classifier.out_proj" in refused(folder, "asks for [5")
