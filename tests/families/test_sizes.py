"""Every published size has as many parameters as `transformers` and its authors say."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import transformers
from torch import nn

from bertsmith.checkpoint.checkpoint import configure
from bertsmith.errors import BertsmithError
from bertsmith.families import FAMILIES, Family, HeadEntry, family_of, preset, presets
from bertsmith.model import Model, build


def entries(family: Family, suffix: str) -> dict[str, HeadEntry]:
    """The heads of a class as `transformers` has them: the last way to store DeBERTa's."""
    kinds = family.architectures[suffix]
    ways = {kind: [entry for entry in family.heads if entry.kind == kind] for kind in kinds}
    last = -1 if family.name.startswith("deberta") else 0
    return {kind: found[last] for kind, found in ways.items()}


@cache
def ours(name: str, suffix: str) -> Model:
    settings = preset(name)
    family = family_of(settings)
    with torch.device("meta"):
        return build(configure(family, settings, entries(family, suffix)))


def theirs(name: str, suffix: str) -> nn.Module:
    settings = dict(preset(name))
    family = family_of(settings)
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.device("meta"):
        return getattr(transformers, family.stems[family.name] + suffix)(config)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def pretrained(name: str) -> str:
    """The class whose heads the published checkpoint carries."""
    both = family_of(preset(name)).name in ("bert", "albert", "electra")
    return "ForPreTraining" if both and "generator" not in name else "ForMaskedLM"


@pytest.mark.parametrize("name", presets())
def test_as_many_as_transformers(name: str) -> None:
    suffix = pretrained(name)
    assert count(ours(name, suffix)) == count(theirs(name, suffix))


SMALLEST = {
    "bert": "bert-tiny",
    "roberta": "roberta-base",
    "albert": "albert-base-v2",
    "distilbert": "distilbert-base-cased",
    "electra": "electra-small",
    "deberta": "deberta-base",
    "deberta-v2": "deberta-v3-small",
    "modernbert": "modernbert-base",
    "mpnet": "mpnet-base",
    "nomic_bert": "nomic-bert-2048",
}
CLASSES = [
    (family, suffix)
    for family, entry in FAMILIES.items()
    for suffix in entry.architectures
    if family != "static"  # which transformers does not know
    if suffix not in ("Model", "ForPreTraining")
    or (family, suffix)
    in (("bert", "ForPreTraining"), ("albert", "ForPreTraining"), ("electra", "ForPreTraining"))
]


@pytest.mark.parametrize(("family", "suffix"), CLASSES)
def test_every_class_has_as_many(family: str, suffix: str) -> None:
    name = SMALLEST[family]
    assert count(ours(name, suffix)) == count(theirs(name, suffix))


@pytest.mark.parametrize("name", presets())
def test_every_head_can_be_built(name: str) -> None:
    settings = preset(name)
    family = family_of(settings)
    heads = {f"{number}": entry for number, entry in enumerate(family.heads)}
    with torch.device("meta"):
        model = build(configure(family, settings, heads))
    assert len(model.heads) == len(family.heads)
    assert all(count(head) for head in model.heads.values())


# Millions, as the authors' papers and model cards give them, and how near we must be. Counted
# is the encoder alone, with the heads it was pre-trained with, or the blocks without embeddings.
PAPER: dict[str, tuple[str, float, float]] = {
    "bert-tiny": ("all", 4.4, 0.01),
    "bert-mini": ("all", 11.3, 0.01),
    "bert-small": ("all", 29.1, 0.01),
    "bert-medium": ("all", 41.7, 0.01),
    "bert-base-uncased": ("all", 110, 0.01),
    "bert-base-cased": ("all", 109, 0.01),
    "bert-large-uncased": ("all", 340, 0.015),  # 336.2 exactly; the paper rounds up
    "bert-base-multilingual-cased": ("all", 178.5, 0.01),
    "bert-base-multilingual-uncased": ("all", 168, 0.01),
    "bert-base-chinese": ("all", 103, 0.01),
    "roberta-base": ("all", 125, 0.01),
    "roberta-large": ("all", 355, 0.01),
    "albert-base-v1": ("all", 12, 0.02),
    "albert-large-v1": ("all", 18, 0.01),
    "albert-xlarge-v1": ("all", 60, 0.02),
    "albert-xxlarge-v1": ("all", 235, 0.06),  # 223.2 exactly: the paper's number is too high
    "albert-base-v2": ("all", 12, 0.02),
    "albert-large-v2": ("all", 18, 0.01),
    "albert-xlarge-v2": ("all", 60, 0.02),
    "albert-xxlarge-v2": ("all", 223, 0.01),
    "distilbert-base-uncased": ("encoder", 66, 0.01),
    "distilbert-base-cased": ("encoder", 65, 0.01),
    "distilbert-base-multilingual-cased": ("encoder", 134, 0.01),
    "electra-small": ("encoder", 14, 0.04),
    "electra-base": ("encoder", 110, 0.015),
    "electra-large": ("encoder", 335, 0.01),
    "deberta-base": ("all", 139, 0.01),
    "deberta-large": ("all", 405, 0.01),
    "deberta-v2-xlarge": ("all", 900, 0.02),
    "deberta-v2-xxlarge": ("all", 1500, 0.05),
    "deberta-v3-xsmall": ("blocks", 22, 0.03),
    "deberta-v3-small": ("blocks", 44, 0.03),
    "deberta-v3-base": ("blocks", 86, 0.01),
    "deberta-v3-large": ("blocks", 304, 0.01),
    "mdeberta-v3-base": ("blocks", 86, 0.01),
    "modernbert-base": ("all", 149, 0.01),
    "modernbert-large": ("all", 395, 0.01),
}


@pytest.mark.parametrize("name", PAPER)
def test_as_many_as_published(name: str) -> None:
    part, millions, near = PAPER[name]
    model = ours(name, pretrained(name))
    whole = {"all": model, "encoder": model.encoder, "blocks": model.encoder}[part]
    embedded = count(model.encoder.embedding) if part == "blocks" else 0
    assert (count(whole) - embedded) / 1e6 == pytest.approx(millions, rel=near)


def test_all_of_mdeberta() -> None:
    encoder = ours("mdeberta-v3-base", "ForMaskedLM").encoder
    assert count(encoder) / 1e6 == pytest.approx(276, rel=0.01)


def test_published_sizes_are_complete() -> None:
    """What the project promises to have, at least."""
    promised = [
        *(f"bert-{size}" for size in ("tiny", "mini", "small", "medium")),
        *("bert-base-uncased", "bert-large-uncased", "bert-base-multilingual-cased"),
        *("roberta-base", "roberta-large", "distilbert-base-uncased"),
        *(f"albert-{s}-v{v}" for s in ("base", "large", "xlarge", "xxlarge") for v in (1, 2)),
        *(f"electra-{size}" for size in ("small", "base", "large")),
        *("deberta-base", "deberta-large", "deberta-v2-xlarge", "mdeberta-v3-base"),
        *(f"deberta-v3-{size}" for size in ("xsmall", "small", "base", "large")),
        *("modernbert-base", "modernbert-large"),
    ]
    assert set(promised) <= set(presets())
    assert len(presets()) == len(set(presets()))


def test_an_unknown_size_names_the_known() -> None:
    with pytest.raises(BertsmithError, match=r"'bert-huge'.*bert-tiny"):
        preset("bert-huge")
