"""From a recipe to model, heads, objectives and examples."""

from collections import UserDict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.checkpoint import Checkpoint, Lora, attach, create, keep_layers, locate, read
from bertsmith.checkpoint.assemble import assemble, emptied
from bertsmith.checkpoint.checkpoint import configure, entry_of
from bertsmith.checkpoint.lora import demand_whole
from bertsmith.checkpoint.names import Translation
from bertsmith.checkpoint.read import dropout_keys
from bertsmith.checkpoint.write import demand_float
from bertsmith.corpus import Corpus, Manifest, Mixture
from bertsmith.corpus.unigram import token_counts
from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.examples import Crops, Examples, Masking, MixedSource, Pairs, SampleSource, Spans
from bertsmith.families import Family, family_of, preset
from bertsmith.model import Config, Model, build, build_head, initialise
from bertsmith.objectives import (
    OBJECTIVES,
    TAUGHT,
    Contrastive,
    DistillationObjective,
    MaskedTokens,
    MultiObjective,
    NextSentence,
    Objective,
    ReplacedTokens,
    Teacher,
    check_teacher,
    generator_config,
)
from bertsmith.objectives.masked import NOT_CAUSAL
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.activations import freeze, train_biases
from bertsmith.train.recipe import START, ModelPart, Recipe, change_name

Known = dict[str, Any]
SPELLED = 0.9  # similarity of two keys from which one is taken for a misspelling of the other
MASKING = frozenset({"masked_lm", "replaced", "soft_targets"})  # objectives of masked text
MULTIPLE = 64  # rows of a new token table are a multiple of this: matrix units like it


@dataclass(frozen=True)
class Built:
    """A model to train, with all that is needed to store it."""

    checkpoint: Checkpoint  # of the heads that the family's checkpoints have
    learner: MultiObjective
    generator: Checkpoint | None  # stored beside the model, where its family can say what it is
    extra: tuple[str, ...]  # heads that are trained but have no place in such a checkpoint
    ignored: tuple[str, ...] = ()  # keys of the recipe that the model continued from overrules


def built(
    recipe: Recipe, tokenizer: Tokenizer, *, device: str = "cpu", known: Known | None = None
) -> Built:
    """The model of a recipe, new or read, with its objectives.

    A new one on the device "meta" takes no memory and has shapes only. With `known`, what
    `described` returned when the run began, `model.start` is not read: a checkpoint has the values.
    """
    objectives = _objectives(recipe)
    kinds = tuple(dict.fromkeys(filter(None, (objective.kind for objective in objectives))))
    if recipe.train.adapter and known is None:
        demand_whole(recipe.model.start)
    ignored: tuple[str, ...] = ()
    device = "cpu" if recipe.model.start else device
    if not recipe.model.start:
        checkpoint = _new(recipe, tokenizer, kinds, device)
    elif known is None:
        checkpoint, ignored = _continued(recipe.model, tokenizer, kinds)
    else:
        checkpoint = _shaped(known)
    config, model = checkpoint.config, checkpoint.model
    _check_lengths(recipe, config)
    if "following_lm" in recipe.objectives and not config.causal:
        start, needed = recipe.model.start, "a model that was trained from left to right"
        both = f"{start} reads the text on both sides of a token: following_lm needs {needed}"
        raise BertsmithError(both if start else NOT_CAUSAL)
    deviation, seed = config.initial_deviation, recipe.train.seed
    extra = tuple(kind for kind in kinds if kind not in model.heads)
    for objective in objectives:
        if (kind := objective.kind) and kind not in model.heads:
            with torch.device(device):
                head = build_head(config, model.encoder, objective.head(config))
            model.heads[kind] = head
            if device != "meta":
                own = {f"heads.{kind}.{name}" for name, _ in head.named_parameters()}
                random = torch.Generator(device).manual_seed(seed + 1)
                initialise(model, deviation, random, only=own - {"heads.masked_lm.output.weight"})
    trained: list[Objective] = []
    generator = None
    teacher = _teacher(recipe, tokenizer, config)
    for objective in objectives:
        if objective is ReplacedTokens:
            part = recipe.generator
            if part.model:
                small = _frozen_generator(recipe, tokenizer)
            else:
                shape = generator_config(config, part.width, part.depth)
                with torch.device(device):
                    small = build(shape)
                if device != "meta":
                    initialise(small, deviation, torch.Generator(device).manual_seed(seed + 2))
                generator = _stored_generator(checkpoint, shape, small)
            options: Any = {"frozen": bool(part.model), "temperature": part.temperature}
            trained.append(ReplacedTokens(model, small, part.sharing, part.fills, **options))
        elif issubclass(objective, DistillationObjective):
            trained.append(objective(teacher))
        elif objective is Contrastive:
            trained.append(Contrastive(recipe.contrastive.temperature))
        elif objective is not MaskedTokens or recipe.generator.fills == 1:
            trained.append(objective())
    freeze(model, recipe.train.freeze)
    if recipe.train.trained == "lora":
        attach(checkpoint, Lora(**recipe.lora.model_dump()), seed)
    elif recipe.train.trained == "biases":
        train_biases(model)
    learner = MultiObjective(model.train(), trained, recipe.objectives)
    return Built(checkpoint, learner, generator, extra, ignored)


