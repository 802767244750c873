"""What a pre-training run is scored on: held-out text, sets by name, and a probe task."""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.checkpoint.assemble import substitute
from bertsmith.corpus import Corpus, Manifest, Mixture
from bertsmith.corpus.corpus import demand_same_vocabulary
from bertsmith.corpus.records import records
from bertsmith.corpus.unigram import unigram_cross_entropy
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples import Example, Examples
from bertsmith.examples.sources import UnfitCorpusError
from bertsmith.model import Model
from bertsmith.model.pooling import mean
from bertsmith.objectives import MultiObjective
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.building import corpus_folders, examples_of, open_corpus, open_folder
from bertsmith.train.distributed import Ranks
from bertsmith.train.loop import Scoring
from bertsmith.train.precision import Precision, supported
from bertsmith.train.recipe import ProbePart, Recipe
from bertsmith.train.step import seed_step

AT_ONCE = 16384  # maximum number of tokens in a pass
SAMPLES, MASKS = 3, 4  # texts whose filled masks are logged, and masks of each
FOLDS = 5  # each row is scored by a classifier that was fitted on the other folds
PENALTY = 0.1  # of the squared weights, beside the mean squared error on standardised states
ALONE = 2**18  # maximum number of tokens that pseudo-perplexity reads
AROUND = 12  # tokens shown after the last mask


