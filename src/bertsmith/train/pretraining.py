"""Pre-training: a recipe and a corpus in, a model directory out."""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import Lora, Sentence, save, save_adapter
from bertsmith.corpus import Corpus, Mixture
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples.draw import Numbers
from bertsmith.examples.loader import StepRequest
from bertsmith.files import finite, write_json, write_text
from bertsmith.folders import marking, write_directory
from bertsmith.model import Model
from bertsmith.pages.runs import write_report
from bertsmith.train.activations import blocks_of
from bertsmith.train.building import Built, built, described, examples_of, hollow, open_corpus
from bertsmith.train.captured import can_replay, inputs_of
from bertsmith.train.compiling import compile_rows
from bertsmith.train.continuing import (
    Branch,
    branch_off,
    branch_recipe,
    differing,
    find_branch,
    stored_recipe,
)
from bertsmith.train.distributed import Ranks, device_named
from bertsmith.train.evaluate import HeldOut, fill, open_held_out, pseudo, scoring
from bertsmith.train.folder import RunFolder
from bertsmith.train.loggers import LoggedRun, LoggerNames, Loggers, check_loggers
from bertsmith.train.loop import Keeping, Replay, Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.planning import DRAWS, Draw, demand_busy, fill_of
from bertsmith.train.precision import Name, Precision, supported
from bertsmith.train.recipe import MOST_STEPS, Recipe, load_recipe
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
    changes: Iterable[str] = (),
    show: str | MakeWatch | None = None,
    log: LoggerNames = (),
) -> dict[str, Any]:
    """Train by a recipe, or the one of this name; the model is in `out`/model at the end.

    `resume` continues the run in `out` with its own recipe; a group of processes
    that torchrun restarts resumes automatically. `branch` ("run@8000", or "run" for its last
    checkpoint) starts another run from a checkpoint, with its optimizer and counters; its recipe
    is that of the run if none is given. `cool_down` ends it after so many steps, over which the
    learning rate falls to 0. `changes` ("train.steps=100") override keys of a recipe that is named
    or is the branch's. `show` is "live", "lines", "none" or a function that returns a `Watch`; by
    default "live" on a terminal, else "lines". `log` names loggers ("tensorboard", "wandb",
    "mlflow"), or has classes like theirs. Returns the summary; `finished` is False if a signal
    stopped the run.
    """
    check_view(show)
    check_loggers(log)
    recipe, origin = _asked(recipe, resume, branch, cool_down, changes)
    ranks = Ranks(_device(recipe))
    with ranks.process_group(), ExitStack() as stack:
        folder = RunFolder(out, writes=ranks.first)
        begun = ranks.broadcast(folder.begun())
        # torchrun starts the processes again: RESTART_COUNT stays 0 if a machine came or went.
        again = ranks.restarts > 0 or (ranks.job != "" and folder.start().get("job") == ranks.job)
        resume = resume or (begun and ranks.broadcast(again))
        requested = recipe
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
        trained = (resume or origin) and Checkpoints(source.path / "checkpoints").steps()
        known = source.start().get("model") if trained else None  # a checkpoint has its values
        setup = built(recipe, corpus.tokenizer, known=known)
        request = _requests(recipe, corpus, setup.checkpoint.config.segments, ranks.count)
        # Reject an unsuitable corpus, or one that leaves ranks idle, before writing anything.
        demand_busy(recipe, ranks.count, _step_lengths(recipe, corpus, request(0)))
        held_out = open_held_out(recipe, corpus, setup.checkpoint.config.segments)
        if not resume:
            ranks.run_on_first(lambda: stack.enter_context(folder.held()))
            start = {"job": ranks.job, "model": recipe.model.start and described(setup.checkpoint)}
            begin = partial(branch_off, origin, folder, corpus.fingerprint()) if origin else None
            if origin:
                start["branch"] = {"run": str(origin.run.resolve()), "step": origin.step}
            start = {key: value for key, value in start.items() if value}
            ranks.run_on_first(lambda: folder.make(recipe.toml(), start, begin))
        watch = watcher(show if ranks.first else "none", folder, recipe, setup)
        about = LoggedRun(folder.path, folder.path.resolve().name, recipe.model_dump())
        loggers = Loggers(log if ranks.first else (), about, watch.say)
        if not resume:
            stack.enter_context(folder.discarded(unless=lambda: loggers.started))
        with watch, loggers:
            for line in differing(requested, recipe):
                watch.say(f"continuing with the run's own recipe: {line}")
            job = PretrainingJob(recipe, folder, ranks, corpus, setup, request, watch, held_out)
            return job.train(loggers, resume=resume or origin is not None)


