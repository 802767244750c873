"""Every family, every head, every option that published checkpoints use."""

from pathlib import Path
from typing import Any

import pytest

from parity.compare import assert_parity, make
from sampled import sampled

SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
DISTIL = {"vocab_size": 99, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64}
RELATIVE = {
    **SMALL,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
    "max_position_embeddings": 128,
}
V3 = {
    **RELATIVE,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 16,
}
MODERN = {
    **SMALL,
    "num_hidden_layers": 5,
    "local_attention": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": {**SMALL, "max_position_embeddings": 130, "layer_norm_eps": 1e-5},
    "XLMRoberta": {**SMALL, "max_position_embeddings": 130, "type_vocab_size": 1},
    "Albert": {**SMALL, "embedding_size": 16},
    "DistilBert": DISTIL,
    "Electra": {**SMALL, "embedding_size": 16},
    "Deberta": RELATIVE,
    "DebertaV2": V3,
    "ModernBert": MODERN,
    "MPNet": {**SMALL, "max_position_embeddings": 130},
    "NomicBert": SMALL,
}
HEADS = {
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForMultipleChoice": "choose",
}
CASES = [
    *((stem, suffix, head) for stem in FAMILIES for suffix, head in HEADS.items()),
    ("Bert", "Model", "pooler"),
    ("Bert", "ForPreTraining", "masked_lm"),
    ("Bert", "ForPreTraining", "next_sentence"),
    ("Bert", "ForNextSentencePrediction", "next_sentence"),
    ("Roberta", "Model", "pooler"),
    ("Albert", "Model", "pooler"),
    ("Albert", "ForPreTraining", "masked_lm"),
    ("Albert", "ForPreTraining", "sentence_order"),
    ("Electra", "ForPreTraining", "replaced"),
    *((stem, "Model", "") for stem in ("DistilBert", "Electra", "Deberta", "DebertaV2")),
    ("ModernBert", "Model", ""),
]
CASES += [("MPNet", "Model", "pooler"), ("NomicBert", "Model", "")]
for absent in ("Deberta", "NomicBert"):  # classes that `transformers` has not
    CASES.remove((absent, "ForMultipleChoice", "choose"))
CASES.remove(("NomicBert", "ForQuestionAnswering", "answer"))


@pytest.mark.parametrize(("stem", "suffix", "head"), CASES)
def test_heads(stem: str, suffix: str, head: str, tmp_path: Path) -> None:
    labels = {} if head in ("answer", "sentence_order") else {"num_labels": 3}
    assert_parity(make(stem, suffix, **FAMILIES[stem], **labels), tmp_path, head)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "untied output": ("Bert", {**SMALL, "tie_word_embeddings": False}),
    "untied, two biases": ("Albert", {**SMALL, "tie_word_embeddings": False}),
    "untied, one bias": ("Electra", {**SMALL, "tie_word_embeddings": False}),
    "another activation": ("Bert", {**SMALL, "hidden_act": "relu"}),
    "tanh gelu": ("Bert", {**SMALL, "hidden_act": "gelu_new"}),
    "two groups": ("Albert", {**SMALL, "embedding_size": 16, "num_hidden_groups": 3}),
    "inner group": (
        "Albert",
        {**SMALL, "embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2,
         "inner_group_num": 2},
    ),
    "same widths": ("Electra", {**SMALL, "embedding_size": 32}),
    "sinusoids": ("DistilBert", {**DISTIL, "sinusoidal_pos_embds": True}),
    "no relative attention": ("Deberta", SMALL),
    "position only by content": ("Deberta", {**RELATIVE, "pos_att_type": ["c2p"]}),
    "content only by position": ("Deberta", {**RELATIVE, "pos_att_type": "p2c"}),
    "positions and segments": (
        "Deberta", {**RELATIVE, "position_biased_input": True, "type_vocab_size": 2}
    ),
    "short span": ("Deberta", {**RELATIVE, "max_relative_positions": 20}),
    "the authors' head, v1": ("Deberta", {**RELATIVE, "legacy": False}),
    "the authors' head, v2": ("DebertaV2", {**V3, "legacy": False}),
    "own projections": ("DebertaV2", {**V3, "share_att_key": False}),
    "no buckets": ("DebertaV2", {**V3, "position_buckets": -1}),
    "shared, one term": ("DebertaV2", {**V3, "pos_att_type": ["p2c"]}),
    "convolution": ("DebertaV2", {**V3, "conv_kernel_size": 3, "conv_act": "gelu"}),
    "wide grouped convolution": (
        "DebertaV2", {**V3, "conv_kernel_size": 5, "conv_groups": 4, "conv_act": "tanh"}
    ),
    "narrow embeddings": ("DebertaV2", {**V3, "embedding_size": 16}),
    "all layers local": ("ModernBert", {**MODERN, "layer_types": ["sliding_attention"] * 5}),
    "older keys": (
        "ModernBert",
        {**MODERN, "global_attn_every_n_layers": 2, "global_rope_theta": 5000.0,
         "local_rope_theta": 300.0},
    ),
    "biases everywhere": (
        "ModernBert",
        {**MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True,
         "classifier_bias": True},
    ),
    "untied output, relative biases": ("MPNet", {**SMALL, "tie_word_embeddings": False}),
    "another rotary base": (
        "NomicBert", {**SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}
    ),
    "wide heads": ("NomicBert", {**SMALL, "head_dim": 12, "tie_word_embeddings": False}),
    "no decoder bias": ("ModernBert", {**MODERN, "decoder_bias": False}),
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_options(option: str, tmp_path: Path) -> None:
    stem, settings = OPTIONS[option]
    assert_parity(make(stem, "ForMaskedLM", **settings), tmp_path, "masked_lm")


def test_mean_pooling(tmp_path: Path) -> None:
    model = make("ModernBert", "ForSequenceClassification", **MODERN, classifier_pooling="mean")
    assert_parity(model, tmp_path, "classify")


LENGTHS = (128, 17, 1, 60)
REAL: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("Bert", {}),
    "roberta-base": ("Roberta", {"max_position_embeddings": 514, "type_vocab_size": 1}),
    "albert-base-v2": (
        "Albert",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "distilbert-base": ("DistilBert", {}),
    "electra-small": ("Electra", {}),
    "deberta-base": (
        "Deberta",
        {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"},
    ),
    "deberta-v3-small": (
        "DebertaV2",
        {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
         "intermediate_size": 3072, "relative_attention": True, "position_biased_input": False,
         "pos_att_type": "p2c|c2p", "share_att_key": True, "position_buckets": 256,
         "norm_rel_ebd": "layer_norm", "vocab_size": 12810},
    ),
    "modernbert-base": ("ModernBert", {}),
    "mpnet-base": ("MPNet", {"max_position_embeddings": 514, "layer_norm_eps": 1e-5}),
    "nomic-bert-2048": ("NomicBert", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", sampled(REAL, {"deberta-v3-small"}))
def test_real_sizes(name: str, tmp_path: Path) -> None:
    stem, settings = REAL[name]
    model = make(stem, "ForMaskedLM", deviation=0.02, **settings)
    assert_parity(model, tmp_path, "masked_lm", LENGTHS)
