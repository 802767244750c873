"""DistilBERT: half of BERT's layers, no segments, other tensor names."""

from functools import partial

from bertsmith.families import bert
from bertsmith.families.family import Family, Names, head, stacked
from bertsmith.model import Config

LAYER = "transformer.layer.*."
NAMES: Names = {
    **bert.EMBEDDING,
    "blocks.*.attention.qkv": stacked(LAYER + "attention.", "q_lin", "k_lin", "v_lin"),
    "blocks.*.attention.output": LAYER + "attention.out_lin",
    "blocks.*.attention_norm": LAYER + "sa_layer_norm",
    "blocks.*.feedforward.up": LAYER + "ffn.lin1",
    "blocks.*.feedforward.down": LAYER + "ffn.lin2",
    "blocks.*.feedforward_norm": LAYER + "output_layer_norm",
}
pooled = partial(bert.pooled, activation="relu", dropout="seq_classif_dropout", otherwise=0.2)

FAMILY = Family(
    name="distilbert",
    stems={"distilbert": "DistilBert"},
    prefix="distilbert.",
    base=Config(layers=6, segments=0, attention_output_dropout=0.0),
    keys={
        **bert.KEYS,
        "dim": "width",
        "n_layers": "layers",
        "n_heads": "attention_heads",
        "hidden_dim": "feedforward",
        "activation": "activation",
        "dropout": "embedding_dropout feedforward_output_dropout",
        "attention_dropout": "attention_dropout",
    },
    sizes={
        "distilbert-base-uncased": {"vocab_size": 30522},
        "distilbert-base-cased": {"vocab_size": 28996},
        "distilbert-base-multilingual-cased": {"vocab_size": 119547},
    },
    names=NAMES,
    heads=(
        head(
            "masked_lm",
            bert.masked_lm,
            dense="vocab_transform",
            norm="vocab_layer_norm",
            bias="vocab_projector.bias",
            decoder="vocab_projector.weight",
        ),
        head("classify", pooled(None), dense="pre_classifier", output="classifier"),
        head("tag", bert.tokens(None, "dropout"), output="classifier"),
        head("answer", bert.tokens(2, "qa_dropout", 0.1), output="qa_outputs"),
        head("choose", pooled(1), dense="pre_classifier", output="classifier"),
    ),
)
