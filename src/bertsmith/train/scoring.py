"""What a pre-training run is scored on: held-out text, sets by name, and a probe task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.checkpoint.assemble import substitute
from bertsmith.corpus import Corpus, Manifest, Mixture
from bertsmith.corpus.corpus import demand_same_vocabulary
from bertsmith.corpus.unigram import unigram_cross_entropy
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples import Examples
from bertsmith.examples.source import UnfitCorpusError
from bertsmith.model import Model
from bertsmith.objectives import MultiObjective
from bertsmith.train.building import corpus_folders, examples_of, open_corpus, open_folder
from bertsmith.train.distributed import Ranks
from bertsmith.train.evaluate import held_out, pseudo_perplexity
from bertsmith.train.loop import Scoring
from bertsmith.train.precision import Precision, supported
from bertsmith.train.probe import Probe
from bertsmith.train.recipe import Recipe


@dataclass(frozen=True)
class HeldOut:
    """What a run is scored on and never trained on."""

    main: Examples | None  # of its own corpora
    named: dict[str, Examples]
    probe: Probe | None
    unfit: str  # why there is no main set although text was held out
    baseline: dict[str, float]  # the unigram loss, if tokens are predicted


def open_held_out(recipe: Recipe, corpus: Corpus | Mixture, segments: int) -> HeldOut:
    """Open all that a run is scored on; what is missing is an error."""
    part, length = recipe.evaluate, recipe.lengths()[-1][0]
    main, unfit, folders = None, "", corpus_folders(recipe)
    kept = any(Manifest.read(folder).splits["held_out"].documents for folder in folders)
    if kept and (part.tokens or part.pseudo):
        try:
            held = open_corpus(recipe, "held_out")
            main = examples_of(recipe, held, length, segments)
        except UnfitCorpusError as error:
            unfit = f"held-out text is not evaluated: {error}"
    named = {}
    for name, path in part.held_out.items():
        other = _named_corpus(Path(path), folders, f"evaluate.held_out.{name}")
        demand_same_vocabulary(corpus, other)
        named[name] = examples_of(recipe, other, length, segments, evenly=True)
    if (part.patience or part.keep == "best") and not (main or named):
        key = "patience" if part.patience else "keep"
        raise BertsmithError(
            f"{corpus.directory}: has no held-out text, which evaluate.{key} needs; prepare the"
            f" corpus with {setting_name('held_out')}"
        )
    probe = Probe.read(recipe.probe, corpus.tokenizer, length) if recipe.probe.data else None
    baseline = {}
    if {"masked_lm", "following_lm", "replaced"} & recipe.objectives.keys():
        text = None if main is None else main.source.corpus
        baseline["unigram_entropy"] = unigram_cross_entropy(corpus, text)
    return HeldOut(main, named, probe, unfit, baseline)


def _named_corpus(path: Path, trained: dict[Path, float], key: str) -> Corpus:
    """A corpus that is scored: its held-out split, or if it has none and is not trained on, all."""
    if not path.exists():
        raise BertsmithError(f"{key}: {path}: no such folder")
    corpus = open_folder(path, "train")
    if corpus.manifest.splits["held_out"].documents:
        return open_folder(path, "held_out")
    if any(path.samefile(folder) for folder in trained):
        raise BertsmithError(f"{key}: {path}: the run is trained on it, and no text was held out")
    return corpus


def scoring(
    recipe: Recipe,
    held: HeldOut,
    learner: MultiObjective,
    module: nn.Module,
    plain: MultiObjective,
    ranks: Ranks,
) -> Scoring | None:
    """The evaluations of a run: losses on held-out text, filled masks, the probe task.

    `plain` is a copy of the learner without values, which is neither compiled nor sharded.
    """
    part = recipe.evaluate
    sets = ({"": held.main} if held.main else {}) | held.named
    if not (sets and part.tokens) and held.probe is None:
        return None

    def score(stopped: Callable[[], bool]) -> dict[str, Any] | None:
        row: dict[str, Any] = {}
        # Not compiled: every new batch size would trigger a compilation.
        eager = torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext()
        for name, examples in sets.items() if part.tokens else ():
            with eager:
                scores = held_out(
                    learner,
                    module,
                    examples,
                    tokens=part.tokens,
                    micro_tokens=recipe.train.micro_tokens,
                    ranks=ranks,
                    stopped=stopped,
                )
            if scores is None:
                return None
            samples = scores.pop("samples", None)
            row |= {_key(term, name): value for term, value in scores.items()}
            row |= {"samples": samples} if samples and not name else {}
        if held.probe is not None:
            row |= _probed(held.probe, recipe, learner, plain, ranks)
        return row | (held.baseline if held.main else {})

    def value(row: dict[str, Any]) -> float | None:
        """Minus the held-out loss: of all terms, by their weights."""
        terms = {key.removeprefix("held_out_").partition("/")[0] for key in row}
        losses = [
            row[_key(term, name)] * learner.weights.get(term, 1.0)
            for name in ([""] if held.main else held.named)
            for term in terms
            if _key(f"{term}_accuracy", name) in row
        ]
        return -sum(losses) if losses else None

    return Scoring(
        score,
        every=part.every,
        first=bool(recipe.model.start),  # what it could do before
        value=value,
        take="best" if part.keep == "best" else "none",
        ended=lambda best, _: 0 < part.patience <= best.waited,
    )


def _key(term: str, name: str) -> str:
    """The key of a score in the log; that of a named set ends with its name."""
    return f"held_out_{term}/{name}" if name else f"held_out_{term}"


def _probed(
    probe: Probe, recipe: Recipe, learner: MultiObjective, plain: MultiObjective, ranks: Ranks
) -> dict[str, float]:
    """The probe's accuracy, on the first rank with a copy of the weights: nothing is changed."""
    weights, accuracy = ranks.gather(dict(learner.named_parameters())), 0.0
    if ranks.first:
        fill(plain, weights)
        model, dtype = plain.model.to(ranks.device), _compute(recipe, ranks)
        accuracy = probe.accuracy(model, ranks.device, dtype)
    return {"probe": ranks.broadcast(accuracy), "probe_majority": probe.majority}


def _compute(recipe: Recipe, ranks: Ranks) -> torch.dtype:
    """The data type in which a run computes."""
    name = supported(recipe.train.precision, ranks.device)
    return Precision.of(name, ranks.device).compute


def fill(plain: MultiObjective, weights: dict[str, torch.Tensor]) -> None:
    """Give a copy of the learner these weights."""
    named = plain.named_parameters()
    substitute(plain, {parameter: nn.Parameter(weights[name]) for name, parameter in named})


def pseudo(recipe: Recipe, model: Model, ranks: Ranks, held: Examples | None) -> dict[str, float]:
    """The pseudo-perplexity of the stored model, if it is a masked LM."""
    if held is None or not recipe.evaluate.pseudo or "masked_lm" not in recipe.objectives:
        return {}
    perplexity = pseudo_perplexity(
        model,
        held,
        sequences=recipe.evaluate.pseudo,
        mask_id=held.source.tokenizer.mask_id or 0,
        device=ranks.device,
        most=recipe.train.micro_tokens,
        dtype=_compute(recipe, ranks),
    )
    return {} if perplexity is None else {"pseudo_perplexity": perplexity}