def described(checkpoint: Checkpoint) -> Known:
    """All of a checkpoint but its values, as JSON."""
    known = checkpoint.family.heads
    heads = {kind: known.index(entry) for kind, entry in checkpoint.entries.items()}
    return {"settings": checkpoint.settings, "heads": heads, "notes": checkpoint.notes}


def _shaped(known: Known) -> Checkpoint:
    """The checkpoint that was described; its values are still to come."""
    settings = known["settings"]
    family = family_of(settings)
    entries = {kind: family.heads[number] for kind, number in known["heads"].items()}
    config = configure(family, settings, entries)
    model = assemble(config, Translation(family, settings, entries, config.per_head), "cpu")
    return Checkpoint(model, family, settings, entries, notes=known["notes"])


def hollow(original: Built) -> Built:
    """A copy whose parameters take no memory, to be filled with the trained values."""
    shared: list[Any] = [original.checkpoint.family]
    for objective in original.learner.objectives:  # frozen models are not copied
        shared += [*objective.outside, getattr(objective, "teacher", None)]
    return deepcopy(original, {id(part): part for part in shared} | emptied(original.learner))


def _teacher(recipe: Recipe, tokenizer: Tokenizer, student: Config) -> Teacher | None:
    """The teacher of a distillation, checked against its student; None where there is none."""
    part, name = recipe.teacher, recipe.teacher.model
    learned = recipe.objectives.keys() & TAUGHT
    if not learned:
        return None
    if not name:
        raise BertsmithError(f"the objective {min(learned)} needs a teacher: set teacher.model")
    if "relations" in learned and (recipe.train.compile or recipe.train.parallel != "ddp"):
        needed = 'train.compile = false and train.parallel = "ddp"'
        raise BertsmithError(f"the objective relations reads inside of layers: it needs {needed}")
    checkpoint = _trained("teacher", name, recipe, tokenizer)
    heads = check_teacher(checkpoint.config, student, learned, part.layer, part.relation_heads)
    options: Any = {"temperature": part.temperature, "layer": part.layer, "relation_heads": heads}
    return Teacher(checkpoint.model, **options)


def _frozen_generator(recipe: Recipe, tokenizer: Tokenizer) -> Model:
    name = recipe.model.start if recipe.generator.model == "start" else recipe.generator.model
    if not name:
        start = 'generator.model = "start" is the model that the run starts from'
        raise BertsmithError(f"{start}: name one with {START}")
    checkpoint = _trained("generator", name, recipe, tokenizer)
    if "masked_lm" not in checkpoint.entries:
        raise BertsmithError(f"{name}: a generator fills masks, and this model has no head for it")
    return checkpoint.model


def _trained(role: str, name: str, recipe: Recipe, tokenizer: Tokenizer) -> Checkpoint:
    """A trained model that reads the same batches: of the corpus's vocabulary, and long enough."""
    directory = locate(name)
    if isinstance(tokenizer, Tokenizer):  # of a plan there may be the size alone
        _demand_same_vocabulary(name, f"the {role}'s", directory, tokenizer)
    checkpoint = read(directory)
    if recipe.longest > checkpoint.config.max_length:
        made = f"the recipe makes sequences of {recipe.longest}: lower data.length"
        raise BertsmithError(f"the {role} reads {checkpoint.config.max_length} tokens, and {made}")
    return checkpoint


def _demand_same_vocabulary(name: str, whose: str, directory: Path, tokenizer: Tokenizer) -> None:
    if Tokenizer.load(directory).vocabulary() != tokenizer.vocabulary():
        fault = f"{whose} vocabulary is not the one that the corpus was prepared with"
        advice = f"prepare the text with {setting_name('tokenizer', name)}"
        raise BertsmithError(f"{name}: {fault}; {advice}")


