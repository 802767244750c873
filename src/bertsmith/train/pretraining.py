"""Pre-training: a recipe and a corpus in, a model directory out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.checkpoint import Sentence, save
from bertsmith.checkpoint.assemble import substitute
from bertsmith.corpus import Corpus
from bertsmith.corpus.manifest import Manifest
from bertsmith.corpus.unigram import unigram_cross_entropy
from bertsmith.errors import BertsmithError
from bertsmith.examples import Examples
from bertsmith.examples.draw import Numbers
from bertsmith.examples.loader import StepRequest
from bertsmith.examples.source import UnfitCorpusError
from bertsmith.files import finite, write_json, write_text
from bertsmith.folders import marking, write_directory
from bertsmith.model import Model
from bertsmith.objectives import Contrastive, MultiObjective
from bertsmith.pages.runs import write_report
from bertsmith.store import differences
from bertsmith.train.activations import blocks_of
from bertsmith.train.building import Built, built, described, examples_of, hollow, open_corpus
from bertsmith.train.busy import DRAWS, Draw, demand_busy, fill_of
from bertsmith.train.compiling import compile_rows
from bertsmith.train.distributed import Ranks
from bertsmith.train.evaluate import held_out, pseudo_perplexity
from bertsmith.train.folder import RunFolder
from bertsmith.train.loop import Keeping, Replay, Scoring, Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision, supported
from bertsmith.train.recipe import MOST_STEPS, Recipe, checked, load_recipe, parsed
from bertsmith.train.replayed import can_replay, inputs_of
from bertsmith.train.state import Checkpoints
from bertsmith.train.step import allow_signals
from bertsmith.train.watch import MakeWatch, Watch, check_view, watcher

# Keys that older runs do not have; a teacher's objectives ask for one.
LATER = {"teacher", "contrastive", "model.keep", "train.freeze", "train.layer_decay"}
LATER |= {"train.checkpointing", "evaluate.keep", "evaluate.patience", "checkpoint.film"}
LATER |= {"train.trained", "lora"}
STORED = {"model": "model", "report": "report.html"}  # results of a finished run
FILM = "film"  # the folder of weights at powers of two, if the recipe asks for them


def pretrain(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    show: str | MakeWatch | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train by a recipe, or the one of this name; the model is in `out`/model at the end.

    `resume` continues the run in `out` with its own recipe; a group of processes
    that torchrun restarts resumes automatically. `show` is "live", "lines", "none" or a function
    that returns a `Watch`; by default "live" on a terminal, else "lines". Returns the summary;
    `finished` is False if a signal stopped the run.
    """
    check_view(show, tensorboard)
    recipe = load_recipe(recipe) if isinstance(recipe, str | Path) else recipe
    ranks = Ranks(_device(recipe))
    with ranks.process_group(), ExitStack() as stack:
        folder = RunFolder(out, writes=ranks.first)
        begun = ranks.broadcast(folder.begun())
        # torchrun starts the processes again: RESTART_COUNT stays 0 if a machine came or went.
        again = ranks.restarts > 0 or (ranks.job != "" and folder.start().get("job") == ranks.job)
        resume = resume or (begun and ranks.broadcast(again))
        given = recipe
        if resume:
            recipe = _same(recipe, folder)
            ranks.run_on_first(lambda: stack.enter_context(folder.held()))
        else:
            ranks.run_on_first(folder.demand_free)
        corpus = open_corpus(recipe)
        torch.manual_seed(recipe.train.seed)
        if recipe.train.threads:
            torch.set_num_threads(recipe.train.threads)
        known = _known(folder) if resume else None
        made = built(recipe, corpus.tokenizer, known=known)
        request = _requests(recipe, corpus, made.checkpoint.config.segments, ranks.count)
        # Reject an unsuitable corpus, or one that leaves ranks idle, before writing anything.
        demand_busy(recipe, ranks.count, _step_lengths(recipe, corpus, request(0)))
        if not resume:
            _demand_held_out(recipe)
            ranks.run_on_first(lambda: stack.enter_context(folder.held()))
            start = {"job": ranks.job, "model": recipe.model.start and described(made.checkpoint)}
            start = {key: value for key, value in start.items() if value}
            ranks.run_on_first(lambda: folder.make(recipe.toml(), start))
        watch = watcher(show if ranks.first else "none", folder, recipe, made, tensorboard)
        with watch:
            for line in _differing(given, recipe):
                watch.say(f"continuing with the run's own recipe: {line}")
            return _train(recipe, folder, ranks, corpus, made, request, watch, resume)


