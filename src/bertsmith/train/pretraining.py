"""Pre-training: a recipe and a corpus in, a model directory out."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.checkpoint import Sentence, save
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.examples import Examples
from bertsmith.examples.loader import Wanted
from bertsmith.model import Encoder, Model
from bertsmith.train.building import Built, built, examples_of, open_corpus
from bertsmith.train.compiling import compile_rows
from bertsmith.train.distributed import Ranks, demand_plain, whole
from bertsmith.train.evaluate import held_out, pseudo_perplexity
from bertsmith.train.folder import RunFolder, writing
from bertsmith.train.loop import Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.recipe import Recipe, checked
from bertsmith.train.watch import MakeWatch, Watch, check_view, watcher

FILL = 64  # parts are filled up to a multiple of so many tokens: few shapes to prepare for


def pretrain(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    show: str | MakeWatch | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train by a recipe; the model is in `out`/model at the end.

    `resume` goes on with the run in `out`, by the recipe it was begun with. `show` is "live",
    "lines", "none" or makes a `Watch` of one's own; by default a live view on a terminal and lines
    elsewhere. Returns what the run came to; `finished` is False where a signal stopped it.
    """
    check_view(show, tensorboard)
    device = _device(recipe)
    ranks = Ranks(device)
    with ranks.together():
        folder = RunFolder(out, writes=ranks.first)
        given = recipe
        if resume:
            recipe = _same(recipe, folder)
        demand_plain(ranks, recipe.train.parallel, recipe.train.optimizer)
        corpus = open_corpus(recipe)
        torch.manual_seed(recipe.train.seed)
        _threads(recipe, ranks)
        made = built(recipe, corpus.tokenizer)
        wanted = _wanted(recipe, corpus, made.checkpoint.config.segments)
        wanted(0)  # a corpus that does not fit is found before anything is written
        if not resume:
            ranks.ask_first(lambda: folder.make(recipe.toml()))
        watch = watcher(show if ranks.first else "none", folder, recipe, made, tensorboard)
        with watch:
            for line in _differing(given, recipe):
                watch.say(f"going on by the run's own recipe: {line}")
            return _train(recipe, folder, ranks, corpus, made, wanted, watch, resume)


def _train(
    recipe: Recipe,
    folder: RunFolder,
    ranks: Ranks,
    corpus: Corpus,
    made: Built,
    wanted: Callable[[int], Wanted],
    watch: Watch,
    resume: bool,
) -> dict[str, Any]:
    together = made.together.to(ranks.device)
    blocks = [
        block for part in together.modules() if isinstance(part, Encoder) for block in part.blocks
    ]
    if recipe.train.compile:
        compile_rows(together, whole=ranks.count == 1 or recipe.train.parallel == "ddp")
    half = recipe.train.precision == "bfloat16"
    module = ranks.wrap(together, recipe.train.parallel, blocks, half)
    segments = made.checkpoint.config.segments
    evaluate = _evaluator(recipe, together, module, ranks, segments)
    trainer = Trainer(
        together,
        module,
        optimizer_for(together, recipe.train),
        train=recipe.train,
        keeping=recipe.checkpoint,
        ranks=ranks,
        folder=folder,
        wanted=wanted,
        watch=watch,
        workers=recipe.data.workers,
        evaluate=evaluate,
        evaluate_every=recipe.evaluate.every,
    )
    if resume and trainer.resume():
        if trainer.progress.corpus != corpus.fingerprint():
            raise BertsmithError(f"{corpus.directory}: this is not the corpus the run began with")
    else:
        trainer.progress.corpus = corpus.fingerprint()
        trainer.ledger.counts.update(wanted(0).examples.source.ledger.counts)
        family = made.checkpoint.family.name
        for kind in made.extra:
            trainer.ledger.note(f"heads trained that a {family} directory has no place for: {kind}")
    ended = folder.path / "summary.json"
    if trainer.progress.closed and trainer.done() >= 1 and ended.exists():
        watch.say(f"{folder.path}: this run has ended at step {trainer.progress.step}")
        return dict(json.loads(ended.read_text("utf-8")))
    finished = trainer.run()
    if not finished:
        watch.say(f"stopped at step {trainer.progress.step}; --resume goes on")
        return {"finished": False, "signal": trainer.stopped, **_summary(trainer)}
    begins = accumulate(steps for _, _, steps in recipe.lengths()[:-1])
    missed = sum(trainer.progress.step <= begin for begin in begins)
    trainer.ledger.note("stages that the budget did not reach", missed)
    folder.keep_ledger(trainer.ledger)
    return _finish(recipe, folder, ranks, corpus, made, trainer, watch)


