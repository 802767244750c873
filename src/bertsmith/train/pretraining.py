"""Pre-training: a recipe and a corpus in, a model directory out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import Sentence, save
from bertsmith.corpus import Corpus, Mixture
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples import Examples
from bertsmith.examples.draw import Numbers
from bertsmith.examples.loader import StepRequest
from bertsmith.files import finite, write_json, write_text
from bertsmith.folders import marking, write_directory
from bertsmith.model import Model
from bertsmith.objectives import Contrastive
from bertsmith.pages.runs import write_report
from bertsmith.train.activations import blocks_of
from bertsmith.train.building import Built, built, described, examples_of, hollow, open_corpus
from bertsmith.train.busy import DRAWS, Draw, demand_busy, fill_of
from bertsmith.train.compiling import compile_rows
from bertsmith.train.continuing import (
    Branch,
    branch_off,
    branch_recipe,
    differing,
    find_branch,
    stored_recipe,
)
from bertsmith.train.distributed import Ranks
from bertsmith.train.folder import RunFolder
from bertsmith.train.loggers import LoggedRun, LoggerNames, Loggers, check_loggers
from bertsmith.train.loop import Keeping, Replay, Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision, supported
from bertsmith.train.recipe import MOST_STEPS, Recipe, load_recipe
from bertsmith.train.replayed import can_replay, inputs_of
from bertsmith.train.scoring import HeldOut, fill, open_held_out, pseudo, scoring
from bertsmith.train.state import Checkpoints
from bertsmith.train.step import allow_signals
from bertsmith.train.watch import MakeWatch, Watch, check_view, watcher

STORED = {"model": "model", "report": "report.html"}  # results of a finished run
FILM = "film"  # the folder of weights at powers of two, if the recipe asks for them


def pretrain(
    recipe: Recipe | str | Path | None,
    out: str | Path,
    *,
    resume: bool = False,
    branch: str | Path | None = None,
    cool_down: int | None = None,
    show: str | MakeWatch | None = None,
    log: LoggerNames = (),
) -> dict[str, Any]:
    """Train by a recipe, or the one of this name; the model is in `out`/model at the end.

    `resume` continues the run in `out` with its own recipe; a group of processes
    that torchrun restarts resumes automatically. `branch` ("run@8000", or "run" for its last
    checkpoint) starts another run from a checkpoint, with its optimizer and counters; its recipe
    is that of the run if none is given. `cool_down` ends it after so many steps, over which the
    learning rate falls to 0. `show` is "live", "lines", "none" or a function
    that returns a `Watch`; by default "live" on a terminal, else "lines". `log` names loggers
    ("tensorboard", "wandb", "mlflow"), or has classes like theirs. Returns the summary;
    `finished` is False if a signal stopped the run.
    """
    check_view(show)
    check_loggers(log)
    recipe, origin = _asked(recipe, resume, branch, cool_down)
    ranks = Ranks(_device(recipe))
    with ranks.process_group(), ExitStack() as stack:
        folder = RunFolder(out, writes=ranks.first)
        begun = ranks.broadcast(folder.begun())
        # torchrun starts the processes again: RESTART_COUNT stays 0 if a machine came or went.
        again = ranks.restarts > 0 or (ranks.job != "" and folder.start().get("job") == ranks.job)
        resume = resume or (begun and ranks.broadcast(again))
        given = recipe
        if resume:
            recipe, origin = stored_recipe(recipe, folder), None
            ranks.run_on_first(lambda: stack.enter_context(folder.held()))
        else:
            ranks.run_on_first(folder.demand_free)
        corpus = open_corpus(recipe)
        torch.manual_seed(recipe.train.seed)
        if recipe.train.threads:
            torch.set_num_threads(recipe.train.threads)
        source = RunFolder(origin.run) if origin else folder
        known = _known(source) if resume or origin else None
        made = built(recipe, corpus.tokenizer, known=known)
        request = _requests(recipe, corpus, made.checkpoint.config.segments, ranks.count)
        # Reject an unsuitable corpus, or one that leaves ranks idle, before writing anything.
        demand_busy(recipe, ranks.count, _step_lengths(recipe, corpus, request(0)))
        held = open_held_out(recipe, corpus, made.checkpoint.config.segments)
        if not resume:
            ranks.run_on_first(lambda: stack.enter_context(folder.held()))
            start = {"job": ranks.job, "model": recipe.model.start and described(made.checkpoint)}
            begin = partial(branch_off, origin, folder, corpus.fingerprint()) if origin else None
            if origin:
                start["branch"] = {"run": str(origin.run.resolve()), "step": origin.step}
            start = {key: value for key, value in start.items() if value}
            ranks.run_on_first(lambda: folder.make(recipe.toml(), start, begin))
        watch = watcher(show if ranks.first else "none", folder, recipe, made)
        about = LoggedRun(folder.path, folder.path.resolve().name, recipe.model_dump())
        with watch, Loggers(log if ranks.first else (), about, watch.say) as loggers:
            for line in differing(given, recipe):
                watch.say(f"continuing with the run's own recipe: {line}")
            goes_on = resume or origin is not None
            return _train(
                recipe, folder, ranks, corpus, made, request, watch, held, goes_on, loggers
            )


def _asked(
    recipe: Recipe | str | Path | None,
    resume: bool,
    branch: str | Path | None,
    cool_down: int | None,
) -> tuple[Recipe, Branch | None]:
    """The recipe of the run, and the checkpoint from which it branches off."""
    if isinstance(recipe, str | Path):
        recipe = load_recipe(recipe)
    if branch is None:
        if recipe is None or cool_down is not None:
            cool = f"{setting_name('cool_down')} needs a {setting_name('branch')}"
            raise BertsmithError("name a recipe" if recipe is None else cool)
        return recipe, None
    if resume:
        resumed, branched = setting_name("resume"), setting_name("branch")
        raise BertsmithError(f"{resumed} continues the run in its folder: leave out {branched}")
    origin = find_branch(branch)
    return branch_recipe(recipe, origin, cool_down), origin


def _known(folder: RunFolder) -> dict[str, Any] | None:
    """The model that the run continues, without its values, if a checkpoint has those."""
    started = bool(Checkpoints(folder.path / "checkpoints").steps())
    return folder.start().get("model") if started else None


def _train(
    recipe: Recipe,
    folder: RunFolder,
    ranks: Ranks,
    corpus: Corpus | Mixture,
    made: Built,
    request: Callable[[int], StepRequest],
    watch: Watch,
    held: HeldOut,
    resume: bool,
    loggers: Loggers,
) -> dict[str, Any]:
    plain = hollow(made)  # as it is stored: neither compiled nor sharded
    learner = made.learner.to(ranks.device)
    replay = can_replay(recipe, learner, ranks)
    name = supported(recipe.train.precision, ranks.device)
    if recipe.train.compile:
        whole = ranks.count == 1 or recipe.train.parallel == "ddp"
        how = {"half": name != "float32", "float8": name == "fp8"}
        compile_rows(learner, whole=whole, captured=replay, **how)
    elif ranks.device.type == "cpu":
        allow_signals(blocks_of(learner))
    module = ranks.wrap(
        learner,
        recipe.train.parallel,
        Precision.of(name, ranks.device),
        checkpointing=recipe.train.checkpointing,
    )
    if held.unfit:
        watch.say(held.unfit)
    watch.unigram = held.baseline.get("unigram_entropy", 0.0)
    trainer = Trainer(
        learner,
        module,
        optimizer_for(learner, recipe.train),
        train=recipe.train,
        ranks=ranks,
        request=request,
        record=folder,
        watch=watch,
        place=str(folder.path),
        checkpoints=Checkpoints(folder.path / "checkpoints", recipe.checkpoint.keep),
        film=Checkpoints(folder.path / FILM, MOST_STEPS) if recipe.checkpoint.film else None,
        keeping=Keeping(recipe.checkpoint.every, recipe.checkpoint.minutes),
        scoring=scoring(recipe, held, learner, module, plain.learner, ranks),
        replay=Replay(inputs_of, advice="set train.graphs=false") if replay else None,
        workers=recipe.data.workers,
        rate="train.learning_rate",
        loggers=loggers,
    )
    if resume and trainer.resume():
        if trainer.progress.corpus != corpus.fingerprint():
            raise BertsmithError(
                f"{corpus.directory}: the run was started with another corpus"
                + (" or other weights" if recipe.data.corpora else "")
            )
    else:
        trainer.progress.corpus = corpus.fingerprint()
        _note_start(trainer, recipe, made, request(0), name)
        trainer.ledger.note(held.unfit, bool(held.unfit))
    spent = trainer.progress.ended or trainer.done() >= 1
    if trainer.progress.closed and spent and (ended := folder.summary()):
        watch.say(f"{folder.path}: this run has ended at step {trainer.progress.step}")
        return ended
    if name != recipe.train.precision:
        other = name == "float32" and ranks.device.type == "cuda"
        advice = '; train.precision = "float16" would be faster' if other else ""
        wanted = recipe.train.precision
        watch.say(f"this device emulates {wanted}: the run computes in {name}{advice}")
    finished = trainer.run()
    summary = finite({"finished": finished, **_summary(trainer, ranks, name), **held.baseline})
    if not finished:
        watch.say(f"stopped at step {trainer.progress.step}; --resume continues")
        return {"signal": trainer.stopped.number, **summary}
    begins = accumulate(steps for _, _, steps in recipe.lengths()[:-1])
    missed = sum(trainer.progress.step <= begin for begin in begins)
    missed = 0 if trainer.progress.ended else missed
    trainer.ledger.note("stages that the budget did not reach", missed)
    summary |= {"stages_not_reached": missed} if missed else {}
    warmup = recipe.train.warmup if recipe.train.warmup >= 1 else 0
    unwarmed = max(0, round(warmup) - trainer.progress.step)
    trainer.ledger.note("warm-up steps that the budget did not reach", unwarmed)
    if trainer.progress.corpora:
        summary["corpora"] = _read_of_each(corpus, trainer.progress.corpora)
        for row in summary["corpora"]:
            trainer.ledger.note(f"tokens read from {row['path']}", row["tokens"])
    folder.keep_ledger(trainer.ledger)
    return _finish(recipe, folder, ranks, corpus, plain, trainer, watch, held.main, summary)


def _read_of_each(corpus: Corpus | Mixture, tokens: list[int]) -> list[dict[str, Any]]:
    """What was read of each corpus of a mixture, beside the share that was asked for."""
    tokens = [*tokens, *[0] * (len(corpus.parts) - len(tokens))]
    return [
        {"path": str(part.directory), "weight": weight, "tokens": n, "share": n / sum(tokens)}
        for (part, weight), n in zip(corpus.parts, tokens, strict=True)
    ]


def _note_start(
    trainer: Trainer, recipe: Recipe, made: Built, first: StepRequest, precision: str
) -> None:
    """Record in the ledger which settings the run cannot follow."""
    trainer.ledger.counts.update(first.examples.source.ledger.counts)
    family = made.checkpoint.family.name
    for kind in made.extra:
        trainer.ledger.note(f"heads trained that a {family} directory has no place for: {kind}")
    for key in made.ignored:
        trainer.ledger.note(f"recipe settings ignored, since the model keeps its shape: {key}")
    if precision != recipe.train.precision:
        wanted = recipe.train.precision
        trainer.ledger.note(f"computed in {precision}: this device has no {wanted} units")


def _finish(
    recipe: Recipe,
    folder: RunFolder,
    ranks: Ranks,
    corpus: Corpus | Mixture,
    plain: Built,
    trainer: Trainer,
    watch: Watch,
    held: Examples | None,
    summary: dict[str, Any],
) -> dict[str, Any]:
    """Save and evaluate the model, and write the summary and the report of the run."""
    for part, _ in corpus.parts:
        part.sums.finish()  # no model of a damaged corpus
    if trainer.best.weights:
        trainer.best.restore(trainer.named)
    else:
        trainer.averages.apply()
    weights = ranks.gather(dict(trainer.learner.named_parameters()))
    summary |= {name: str(folder.path / file) for name, file in STORED.items()}
    if ranks.first:
        fill(plain.learner, weights)
        summary |= pseudo(recipe, plain.learner.model.to(ranks.device), ranks, held)
        _store(folder.path / "model", plain, corpus, _card(recipe, corpus, summary))
        write_json(folder.path / "summary.json", summary)
        write_report(folder.path)
        for line in trainer.ledger.lines():
            watch.say(line)
    ranks.barrier()
    return summary


def _store(directory: Path, made: Built, corpus: Corpus | Mixture, about: str = "") -> None:
    """Write the model directory, and one for the generator if any, each all at once.

    `about` is added to the model card.
    """
    checkpoint = made.checkpoint
    kept = {kind: checkpoint.model.heads[kind] for kind in checkpoint.entries}
    plain = replace(checkpoint, model=Model(checkpoint.model.encoder, kept).cpu().eval())
    contrastive = any(isinstance(one, Contrastive) for one in made.learner.objectives)

    def write(part: Path) -> None:
        with marking(part):
            save(part, plain, corpus.tokenizer, Sentence(normalise=contrastive))
            card = part / "README.md"
            write_text(card, card.read_text("utf-8") + about)

    write_directory(directory, write)
    if (generator := made.generator) is not None:
        other = directory.with_name("generator")
        write_directory(other, lambda part: save(part, generator, corpus.tokenizer, Sentence()))


def store_checkpoint(recipe: Recipe, run: Path, step: int, directory: Path) -> None:
    """Write the model of a checkpoint of a run to a model directory."""
    corpus = open_corpus(recipe)
    fresh = built(recipe, corpus.tokenizer, known=RunFolder(run).start().get("model"))
    saved = Checkpoints(run / "checkpoints").read(step)
    kind = "average" if "average" in saved.tensors else "model"
    for name, parameter in fresh.learner.named_parameters():
        parameter.data.copy_(saved.tensors[kind][name])
    _store(directory, replace(fresh, generator=None), corpus)


def _card(recipe: Recipe, corpus: Corpus | Mixture, summary: dict[str, Any]) -> str:
    """Return the section of the model card on how the model was trained."""
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


def _summary(trainer: Trainer, ranks: Ranks, precision: str) -> dict[str, Any]:
    progress = trainer.progress
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "samples": progress.position,
        "minutes": progress.elapsed / 60,
        "tokens_per_second": progress.tokens / max(progress.elapsed, 1e-9),
        "precision": precision,
        "ranks": ranks.count,
        "useful_tokens_per_rank": progress.tokens / max(progress.step, 1) / ranks.count,
        "useful_share": progress.useful / max(progress.step, 1),
        **({"best_step": trainer.best.step} if trainer.best.weights else {}),
        **({"ended_early": True} if progress.ended else {}),
        **progress.scores,
    }


def _requests(
    recipe: Recipe, corpus: Corpus | Mixture, segments: int, ranks: int
) -> Callable[[int], StepRequest]:
    """Return the request of each step: lengths change with stages, batches grow during the ramp."""
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

    def request(step: int) -> StepRequest:
        length, tokens = stage(step)
        if length not in made:
            made[length] = examples_of(recipe, corpus, length, segments)
        fill = fill_of(recipe, length, tokens, ranks)
        if train.ramp_from and step < train.ramp_steps:
            tokens = train.ramp_from + (tokens - train.ramp_from) * step // train.ramp_steps
        return StepRequest(made[length], tokens, min(train.micro_tokens, tokens), fill)

    return request


def _step_lengths(recipe: Recipe, corpus: Corpus | Mixture, first: StepRequest) -> Draw:
    """The lengths of samples in the first steps of a stage."""

    def draw(length: int, tokens: int) -> Iterator[Numbers]:
        examples = first.examples
        if length != examples.source.longest:
            examples = examples_of(recipe, corpus, length, examples.segments)
        position = 0
        for _ in range(DRAWS):
            plan = examples.plan(position, tokens=tokens, micro_tokens=tokens)
            yield examples.source.plan(plan.samples).lengths
            position = plan.end

    return draw


def _device(recipe: Recipe) -> torch.device:
    named = recipe.train.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(named)
    except RuntimeError as error:
        raise BertsmithError(f"train.device = {named!r} is not a device") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("train.device is cuda, but torch finds no GPU")
    return device