def _known(folder: RunFolder) -> dict[str, Any] | None:
    """The model that the run continues, without its values, if a checkpoint has those."""
    started = bool(Checkpoints(folder.path / "checkpoints").steps())
    return folder.start().get("model") if started else None


def _train(
    recipe: Recipe,
    folder: RunFolder,
    ranks: Ranks,
    corpus: Corpus,
    made: Built,
    request: Callable[[int], StepRequest],
    watch: Watch,
    resume: bool,
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
    held, unfit = _held_out(recipe, made.checkpoint.config.segments)
    if unfit:
        watch.say(unfit)
    baseline = _baseline(recipe, corpus, held)
    watch.unigram = baseline.get("unigram_entropy", 0.0)
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
        scoring=_scoring(recipe, held, learner, module, ranks, baseline),
        replay=Replay(inputs_of, advice="set train.graphs=false") if replay else None,
        workers=recipe.data.workers,
        rate="train.learning_rate",
    )
    if resume and trainer.resume():
        if trainer.progress.corpus != corpus.fingerprint():
            raise BertsmithError(f"{corpus.directory}: the run was started with another corpus")
    else:
        trainer.progress.corpus = corpus.fingerprint()
        _note_start(trainer, recipe, made, request(0), name)
        trainer.ledger.note(unfit, bool(unfit))
    spent = trainer.progress.ended or trainer.done() >= 1
    if trainer.progress.closed and spent and (ended := folder.summary()):
        watch.say(f"{folder.path}: this run has ended at step {trainer.progress.step}")
        return ended
    if name != recipe.train.precision:
        watch.say(f"this device emulates {recipe.train.precision}: the run computes in {name}")
    finished = trainer.run()
    summary = finite({"finished": finished, **_summary(trainer, ranks, name), **baseline})
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
    folder.keep_ledger(trainer.ledger)
    return _finish(recipe, folder, ranks, corpus, plain, trainer, watch, held, summary)


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
    corpus: Corpus,
    plain: Built,
    trainer: Trainer,
    watch: Watch,
    held: Examples | None,
    summary: dict[str, Any],
) -> dict[str, Any]:
    """Save and evaluate the model, and write the summary and the report of the run."""
    corpus.sums.finish()  # no model of a damaged corpus
    if trainer.best.weights:
        trainer.best.restore(trainer.named)
    else:
        trainer.averages.apply()
    weights = ranks.gather(dict(trainer.learner.named_parameters()))
    summary |= {name: str(folder.path / file) for name, file in STORED.items()}
    if ranks.first:
        learner = plain.learner
        values = {empty: nn.Parameter(weights[name]) for name, empty in learner.named_parameters()}
        substitute(learner, values)
        summary |= _measures(recipe, learner.model.to(ranks.device), ranks, held)
        _store(folder.path / "model", plain, corpus, _card(recipe, corpus, summary))
        write_json(folder.path / "summary.json", summary)
        write_report(folder.path)
        for line in trainer.ledger.lines():
            watch.say(line)
    ranks.barrier()
    return summary


def _baseline(recipe: Recipe, corpus: Corpus, held: Examples | None) -> dict[str, float]:
    """Return the unigram loss as a baseline, if tokens are predicted."""
    if not {"masked_lm", "following_lm", "replaced"} & recipe.objectives.keys():
        return {}
    other = None if held is None else held.source.corpus
    return {"unigram_entropy": unigram_cross_entropy(corpus, other)}


def _measures(
    recipe: Recipe, model: Model, ranks: Ranks, held: Examples | None
) -> dict[str, float]:
    """Return the pseudo-perplexity of the saved model, if it is a masked LM."""
    if held is None or not recipe.evaluate.pseudo or "masked_lm" not in recipe.objectives:
        return {}
    mask_id = held.source.tokenizer.mask_id
    perplexity = pseudo_perplexity(
        model,
        held,
        sequences=recipe.evaluate.pseudo,
        mask_id=mask_id if mask_id is not None else 0,
        device=ranks.device,
        most=recipe.train.micro_tokens,
        half=supported(recipe.train.precision, ranks.device) != "float32",
    )
    return {} if perplexity is None else {"pseudo_perplexity": perplexity}


def _store(directory: Path, made: Built, corpus: Corpus, about: str = "") -> None:
    """Write the model directory, and one for the generator if any, each all at once.

    `about` is added to the model card.
    """
    checkpoint = made.checkpoint
    kept = {kind: checkpoint.model.heads[kind] for kind in checkpoint.entries}
    plain = replace(checkpoint, model=Model(checkpoint.model.encoder, kept).cpu().eval())
    contrastive = any(isinstance(one, Contrastive) for one in made.learner.objectives)

    def fill(part: Path) -> None:
        with marking(part):
            save(part, plain, corpus.tokenizer, Sentence(normalise=contrastive))
            card = part / "README.md"
            write_text(card, card.read_text("utf-8") + about)

    write_directory(directory, fill)
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