def _objectives(recipe: Recipe) -> list[Any]:
    for name in recipe.objectives:
        if name not in OBJECTIVES and name != "generator":
            near, known = nearest(name, OBJECTIVES), ", ".join(OBJECTIVES)
            raise BertsmithError(f"unknown objective {name!r}{near} (known: {known})")
    if recipe.generator.fills < 1 and not {"masked_lm", "replaced"} <= set(recipe.objectives):
        fault = "generator.fills below 1 leaves tokens for masked_lm to guess"
        raise BertsmithError(f"{fault}: it needs the objectives masked_lm and replaced")
    masking = sorted(MASKING & recipe.objectives.keys())
    if "following_lm" in recipe.objectives and masking:
        fault = f"and beside {masking[0]} its text has masks: train each in a run of its own"
        raise BertsmithError(f"following_lm predicts the next token of plain text, {fault}")
    chosen = [OBJECTIVES[name] for name in recipe.objectives if name != "generator"]
    # Those of pairs are last: they read the text that a generator filled.
    return sorted(chosen, key=lambda objective: issubclass(objective, NextSentence))


def _new(recipe: Recipe, tokenizer: Tokenizer, kinds: tuple[str, ...], device: str) -> Checkpoint:
    part = recipe.model
    if not part.size:
        needed = part.keep or recipe.generator.model == "start"
        other = f", or a size for new weights with {change_name('model.size=bert-tiny')}"
        name = f"name it with {START}{'' if needed else other}"
        raise BertsmithError(f"this recipe continues a model: {name}")
    settings = {**preset(part.size), "vocab_size": -(-tokenizer.size // MULTIPLE) * MULTIPLE}
    first, last = tokenizer.cls_id, tokenizer.sep_id
    special = {"pad": tokenizer.pad_id, "cls": first, "bos": first, "sep": last, "eos": last}
    # All are set: the ids of a family's published models may lie beyond this vocabulary.
    settings |= {f"{role}_token_id": own for role, own in special.items() if own is not None}
    usual = set(settings)
    settings |= part.settings
    if (size := settings["vocab_size"]) < tokenizer.size:
        many = f"the corpus has {tokenizer.size:,} tokens"
        raise BertsmithError(f"model.settings.vocab_size is {size:,}, but {many}")
    family = family_of(settings)
    _check_spelling(part, family, settings, usual)
    held = {entry.kind for entry in family.heads}
    heads = [kind for kind in kinds if kind in held]
    return create(settings, heads=heads, seed=recipe.train.seed, device=device)


class ReadSettings(UserDict[str, Any]):
    """Settings that remember which keys were asked for."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.known: set[str] = set()
        super().__init__(settings)

    def __getitem__(self, key: str) -> Any:
        self.known.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.known.add(str(key))
        return super().__contains__(key)


def _check_spelling(
    part: ModelPart, family: Family, settings: Mapping[str, Any], usual: set[str]
) -> None:
    """Refuse settings that are not read but are nearly spelled like one that is."""
    asked = ReadSettings(settings)
    config = family.config(asked)
    for entry in family.heads:
        entry.config(config, asked)
    known = asked.known | family.keys.keys() | usual
    for key in part.settings:
        near = [] if key in known else get_close_matches(key, sorted(known), n=1, cutoff=SPELLED)
        if near:
            raise BertsmithError(f"unknown key model.settings.{key}; did you mean {near[0]}?")


def _continued(
    part: ModelPart, tokenizer: Tokenizer, kinds: tuple[str, ...]
) -> tuple[Checkpoint, tuple[str, ...]]:
    """A stored model, with new heads where it lacks them; and the recipe's keys it overrules."""
    directory = locate(part.start)
    _demand_same_vocabulary(part.start, "its", directory, tokenizer)
    stored = read(directory)
    demand_float(stored.settings, part.start)
    held = {entry.kind for entry in stored.family.heads}
    new = [kind for kind in kinds if kind in held and kind not in stored.entries]
    old = [kind for kind in kinds if kind in held and kind in stored.entries]
    dropout = {key: v for key, v in part.settings.items() if key in dropout_keys(stored.family)}
    checkpoint = read(directory, heads=old, new=new, settings=dropout or None)
    if part.keep:
        checkpoint = keep_layers(checkpoint, part.keep, repeats=True)
    return checkpoint, _ignored(part, stored)


def _ignored(part: ModelPart, stored: Checkpoint) -> tuple[str, ...]:
    """The keys of a recipe that ask for another shape than the stored model has."""
    family, config = stored.family, stored.config

    def differs(key: str, value: Any) -> bool:
        fields = family.keys.get(key, "").split()
        same = [getattr(config, field) == value for field in fields]
        differs = stored.settings.get(key) != value and not (same and all(same))
        return differs and key not in dropout_keys(family)

    ignored = [
        f"model.settings.{key}" for key, value in part.settings.items() if differs(key, value)
    ]
    if part.size and "size" in part.model_fields_set:
        # A new model's vocabulary comes from the corpus, not from its size.
        sizes = {k: v for k, v in preset(part.size).items() if k not in part.settings}
        asked = [k for k in sizes if k != "vocab_size" and not k.endswith("_token_id")]
        if any(differs(k, sizes[k]) for k in asked):
            ignored.insert(0, "model.size")
    return tuple(ignored)


def _check_lengths(recipe: Recipe, config: Config) -> None:
    longest, most, start = recipe.longest, config.max_length, recipe.model.start
    key = "the length of its stages" if recipe.stages else "data.length"
    fault = f"{start} reads at most {most} tokens, and the recipe makes sequences of {longest}"
    if not start:
        fault = f"sequences of {longest} tokens, but the model reads {most}"
        key += ", or raise model.settings.max_position_embeddings"
    if longest > most:
        raise BertsmithError(f"{fault}: lower {key}")


def _stored_generator(checkpoint: Checkpoint, config: Config, model: Model) -> Checkpoint | None:
    """The generator as a checkpoint of the same family, if the family's settings can say it."""
    family = checkpoint.family
    entry = entry_of(family, "masked_lm")
    by_field = {field: key for key, fields in family.keys.items() for field in fields.split()}
    settings = dict(checkpoint.settings)
    for field in ("width", "attention_heads", "feedforward", "layers", "embedding_width"):
        if field in by_field:
            settings[by_field[field]] = getattr(config, field)
    try:
        stored = configure(family, settings, {"masked_lm": entry})
    except BertsmithError:
        return None
    same = replace(stored, heads={}, layers=1) == replace(config, heads={}, layers=1)
    same &= len(stored.plan) == len(config.plan) and stored.heads == config.heads
    return Checkpoint(model, family, settings, {"masked_lm": entry}) if same else None


def source_of(recipe: Recipe, corpus: Corpus | Mixture, length: int) -> SampleSource:
    """Where samples of this length come from."""
    seed, data = recipe.train.seed, recipe.data
    if isinstance(corpus, Mixture):
        sources = [source_of(recipe, part, length) for part, _ in corpus.parts]
        return MixedSource(corpus, sources, seed)
    if data.format in ("next", "order"):
        return Pairs(corpus, length=length, kind=data.format, short=data.short, seed=seed)
    if data.format == "crops":
        shares = recipe.contrastive.model_dump(exclude={"temperature"})
        return Crops(corpus, length=length, seed=seed, **shares)
    return Spans(corpus, length=length, seed=seed, joined=data.format == "joined")


def examples_of(
    recipe: Recipe, corpus: Corpus | Mixture, length: int, segments: int, *, evenly: bool = False
) -> Examples:
    """Masked samples of this length; held-out text is masked evenly, so that losses compare."""
    part, weights = recipe.masking, None
    if part.smoothing and corpus.split == "train" and not evenly:
        weights = np.maximum(token_counts(corpus), 1.0) ** -part.smoothing
    options = part.model_dump(exclude={"smoothing"})
    if "replaced" in recipe.objectives:
        options |= {"mask": 1.0, "random": 0.0}
    masking = Masking(corpus.tokenizer, **options, weights=weights, seed=recipe.train.seed)
    source, fills = source_of(recipe, corpus, length), recipe.generator.fills
    masks = MASKING & recipe.objectives.keys()
    return Examples(source, masking if masks else None, segments, fills)


def open_corpus(recipe: Recipe, split: str = "train") -> Corpus | Mixture:
    """The corpus that a recipe names, or its mixture; held-out text of those that have some."""
    folders = corpus_folders(recipe)
    if not folders:
        option = setting_name("data.corpus", option="--data")
        raise BertsmithError(f"no corpus: give {option}, or set data.corpus in the recipe")
    if split != "train":
        held = [folder for folder in folders if Manifest.read(folder).splits[split].documents]
        folders = {folder: folders[folder] for folder in held or [*folders][-1:]}
    corpora = [open_folder(folder, split) for folder in folders]
    return corpora[0] if len(corpora) == 1 else Mixture(corpora, list(folders.values()))


def open_folder(folder: Path, split: str) -> Corpus:
    """A prepared corpus."""
    if folder.is_file():
        raise BertsmithError(f"{folder}: a file, not a corpus; run `bertsmith prepare` on it first")
    return Corpus.open(folder, split)


def corpus_folders(recipe: Recipe) -> dict[Path, float]:
    """The corpora that a recipe names, with their weights."""
    data = recipe.data
    if data.corpora:
        return {Path(part.path): part.weight for part in data.corpora}
    return {Path(data.corpus): 1.0} if data.corpus else {}