def _asked(
    recipe: Recipe | str | Path | None,
    resume: bool,
    branch: str | Path | None,
    cool_down: int | None,
    changes: Iterable[str],
) -> tuple[Recipe, Branch | None]:
    """The recipe of the run, and the checkpoint from which it branches off."""
    origin = None if branch is None else find_branch(branch)
    if origin is not None and recipe is None:
        recipe = origin.run / "recipe.toml"
    if isinstance(recipe, str | Path):
        recipe = load_recipe(recipe, changes)
    elif recipe is not None and (changes := tuple(changes)):
        raise BertsmithError(f"changes are of a recipe that is named; this one lacks {changes[0]}")
    if origin is None:
        if recipe is None or cool_down is not None:
            cool = f"{setting_name('cool_down')} needs a {setting_name('branch')}"
            name = f"name a recipe (`bertsmith recipes` lists them), or a {setting_name('branch')}"
            raise BertsmithError(name if recipe is None else cool)
        return recipe, None
    if resume:
        resumed, branched = setting_name("resume"), setting_name("branch")
        raise BertsmithError(f"{resumed} continues the run in its folder: leave out {branched}")
    return branch_recipe(recipe, origin, cool_down), origin


@dataclass(frozen=True)
class PretrainingJob:
    """A run that is ready to start: its recipe, its folder, its data and its model."""

    recipe: Recipe
    folder: RunFolder
    ranks: Ranks
    corpus: Corpus | Mixture
    built: Built
    request: Callable[[int], StepRequest]
    watch: Watch
    held_out: HeldOut

    def train(self, loggers: Loggers, resume: bool) -> dict[str, Any]:
        """Train, save and evaluate the model; returns the summary."""
        recipe, ranks, watch = self.recipe, self.ranks, self.watch
        plain = hollow(self.built)  # as it is stored: neither compiled nor sharded
        precision = supported(recipe.train.precision, ranks.device)
        trainer = self._trainer(plain, precision, loggers)
        self._start(trainer, precision, resume)
        progress, ledger = trainer.progress, trainer.ledger
        if progress.closed and trainer.over() and (summary := self.folder.summary()):
            watch.say(f"{self.folder.path}: this run has ended at step {progress.step}")
            return summary
        if precision != (wanted := recipe.train.precision):
            other = precision == "float32" and ranks.device.type == "cuda"
            advice = '; train.precision = "float16" would be faster' if other else ""
            watch.say(f"this device emulates {wanted}: the run computes in {precision}{advice}")
        finished = trainer.run()
        progress = trainer.progress
        summary = finite({"finished": finished, **_summary(trainer, ranks, precision)})
        summary |= finite(self.held_out.baseline)
        if not finished:
            watch.say(f"stopped at step {progress.step}; resume continues it")
            return {"signal": trainer.stopped.number, **summary}
        begins = accumulate(steps for _, _, steps in recipe.lengths()[:-1])
        missed = 0 if progress.ended else sum(progress.step <= begin for begin in begins)
        ledger.note("stages that the budget did not reach", missed)
        summary |= {"stages_not_reached": missed} if missed else {}
        warmup = round(recipe.train.warmup) if recipe.train.warmup >= 1 else 0
        ledger.note("warm-up steps that the budget did not reach", max(0, warmup - progress.step))
        if progress.corpora:
            summary["corpora"] = _read_of_each(self.corpus, progress.corpora)
            for row in summary["corpora"]:
                ledger.note(f"tokens read from {row['path']}", row["tokens"])
        self.folder.keep_ledger(ledger)
        return self._finish(trainer, plain, summary)

    def _trainer(self, plain: Built, precision: Name, loggers: Loggers) -> Trainer:
        """The loop over the model as it computes: compiled, in a precision, on all ranks."""
        recipe, ranks, train = self.recipe, self.ranks, self.recipe.train
        film = Checkpoints(self.folder.path / FILM, MOST_STEPS)
        learner = self.built.learner.to(ranks.device)
        replay = can_replay(recipe, learner, ranks)
        if train.compile:
            whole, half = ranks.count == 1 or train.parallel == "ddp", precision != "float32"
            float8 = precision == "fp8"
            compile_rows(learner, whole=whole, captured=replay, half=half, float8=float8)
        elif ranks.device.type == "cpu":
            allow_signals(blocks_of(learner))
        policy = Precision.of(precision, ranks.device)
        module = ranks.wrap(learner, train.parallel, policy, checkpointing=train.checkpointing)
        return Trainer(
            learner,
            module,
            optimizer_for(learner, train),
            train=train,
            ranks=ranks,
            request=self.request,
            record=self.folder,
            watch=self.watch,
            place=str(self.folder.path),
            checkpoints=Checkpoints(self.folder.path / "checkpoints", recipe.checkpoint.keep),
            film=film if recipe.checkpoint.film else None,
            keeping=Keeping(recipe.checkpoint.every, recipe.checkpoint.minutes),
            scoring=scoring(recipe, self.held_out, learner, module, plain.learner, ranks),
            replay=Replay(inputs_of, advice="set train.graphs=false") if replay else None,
            workers=recipe.data.workers,
            rate="train.learning_rate",
            loggers=loggers,
        )

    def _start(self, trainer: Trainer, precision: str, resume: bool) -> None:
        """Resume from a checkpoint; a new run notes in the ledger which settings are ignored."""
        corpus, recipe, held_out = self.corpus, self.recipe, self.held_out
        if held_out.unfit:
            self.watch.say(held_out.unfit)
        self.watch.unigram = held_out.baseline.get("unigram_entropy", 0.0)
        if resume and trainer.resume():
            if trainer.progress.corpus != corpus.fingerprint():
                other = "another corpus" + (" or other weights" if recipe.data.corpora else "")
                raise BertsmithError(f"{corpus.directory}: the run was started with {other}")
            return
        trainer.progress.corpus = corpus.fingerprint()
        ledger, family = trainer.ledger, self.built.checkpoint.family.name
        ledger.counts.update(self.request(0).examples.source.ledger.counts)
        for kind in self.built.extra:
            ledger.note(f"heads trained that a {family} directory has no place for: {kind}")
        for key in self.built.ignored:
            ledger.note(f"recipe settings ignored, since the model keeps its shape: {key}")
        if precision != (wanted := recipe.train.precision):
            ledger.note(f"computed in {precision}: this device has no {wanted} units")
        ledger.note(held_out.unfit, bool(held_out.unfit))

    def _finish(self, trainer: Trainer, plain: Built, summary: dict[str, Any]) -> dict[str, Any]:
        """Save and evaluate the model, and write the summary and the report of the run."""
        ranks, path = self.ranks, self.folder.path
        for corpus, _ in self.corpus.parts:
            corpus.sums.finish()  # no model of a damaged corpus
        if trainer.best.weights:
            trainer.best.restore(trainer.named)
        else:
            trainer.averages.apply()
        weights = ranks.gather(dict(trainer.learner.named_parameters()))
        summary |= {name: str(path / file) for name, file in STORED.items()}
        if ranks.first:
            fill(plain.learner, weights)
            model = plain.learner.model.to(ranks.device)
            summary |= pseudo(self.recipe, model, ranks, self.held_out.main)
            card = _card(self.recipe, self.corpus, summary)
            _store(path / "model", self.recipe, plain, self.corpus, card)
            write_json(path / "summary.json", summary)
            write_report(path)
            for line in trainer.ledger.lines():
                self.watch.say(line)
        ranks.barrier()
        return summary