def _finish(
    recipe: Recipe,
    folder: RunFolder,
    ranks: Ranks,
    corpus: Corpus,
    made: Built,
    trainer: Trainer,
    watch: Watch,
) -> dict[str, Any]:
    """Store the model, and say how good it is."""
    trainer.finish()
    together = made.together
    state = {name: whole(p.detach()).cpu() for name, p in together.named_parameters()}
    summary = {"finished": True, "model": str(folder.path / "model"), **_summary(trainer)}
    if ranks.first:
        fresh = built(recipe, corpus.tokenizer)
        for name, parameter in fresh.together.named_parameters():
            parameter.data.copy_(state[name])
        with writing(folder.path):
            card = _store(folder.path / "model", fresh, corpus)
        model = fresh.together.model.to(ranks.device)
        summary |= _measures(recipe, model, ranks, made.checkpoint.config.segments)
        with writing(folder.path):
            card.write_text(card.read_text("utf-8") + _card(recipe, corpus, summary), "utf-8")
            text = json.dumps(summary, indent=1) + "\n"
            (folder.path / "summary.json").write_text(text, "utf-8")
        for line in trainer.ledger.lines():
            watch.say(line)
    ranks.wait()
    return summary


def _measures(recipe: Recipe, model: Model, ranks: Ranks, segments: int) -> dict[str, float]:
    """Pseudo-perplexity of the model that is stored, where it fills masks."""
    held = _held_out(recipe, segments)
    if held is None or not recipe.evaluate.pseudo or "masked_lm" not in recipe.objectives:
        return {}
    mask_id = held.source.tokenizer.mask_id
    found = pseudo_perplexity(
        model,
        held,
        sequences=recipe.evaluate.pseudo,
        mask_id=mask_id if mask_id is not None else 0,
        device=ranks.device,
        most=recipe.train.micro_tokens,
        half=recipe.train.precision == "bfloat16",
    )
    return {"pseudo_perplexity": found}


def _store(directory: Path, made: Built, corpus: Corpus) -> Path:
    """The model directory, and the generator's beside it where there is one; the model's card."""
    checkpoint = made.checkpoint
    kept = {kind: checkpoint.model.heads[kind] for kind in checkpoint.entries}
    plain = replace(checkpoint, model=Model(checkpoint.model.encoder, kept).cpu().eval())
    card = directory / "README.md"
    card.unlink(missing_ok=True)  # of a run that was killed while it was stored
    save(directory, plain, corpus.tokenizer, Sentence())
    if made.generator is not None:
        save(directory.with_name("generator"), made.generator, corpus.tokenizer, Sentence())
    return card


def _card(recipe: Recipe, corpus: Corpus, summary: dict[str, Any]) -> str:
    """How the model came about, for its card."""
    rows = [
        f"| {key} | {value:.6g} |" for key, value in summary.items() if isinstance(value, float)
    ]
    return "\n".join(
        [
            "",
            "## Training",
            "",
            f"{summary['steps']:,} steps over {summary['tokens']:,} tokens of a corpus of"
            f" {corpus.tokens:,} tokens in {corpus.documents:,} documents.",
            "",
            "| measure | |",
            "| --- | --- |",
            *rows,
            "",
            "```toml",
            recipe.toml().strip(),
            "```",
            "",
        ]
    )


