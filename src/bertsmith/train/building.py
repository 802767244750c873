"""From a recipe to what is trained: model, heads, objectives, examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import Checkpoint, create, locate, read
from bertsmith.checkpoint.checkpoint import configure, entry_of
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.examples import Examples, Masking, Pairs, Source, Spans
from bertsmith.families import family_of, preset
from bertsmith.model import Config, Model, build, build_head, initialise
from bertsmith.objectives import (
    OBJECTIVES,
    MaskedTokens,
    MultiObjective,
    Objective,
    ReplacedTokens,
    generator_config,
)
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.recipe import Recipe, nearest

MULTIPLE = 64  # rows of a new token table are a multiple of this: matrix units like it


@dataclass(frozen=True)
class Built:
    """A model to train, with all that is needed to store it."""

    checkpoint: Checkpoint  # of the heads that the family's checkpoints have
    together: MultiObjective
    generator: Checkpoint | None  # stored beside the model, where its family can say what it is
    extra: tuple[str, ...]  # heads that are trained but have no place in such a checkpoint


def built(recipe: Recipe, tokenizer: Tokenizer) -> Built:
    """The model of a recipe, new or read, with its objectives."""
    objectives = _objectives(recipe)
    kinds = tuple(dict.fromkeys(objective.kind for objective in objectives))
    checkpoint = _checkpoint(recipe, tokenizer, kinds)
    config, model = checkpoint.config, checkpoint.model
    _check_lengths(recipe, config)
    deviation, seed = config.initial_deviation, recipe.train.seed
    extra = tuple(kind for kind in kinds if kind not in model.heads)
    for objective in objectives:
        head = objective.head(config)
        if objective.kind not in model.heads:
            model.heads[objective.kind] = build_head(config, model.encoder, head)
            own = [
                f"heads.{objective.kind}.{n}"
                for n, _ in model.heads[objective.kind].named_parameters()
            ]
            tied = {"heads.masked_lm.output.weight"}
            random = torch.Generator().manual_seed(seed + 1)
            initialise(model, deviation, random, only=set(own) - tied)
    made: list[Objective] = []
    generator = None
    for objective in objectives:
        if objective is ReplacedTokens:
            shape = recipe.generator
            small = generator_config(config, shape.width, shape.depth)
            guessing = build(small)
            initialise(guessing, deviation, torch.Generator().manual_seed(seed + 2))
            made.append(ReplacedTokens(model, guessing, shape.sharing, shape.fills))
            generator = _stored_generator(checkpoint, small, guessing)
        elif objective is not MaskedTokens or recipe.generator.fills == 1:
            made.append(objective())
    together = MultiObjective(model.train(), made, recipe.objectives)
    return Built(checkpoint, together, generator, extra)


def _objectives(recipe: Recipe) -> list[Any]:
    for name in recipe.objectives:
        if name not in OBJECTIVES and name != "generator":
            known = ", ".join(OBJECTIVES)
            raise BertsmithError(
                f"unknown objective {name!r}{nearest(name, OBJECTIVES)}; known: {known}"
            )
    if recipe.generator.fills < 1 and not {"masked_lm", "replaced"} <= set(recipe.objectives):
        raise BertsmithError(
            "generator.fills below 1 leaves tokens for masked_lm to guess: it needs the objectives"
            " masked_lm and replaced"
        )
    return [OBJECTIVES[name] for name in recipe.objectives if name != "generator"]


def _checkpoint(recipe: Recipe, tokenizer: Tokenizer, kinds: tuple[str, ...]) -> Checkpoint:
    """New weights of a published size, or those of a directory."""
    part = recipe.model
    if part.start:
        return _continued(part.start, dict(part.settings), tokenizer, kinds)
    settings = {**preset(part.size), "vocab_size": -(-tokenizer.size // MULTIPLE) * MULTIPLE}
    first, last = tokenizer.cls_id, tokenizer.sep_id
    special = {"pad": tokenizer.pad_id, "cls": first, "bos": first, "sep": last, "eos": last}
    # All are said: what a family's published models have may lie beyond this vocabulary.
    settings |= {f"{role}_token_id": own for role, own in special.items() if own is not None}
    settings |= part.settings
    if settings["vocab_size"] < tokenizer.size:
        raise BertsmithError(
            f"model.settings.vocab_size is {settings['vocab_size']:,}, but the corpus has"
            f" {tokenizer.size:,} tokens"
        )
    held = {entry.kind for entry in family_of(settings).heads}
    return create(settings, heads=[k for k in kinds if k in held], seed=recipe.train.seed)


def _continued(
    start: str, settings: dict[str, Any], tokenizer: Tokenizer, kinds: tuple[str, ...]
) -> Checkpoint:
    """A model from a directory; heads that it lacks are new."""
    directory = locate(start)
    own = Tokenizer.load(directory)
    if own.vocabulary() != tokenizer.vocabulary():
        raise BertsmithError(
            f"{start}: its vocabulary is not the one that the corpus was prepared with;"
            f" prepare the text with --tokenizer {start}"
        )
    plain = read(directory, heads=(), settings=settings or None)
    stored = read(directory, settings=settings or None)
    held = {entry.kind for entry in plain.family.heads}
    wanted = [kind for kind in kinds if kind in held]
    new = [kind for kind in wanted if kind not in stored.entries]
    old = [kind for kind in wanted if kind in stored.entries]
    return read(directory, heads=old, new=new, settings=settings or None)


def _check_lengths(recipe: Recipe, config: Config) -> None:
    longest = max(length for length, _, _ in recipe.lengths())
    if longest > config.max_length:
        raise BertsmithError(
            f"sequences of {longest} tokens, but the model reads {config.max_length}:"
            " set model.settings.max_position_embeddings"
        )


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
        said = configure(family, settings, {"masked_lm": entry})
    except BertsmithError:
        return None
    same = replace(said, heads={}, layers=1) == replace(config, heads={}, layers=1)
    same &= len(said.plan) == len(config.plan) and said.heads == config.heads
    return Checkpoint(model, family, settings, {"masked_lm": entry}) if same else None


def source_of(recipe: Recipe, corpus: Corpus, length: int) -> Source:
    """Where samples of this length come from."""
    seed, data = recipe.train.seed, recipe.data
    if data.format in ("next", "order"):
        return Pairs(corpus, length=length, kind=data.format, short=data.short, seed=seed)
    return Spans(corpus, length=length, seed=seed, joined=data.format == "joined")


def examples_of(recipe: Recipe, corpus: Corpus, length: int, segments: int) -> Examples:
    """Masked samples of this length."""
    masks = {"masked_lm", "replaced"} & recipe.objectives.keys()
    part = recipe.masking
    masking = Masking(
        corpus.tokenizer,
        rate=part.rate,
        mask=1.0 if "replaced" in recipe.objectives else part.mask,
        random=0.0 if "replaced" in recipe.objectives else part.random,
        unit=part.unit,
        span=part.span,
        longest_span=part.longest_span,
        seed=recipe.train.seed,
    )
    return Examples(source_of(recipe, corpus, length), masking if masks else None, segments)


def open_corpus(recipe: Recipe, split: str = "train") -> Corpus:
    """The corpus that a recipe names."""
    if not recipe.data.corpus:
        raise BertsmithError("no corpus: give --data, or data.corpus in the recipe")
    folder = Path(recipe.data.corpus)
    if folder.is_file():
        raise BertsmithError(f"{folder}: a file, not a corpus; run `bertsmith prepare` on it first")
    return Corpus.open(folder, split)