def _read_of_each(corpus: Corpus | Mixture, tokens: list[int]) -> list[dict[str, Any]]:
    """What was read of each corpus of a mixture, beside the share that was asked for."""
    tokens = [*tokens, *[0] * (len(corpus.parts) - len(tokens))]
    return [
        {"path": str(part.directory), "weight": weight, "tokens": n, "share": n / sum(tokens)}
        for (part, weight), n in zip(corpus.parts, tokens, strict=True)
    ]


def _store(
    directory: Path, recipe: Recipe, setup: Built, corpus: Corpus | Mixture, about: str = ""
) -> None:
    """Write the model directory, with `about` in its card, and that of a generator if any."""
    checkpoint = setup.checkpoint
    kept = {kind: checkpoint.model.heads[kind] for kind in checkpoint.entries}
    plain = replace(checkpoint, model=Model(checkpoint.model.encoder, kept).cpu().eval())
    sentence = Sentence(normalise="contrastive" in recipe.objectives)

    def write(folder: Path) -> None:
        with marking(folder):
            model = plain, corpus.tokenizer, sentence
            if recipe.train.adapter:
                save_adapter(folder, *model, recipe.model.start, Lora(**recipe.lora.model_dump()))
            else:
                save(folder, *model)
            card = folder / "README.md"
            write_text(card, card.read_text("utf-8") + about)

    write_directory(directory, write)
    if (generator := setup.generator) is not None:
        other = directory.with_name("generator")
        write_directory(other, lambda folder: save(folder, generator, corpus.tokenizer, Sentence()))