def _card(recipe: Recipe, corpus: Corpus, summary: dict[str, Any]) -> str:
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
    recipe: Recipe, corpus: Corpus, segments: int, ranks: int
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


def _step_lengths(recipe: Recipe, corpus: Corpus, first: StepRequest) -> Draw:
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


def _held_out(recipe: Recipe, segments: int) -> tuple[Examples | None, str]:
    """Return held-out samples, if the corpus has any; or why none fit these objectives."""
    if not recipe.evaluate.tokens and not recipe.evaluate.pseudo:
        return None, ""
    if not Manifest.read(Path(recipe.data.corpus)).splits["held_out"].documents:
        return None, ""
    corpus = open_corpus(recipe, "held_out")
    try:
        return examples_of(recipe, corpus, recipe.lengths()[-1][0], segments), ""
    except UnfitCorpusError as error:
        return None, f"held-out text is not evaluated: {error}"


def _demand_held_out(recipe: Recipe) -> None:
    """Refuse to choose weights by held-out text that the corpus has not."""
    part, held = recipe.evaluate, Manifest.read(Path(recipe.data.corpus)).splits["held_out"]
    if (part.patience or part.keep == "best") and not held.documents:
        key = "patience" if part.patience else "keep"
        raise BertsmithError(
            f"{recipe.data.corpus}: has no held-out text, which evaluate.{key} needs; prepare the"
            " corpus with --held-out"
        )


def _scoring(
    recipe: Recipe,
    held: Examples | None,
    learner: MultiObjective,
    module: nn.Module,
    ranks: Ranks,
    baseline: dict[str, float],
) -> Scoring | None:
    """The evaluation on held-out text: scores, filled masks and the unigram loss."""
    part = recipe.evaluate
    if held is None or not part.tokens:
        return None

    def score(stopped: Callable[[], bool]) -> dict[str, Any] | None:
        # Not compiled: every new batch size would trigger a compilation.
        plain = torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext()
        with plain:
            scores = held_out(
                learner,
                module,
                held,
                tokens=part.tokens,
                micro_tokens=recipe.train.micro_tokens,
                ranks=ranks,
                stopped=stopped,
            )
        if scores is None:
            return None
        samples = scores.pop("samples", None)
        row = {f"held_out_{name}": value for name, value in scores.items()} | baseline
        return row | ({"samples": samples} if samples else {})

    def value(row: dict[str, Any]) -> float:
        """Minus the held-out loss: of all terms, by their weights."""
        terms = [name for name in row if f"{name}_accuracy" in row]
        weights = {name: learner.weights.get(name.removeprefix("held_out_"), 1.0) for name in terms}
        return -sum(row[name] * weights[name] for name in terms)

    return Scoring(
        score,
        every=part.every,
        first=bool(recipe.model.start),  # what it could do before
        value=value,
        take="best" if part.keep == "best" else "none",
        ended=lambda best, _: 0 < part.patience <= best.waited,
    )


def _same(recipe: Recipe, folder: RunFolder) -> Recipe:
    """Return the recipe that the run was started with; a truncated one is an error."""
    where = str(folder.path / "recipe.toml")
    values = parsed(folder.recipe(), where)
    # All keys were written: a default in place of a lost one would change the run.
    known = {key: value for key, value in Recipe().model_dump().items() if key != "stages"}
    lost = [key for key in known if key not in values and key not in LATER]
    lost += [
        f"{key}.{own}"
        for key, table in known.items()
        if isinstance(table, dict) and key in values and key != "objectives"
        for own in table
        if own not in values[key] and f"{key}.{own}" not in LATER
    ]
    if lost:
        raise BertsmithError(f"{where}: damaged, since {lost[0]} is missing")
    begun = checked(values, where)
    # Device and threads may change when a run is resumed.
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
    """Return the keys in which a recipe differs from that of the run."""
    if not given.data.corpus:  # use the corpus of the run
        corpus = {"corpus": begun.data.corpus}
        given = given.model_copy(update={"data": given.data.model_copy(update=corpus)})
    pairs = differences(*(one.model_dump(exclude={"about"}) for one in (begun, given)))
    return [f"{key} is {own!r}, not {new!r}" for key, own, new in pairs]


def _device(recipe: Recipe) -> torch.device:
    named = recipe.train.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(named)
    except RuntimeError as error:
        raise BertsmithError(f"train.device = {named!r} is not a device") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("train.device is cuda, but torch finds no GPU")
    return device
