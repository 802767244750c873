"""The BERT family, one file each: the meaning of config.json, sizes, and tensor names.

To add a family, write its file and list it here.
"""

from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.families import (
    albert,
    bert,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    modernbert,
    mpnet,
    nomic_bert,
    roberta,
    static,
)
from bertsmith.families.family import Family, HeadEntry, Names, Settings, Stacked

MODULES = [bert, roberta, albert, distilbert, electra, deberta, deberta_v2, modernbert, mpnet]
MODULES += [nomic_bert, static]
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in MODULES}


def family_of(settings: Settings) -> Family:
    """Return the family of a config.json's `model_type`."""
    kind = settings.get("model_type")
    for family in FAMILIES.values():
        if isinstance(kind, str) and kind in family.stems:
            return family
    near = nearest(str(kind), model_types()) or "."
    raise BertsmithError(
        f"config.json: model_type {kind!r:.40} is not known{near} "
        f"Set {setting_name('family')} to one of: {', '.join(model_types())}"
    )


def model_types() -> list[str]:
    """Return the values of `model_type` that are known."""
    return [name for family in FAMILIES.values() for name in family.stems]


def preset(name: str) -> Settings:
    """Return the config.json settings of a published size, such as "bert-base-uncased"."""
    for family in FAMILIES.values():
        if name in family.sizes:
            return {"model_type": family.name, **family.sizes[name]}
    raise BertsmithError(f"unknown size {name!r}; known: {', '.join(presets())}")


def presets() -> list[str]:
    """Return the names of all published sizes."""
    return [name for family in FAMILIES.values() for name in family.sizes]


__all__ = ["FAMILIES", "Family", "HeadEntry", "Names", "Settings", "Stacked", "family_of"]
__all__ += ["model_types", "preset", "presets"]