def _summary(trainer: Trainer) -> dict[str, Any]:
    progress = trainer.progress
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "samples": progress.position,
        "minutes": progress.elapsed / 60,
        **trainer.last,
    }


def _wanted(recipe: Recipe, corpus: Corpus, segments: int) -> Callable[[int], Wanted]:
    """What each step asks for: lengths change by stages, batches grow by the ramp."""
    made: dict[int, Examples] = {}
    train = recipe.train

    def stage(step: int) -> tuple[int, int]:
        """The length and the tokens of a step, before the ramp."""
        *early, (length, tokens, _) = recipe.lengths()
        for size, count, steps in early:
            if step < steps:
                return size, count
            step -= steps
        return length, tokens

    def wanted(step: int) -> Wanted:
        size, tokens = stage(step)
        if size not in made:
            made[size] = examples_of(recipe, corpus, size, segments)
        fill = min(train.micro_tokens, tokens) if train.compile else FILL  # one shape, one graph
        if train.ramp_from and step < train.ramp_steps:
            tokens = train.ramp_from + (tokens - train.ramp_from) * step // train.ramp_steps
        return Wanted(made[size], tokens, min(train.micro_tokens, tokens), fill)

    return wanted


def _held_out(recipe: Recipe, segments: int) -> Examples | None:
    """Held-out samples, if the corpus has any that fit the objectives."""
    try:
        corpus = open_corpus(recipe, "held_out")
        length = recipe.lengths()[-1][0]
        return examples_of(recipe, corpus, length, segments)
    except BertsmithError:
        return None


def _evaluator(
    recipe: Recipe, together: Any, module: nn.Module, ranks: Ranks, segments: int
) -> Callable[[Callable[[], bool]], dict[str, float] | None] | None:
    held = _held_out(recipe, segments) if recipe.evaluate.tokens else None
    if held is None:
        return None

    def evaluate(stopped: Callable[[], bool]) -> dict[str, float] | None:
        # As it is written: batches are of other sizes here, each of which would be compiled for.
        plain = torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext()
        with plain:
            return held_out(
                together,
                module,
                held,
                tokens=recipe.evaluate.tokens,
                most=recipe.train.micro_tokens,
                ranks=ranks,
                stopped=stopped,
            )

    return evaluate


def _same(recipe: Recipe, folder: RunFolder) -> Recipe:
    """The recipe that the run was begun with."""
    import tomllib

    begun = checked(tomllib.loads(folder.recipe()), str(folder.path / "recipe.toml"))
    # Where it runs may change from one time to the next.
    free = {"device": recipe.train.device, "threads": recipe.train.threads}
    return begun.model_copy(
        update={
            "train": begun.train.model_copy(update=free),
            "data": begun.data.model_copy(
                update={"corpus": recipe.data.corpus or begun.data.corpus}
            ),
        }
    )


def _differing(given: Recipe, begun: Recipe) -> list[str]:
    """The keys in which a recipe differs from the one that a run began with."""
    lines: list[str] = []
    if not given.data.corpus:  # the run knows it
        corpus = {"corpus": begun.data.corpus}
        given = given.model_copy(update={"data": given.data.model_copy(update=corpus)})
    for part, told in begun.model_dump(exclude={"about"}).items():
        asked = given.model_dump()[part]
        pairs = [(part, asked, told)]
        if isinstance(told, dict):
            keys = dict.fromkeys([*told, *asked])
            pairs = [(f"{part}.{key}", asked.get(key), told.get(key)) for key in keys]
        lines += [f"{key} is {own!r}, not {new!r}" for key, new, own in pairs if new != own]
    return lines


def _device(recipe: Recipe) -> torch.device:
    named = recipe.train.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(named)
    except RuntimeError as error:
        raise BertsmithError(f"train.device = {named!r} is no device") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("train.device is cuda, but torch finds no GPU here")
    return device


def _threads(recipe: Recipe, ranks: Ranks) -> None:
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
