"""The interface of a family: settings of config.json, sizes, and a table of tensor names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from bertsmith.errors import BertsmithError
from bertsmith.model import Config, HeadConfig

Settings = Mapping[str, Any]  # the keys and values of a config.json


class Stacked(NamedTuple):
    """A tensor that is stored as several, concatenated along the first axis."""

    parts: tuple[str, ...]
    per_head: bool = False  # rows are by head, then query, key, value; here it is the reverse


# Our module (or tensor) → theirs. A `*` stands for the number of a block. Read both ways.
Names = Mapping[str, str | Stacked]


def stacked(path: str, *endings: str) -> Stacked:
    """Several stored tensors whose names differ only at the end."""
    return Stacked(tuple(path + ending for ending in endings))


@dataclass(frozen=True)
class HeadEntry:
    """How checkpoints of a family store a kind of head."""

    kind: str
    config: Callable[[Config, Settings], HeadConfig]
    names: Names
    settings: Settings = field(default_factory=dict)  # what config.json must say to find it


def head(
    kind: str, config: Callable[[Config, Settings], HeadConfig], at: str = "", **theirs: str
) -> HeadEntry:
    """A head entry: their names, below `at`, for our parts (dense, norm, output, bias, ...)."""
    names = {PARTS.get(part, part): at + path for part, path in theirs.items()}
    return HeadEntry(kind, config, names)


def untied(entry: HeadEntry) -> HeadEntry:
    """The same head with an output matrix of its own, which then also has a bias of its own."""
    names = {ours: path for ours, path in entry.names.items() if not ours.startswith("output")}
    decoder = str(entry.names["output.weight"]).removesuffix(".weight")
    return replace(entry, names={**names, "output": decoder}, settings=UNTIED)


TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
PARTS = {
    "dense": "transform.dense",
    "norm": "transform.norm",
    "bias": "output.bias",
    "decoder": "output.weight",
}


@dataclass(frozen=True)
class Family:
    """The definition of a family."""

    name: str
    stems: Settings  # model_type → the stem of its classes: {"bert": "Bert"}
    prefix: str  # what stands before the encoder's tensors in a checkpoint with a head
    base: Config  # the defaults of settings that config.json lacks
    keys: Mapping[str, str]  # config.json's keys → fields of Config
    sizes: Mapping[str, Settings]
    names: Names
    heads: tuple[HeadEntry, ...]
    adjust: Callable[[Config, Settings], Config] = lambda config, settings: config
    pretraining: tuple[str, ...] = ("masked_lm",)  # heads of the ForPreTraining class
    block_label: Callable[[Settings, int], str] = lambda settings, number: str(number)
    refused: Settings = field(default_factory=dict)  # settings that may only have this value
    linear_head: Settings = field(default_factory=dict)  # make heads linear on the mean of states

    def config(self, settings: Settings) -> Config:
        """Return the encoder that a config.json describes, without heads."""
        for key, value in self.refused.items():
            if settings.get(key) not in (None, value):
                raise BertsmithError(f"config.json: {key} = {settings[key]!r} is not supported")
        changes: dict[str, Any] = {}
        for key, fields in {"is_decoder": "causal", **self.keys}.items():
            if settings.get(key) is not None:
                changes |= dict.fromkeys(fields.split(), settings[key])
        return self.adjust(replace(self.base, **changes), settings)

    @property
    def architectures(self) -> dict[str, tuple[str, ...]]:
        """Return the heads of each transformers class, by the suffix of its name."""
        kinds = {head.kind for head in self.heads}
        classes = {**ARCHITECTURES, "ForPreTraining": self.pretraining}
        return {suffix: heads for suffix, heads in classes.items() if kinds.issuperset(heads)}


ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ForMaskedLM": ("masked_lm",),
    "ForNextSentencePrediction": ("next_sentence",),
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("answer",),
    "ForMultipleChoice": ("choose",),
    "Model": (),
}


NO_DROPOUT: dict[str, Any] = {
    name: 0.0 for name in Config.__dataclass_fields__ if name.endswith("dropout")
}


def labels(settings: Settings) -> int:
    """How many labels a classifier has."""
    return int(settings.get("num_labels") or len(settings.get("id2label") or ()) or 2)


def setting(settings: Settings, key: str, default: Any) -> Any:
    """A setting, where absent and null mean the same."""
    value = settings.get(key)
    return default if value is None else value