def held_out(
    learner: Any,
    module: nn.Module,
    examples: Examples,
    *,
    tokens: int,
    micro_tokens: int,
    ranks: Ranks,
    stopped: Callable[[], bool],
) -> dict[str, Any] | None:
    """Return losses and accuracies on a fixed set of held-out samples; None when stopped.

    At most one epoch is read. With masked LM, `samples` shows how some masks were filled.
    """
    plan = examples.plan(0, tokens=tokens, micro_tokens=min(micro_tokens, AT_ONCE))
    (batches,) = plan.micro_batches
    once = (batch[batch < examples.source.count] for batch in batches)
    batches = [batch for batch in once if len(batch)]
    sums: dict[str, Tensor] = {}
    counts: dict[str, float] = {}
    samples: list[dict[str, Any]] = []
    rounds = -(-len(batches) // ranks.count)
    module.eval()
    try:
        for number in range(ranks.rank, rounds * ranks.count, ranks.count):
            if ranks.sum([stopped()])[0]:
                return None
            active = number < len(batches)
            example = examples.make(batches[number if active else 0])
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                seed_step(number, ranks.device)
                own = learner.counts(example)
                _, pairs = module(example.to(ranks.device), own)
            for name, pair in pairs.items():
                sums[name] = sums.get(name, 0.0) + pair.cpu().double() * float(active)
                counts[name] = counts.get(name, 0) + (own.get(name, 0) if active else 0)
            if number == 0:
                samples = filled_masks(learner, example, examples)
    finally:
        module.train()
    total = iter(ranks.sum([float(x) for name in sums for x in (*sums[name], counts[name])]))
    scores: dict[str, Any] = {}
    for name, loss, correct, count in zip(sums, total, total, total, strict=True):
        if not count:  # a ratio: denominator and numerator
            scores[name] = correct / max(loss, 1)
            continue
        scores[name] = loss / count
        scores[f"{name}_accuracy"] = correct / count
    return scores | ({"samples": samples} if samples else {})


def filled_masks(learner: Any, example: Example, examples: Examples) -> list[dict[str, Any]]:
    """Return some texts of the last pass, with the most probable tokens for their masks."""
    tokenizer, mask_id = examples.source.tokenizer, examples.source.tokenizer.mask_id

    def token(id: Tensor) -> str:
        # Embedding tables are padded beyond the vocabulary.
        return tokenizer.token(int(id)) if int(id) < tokenizer.size else "[unused]"

    best = [objective.best for objective in learner.objectives if objective.best is not None]
    if not best or mask_id is None:
        return []
    probabilities, ids = (tensor.cpu() for tensor in best[0])
    samples: list[dict[str, Any]] = []
    seen, bounds = example.batch.ids, example.batch.layout.boundaries.tolist()
    for first, last in pairwise(bounds[: example.samples + 1]):
        inside = (example.rows >= first) & (example.rows < last)
        masks = (inside & (seen[example.rows] == mask_id)).nonzero().flatten()[:MASKS]
        if not len(masks) or len(samples) == SAMPLES:
            continue
        # Masks beyond the first few are shown as the original tokens.
        shown = seen.clone()
        shown[example.rows[inside]] = example.targets[inside]
        shown[example.rows[masks]] = mask_id
        end = min(last, int(example.rows[masks[-1]]) + AROUND)
        pairs = (zip(probabilities[mask], ids[mask], strict=True) for mask in masks)
        guesses = [[[token(id), round(float(p), 3)] for p, id in pair] for pair in pairs]
        targets = [token(example.targets[mask]) for mask in masks]
        text = tokenizer.decode(shown[first + 1 : end].tolist(), skip_special=False)
        samples.append({"text": text, "targets": targets, "guesses": guesses})
    return samples


@torch.no_grad()
def pseudo_perplexity(
    model: Model,
    examples: Examples,
    *,
    sequences: int,
    device: torch.device,
    most: int,
    dtype: torch.dtype = torch.float32,
) -> float | None:
    """exp of the mean loss when each token alone is masked (Salazar et al. 2020).

    At most ALONE tokens are read: of large or long samples every second token or fewer.
    None if all tokens are special or unknown.
    """
    source = examples.source
    texts = examples.sequences(np.arange(min(sequences, source.count)))
    special = torch.tensor(sorted(source.tokenizer.special_ids))  # unknown tokens among them
    total, count = 0.0, 0
    model.eval()
    rows = np.split(texts.ids, np.cumsum(texts.lengths)[:-1])
    segments = np.split(texts.segments, np.cumsum(texts.lengths)[:-1])
    for ids, segment in zip(rows, segments, strict=True):
        row = torch.from_numpy(ids)
        places = (~torch.isin(row, special)).nonzero().flatten()
        room = max(1, ALONE // (len(rows) * len(row)))
        places = places[:: max(1, -(-len(places) // room))]
        for some in places.split(max(1, most // len(row))) if len(places) else ():
            numbers = torch.arange(len(some))
            copies = row.repeat(len(some), 1)
            copies[numbers, some] = source.tokenizer.mask_id or 0
            batch = Batch.of(copies.tolist(), [segment.tolist()] * len(some)).to(device)
            where = (numbers * len(row) + some).to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
                logits = model(batch, "masked_lm", where).float()
            loss = nn.functional.cross_entropy(logits, row[some].to(device), reduction="sum")
            total, count = total + float(loss), count + len(some)
    model.train()
    return math.exp(min(total / count, 50.0)) if count else None


@dataclass(frozen=True)
class Probe:
    """Labelled texts, as ids."""

    texts: list[list[int]]
    labels: Tensor  # (N,) int64
    pooling: str

    @classmethod
    def read(cls, part: ProbePart, tokenizer: Tokenizer, length: int) -> Self:
        """Read the first rows of a file; texts are cut to `length` tokens."""
        rows = list(islice(_rows(part), part.most))
        names = {label: number for number, label in enumerate(sorted({row[1] for row in rows}))}
        if len(names) < 2 or len(rows) < 2 * FOLDS:
            needed = f"a probe needs {2 * FOLDS} texts and two labels"
            raise BertsmithError(f"{part.data}: {needed}; it has {len(rows)} and {len(names)}")
        special = tokenizer.special_count()
        plain = tokenizer.encode_ids([text for text, _ in rows])
        texts = [tokenizer.build(ids[: length - special])[0] for ids in plain]
        return cls(texts, torch.tensor([names[label] for _, label in rows]), part.pooling)

    @property
    def majority(self) -> float:
        """The accuracy of the most frequent label."""
        return float(self.labels.bincount().max()) / len(self.labels)

    @torch.no_grad()
    def accuracy(self, model: Model, device: torch.device, dtype: torch.dtype) -> float:
        """Cross-validated accuracy of linear classifiers on the model's states."""
        states = self._states(model.eval(), device, dtype)
        targets = torch.nn.functional.one_hot(self.labels).double()
        fold, correct = torch.arange(len(states)) % FOLDS, 0
        for number in range(FOLDS):
            rest, own = fold != number, fold == number
            center, scale = states[rest].mean(0), states[rest].std(0).clamp_min(1e-6)
            x, others = (states[rest] - center) / scale, (states[own] - center) / scale
            means = targets[rest].mean(0)
            penalty = PENALTY * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
            weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (targets[rest] - means))
            correct += int(((others @ weights + means).argmax(-1) == self.labels[own]).sum())
        return correct / len(states)

    def _states(self, model: Model, device: torch.device, dtype: torch.dtype) -> Tensor:
        """A vector for each text (N, D), as float64 on the CPU."""
        rows: list[Tensor] = []
        step = max(1, AT_ONCE // max(map(len, self.texts)))
        for start in range(0, len(self.texts), step):
            batch = Batch.of(self.texts[start : start + step]).to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
                states = model.encoder(batch).last.float()
            first = states[batch.layout.first]
            rows.append(mean(states, batch.layout) if self.pooling == "mean" else first)
        return torch.cat(rows).cpu().double()


def _rows(part: ProbePart) -> Iterator[tuple[str, str]]:
    """The text and the label of each row of a file."""
    columns: list[str] = []
    for number, row in enumerate(records(Path(part.data)), 1):
        if isinstance(row, list) and not columns:
            columns = row
            continue
        cells = dict(zip(columns, row, strict=False)) if isinstance(row, list) else row
        if not isinstance(cells, dict):
            known = ".csv, .tsv, .jsonl, .parquet"
            raise BertsmithError(f"{part.data}: a probe is a table of texts and labels: {known}")
        text, label = (cells.get(key) for key in (part.text, part.label))
        if not isinstance(text, str) or label is None:
            missing = part.label if isinstance(text, str) else part.text
            known = f"it has {', '.join(map(str, cells))}; set probe.text and probe.label"
            raise BertsmithError(f"{part.data}, row {number}: no {missing!r} ({known})")
        yield text, str(label)


@dataclass(frozen=True)
class HeldOut:
    """What a run is scored on and never trained on."""

    main: Examples | None  # of its own corpora
    by_name: dict[str, Examples]
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
            main = examples_of(recipe, open_corpus(recipe, "held_out"), length, segments)
        except UnfitCorpusError as error:
            unfit = f"held-out text is not evaluated: {error}"
    by_name = {}
    for name, path in part.held_out.items():
        other = _named_corpus(Path(path), folders, f"evaluate.held_out.{name}")
        demand_same_vocabulary(corpus, other)
        by_name[name] = examples_of(recipe, other, length, segments, evenly=True)
    if (part.patience or part.keep == "best") and not (main or by_name):
        key = "patience" if part.patience else "keep"
        fault = f"has no held-out text, which evaluate.{key} needs"
        advice = f"prepare the corpus with {setting_name('held_out')}"
        raise BertsmithError(f"{corpus.directory}: {fault}; {advice}")
    probe = Probe.read(recipe.probe, corpus.tokenizer, length) if recipe.probe.data else None
    baseline = {}
    if {"masked_lm", "following_lm", "replaced"} & recipe.objectives.keys():
        text = None if main is None else main.source.corpus
        baseline["unigram_entropy"] = unigram_cross_entropy(corpus, text)
    return HeldOut(main, by_name, probe, unfit, baseline)


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
    """The evaluations of a run; `plain` is a copy of the learner, not compiled or sharded."""
    part = recipe.evaluate
    sizes = {"tokens": part.tokens, "micro_tokens": recipe.train.micro_tokens}
    sets = ({"": held.main} if held.main else {}) | held.by_name
    if not (sets and part.tokens) and held.probe is None:
        return None

    def score(stopped: Callable[[], bool]) -> dict[str, Any] | None:
        row: dict[str, Any] = {}
        # Not compiled: every new batch size would trigger a compilation.
        eager = torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext()
        for name, examples in sets.items() if part.tokens else ():
            with eager:
                scores = held_out(learner, module, examples, ranks=ranks, stopped=stopped, **sizes)
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
        # In a fixed order: sums of floats depend on it, and those of a set vary from run to run.
        terms = sorted({key.removeprefix("held_out_").partition("/")[0] for key in row})
        losses = [
            row[_key(term, name)] * learner.weights.get(term, 1.0)
            for name in ([""] if held.main else held.by_name)
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
        device = ranks.device
        accuracy = probe.accuracy(plain.model.to(device), device, _compute(recipe, device))
    return {"probe": ranks.broadcast(accuracy), "probe_majority": probe.majority}


def _compute(recipe: Recipe, device: torch.device) -> torch.dtype:
    return Precision.of(supported(recipe.train.precision, device), device).compute


def fill(plain: MultiObjective, weights: dict[str, torch.Tensor]) -> None:
    """Give a copy of the learner these weights."""
    substitute(plain, {old: nn.Parameter(weights[name]) for name, old in plain.named_parameters()})


def pseudo(recipe: Recipe, model: Model, ranks: Ranks, held: Examples | None) -> dict[str, float]:
    """The pseudo-perplexity of the stored model, if it is a masked LM."""
    if held is None or not recipe.evaluate.pseudo or "masked_lm" not in recipe.objectives:
        return {}
    sizes = {"sequences": recipe.evaluate.pseudo, "most": recipe.train.micro_tokens}
    dtype = _compute(recipe, ranks.device)
    perplexity = pseudo_perplexity(model, held, device=ranks.device, dtype=dtype, **sizes)
    return {} if perplexity is None else {"pseudo_perplexity": perplexity}