def store_checkpoint(recipe: Recipe, run: Path, step: int, directory: Path) -> None:
    """Write the model of a checkpoint of a run to a model directory."""
    corpus = open_corpus(recipe)
    fresh = built(recipe, corpus.tokenizer, known=RunFolder(run).start().get("model"))
    saved = Checkpoints(run / "checkpoints").read(step)
    kind = "average" if "average" in saved.tensors else "model"
    for name, parameter in fresh.learner.named_parameters():
        parameter.data.copy_(saved.tensors[kind][name])
    _store(directory, recipe, replace(fresh, generator=None), corpus)


def _card(recipe: Recipe, corpus: Corpus | Mixture, summary: dict[str, Any]) -> str:
    """Return the section of the model card on how the model was trained."""
    scores = {key: value for key, value in summary.items() if isinstance(value, float)}
    rows = "\n".join(f"| {key} | {value:.6g} |" for key, value in scores.items())
    run = f"{summary['steps']:,} steps over {summary['tokens']:,} tokens"
    return f"""
## Training

{run} of a corpus of {corpus.tokens:,} tokens in {corpus.documents:,} documents.

| measure | |
| --- | --- |
{rows}

```toml
{recipe.toml().strip()}
```
"""


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
    train, stages = recipe.train, recipe.lengths()
    ends = list(accumulate(steps for _, _, steps in stages[:-1]))
    examples = cache(lambda length: examples_of(recipe, corpus, length, segments))

    def request(step: int) -> StepRequest:
        length, tokens, _ = stages[bisect(ends, step)]
        fill = fill_of(recipe, length, tokens, ranks)
        if train.ramp_from and step < train.ramp_steps:
            tokens = train.ramp_from + (tokens - train.ramp_from) * step // train.ramp_steps
        return StepRequest(examples(length), tokens, min(train.micro_tokens, tokens), fill)

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
    try:
        device = device_named(recipe.train.device)
    except RuntimeError as error:
        raise BertsmithError(f"train.device = {recipe.train.device!r} is not a device") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("train.device is cuda, but torch finds no GPU")
    return device
