"""Hidden states of texts at any depth: one vector for each token, word, span or text."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import BUDGETS, grouped, packed, token_bar
from bertsmith.infer.spans import words
from bertsmith.infer.windows import Window, clearest
from bertsmith.model import Trace
from bertsmith.tokenizer import Encoding

Floats = NDArray[np.float32]
Span = tuple[int, int]
Spans = Sequence[Sequence[Span]] | None  # of each text
POOLS = (None, "words", "mean")
CHUNK = 1024  # texts whose tokens are in memory at once
MOST = 2**25  # numbers of states in memory at once: 128 MiB


@dataclass(frozen=True)
class TextStates:
    """The states of one text; `vectors` is (rows, D), or (depths, rows, D) for several depths."""

    text: str
    spans: list[Span]  # text[start:end] of each row; special tokens are empty
    vectors: Floats

    @property
    def pieces(self) -> list[str]:
        """The characters of each row."""
        return [self.text[start:end] for start, end in self.spans]


def hidden_states(
    loaded: LoadedModel,
    texts: Iterable[str],
    depths: Sequence[int] | None = None,
    pool: str | None = None,
    special: bool = False,
    spans: Spans = None,
) -> Iterator[TextStates]:
    """Yield the states of each text in order, as `hidden_state_steps` computes them."""
    steps = hidden_state_steps(loaded, texts, depths, pool, special, spans)
    return (one for one in steps if one is not None)


def hidden_state_steps(
    loaded: LoadedModel,
    texts: Iterable[str],
    depths: Sequence[int] | None = None,
    pool: str | None = None,
    special: bool = False,
    spans: Spans = None,
) -> Iterator[TextStates | None]:
    """Yield the states of each text in order: (depths, rows, D), in bounded memory.

    Depth 0 is the output of the embeddings, depth k that of block k; by default all depths. A row
    is a token, the mean over a word's tokens (`pool="words"`), over all tokens of the text
    (`pool="mean"`), or over each of the text's `spans`. Special tokens are left out unless
    `special`. A span without tokens has NaN. Long texts are read in overlapping windows. Before
    the first and after each batch, when others may use the model, it yields None.
    """
    if pool not in POOLS:
        raise BertsmithError(f'pool must be None, "words" or "mean", not {pool!r}')
    if spans is not None and pool is not None:
        raise BertsmithError("give spans or pool, not both")
    chosen = all_depths(loaded) if depths is None else [check_depth(loaded, d) for d in depths]
    numbered, start = iter(texts), 0
    each = len(chosen) * loaded.checkpoint.config.width  # numbers of a row
    while chunk := list(islice(numbered, CHUNK)):
        asked = None if spans is None else spans[start : start + len(chunk)]
        jobs = _jobs(loaded, chunk, pool, special, asked)
        for group in grouped(jobs, lambda job: len(job.rows) * each, MOST):
            yield from _run(loaded, group, chosen)
        start += len(chunk)


def all_depths(loaded: LoadedModel) -> list[int]:
    """Every depth of a model: the embeddings, and each of its blocks."""
    return list(range(len(loaded.checkpoint.config.plan) + 1))


def check_depth(loaded: LoadedModel, depth: Any) -> int:
    """Return a depth of the model; raise an error for a depth that it does not have."""
    last = all_depths(loaded)[-1]
    if type(depth) is not int or not 0 <= depth <= last:
        raise BertsmithError(
            f"depth is {depth!r}, but this model has 0 (embeddings) to {last} (last block)"
        )
    return depth


@dataclass(frozen=True)
class _Job:
    """A text, its windows, and for each row the places (window, row in it) that are averaged."""

    text: str
    spans: list[Span]
    windows: list[Window]
    rows: list[list[tuple[int, int]]]


class _WindowRows(NamedTuple):
    """A window with what it adds to the rows of its text."""

    job: int
    window: Window
    rows: list[int]  # of the text, to which it adds
    source: list[int]  # rows of the window
    target: list[int]  # for each of them the place in `rows`
    weight: list[float]


def _jobs(
    loaded: LoadedModel, texts: Sequence[str], pool: str | None, special: bool, spans: Spans
) -> list[_Job]:
    windower = loaded.windower()
    jobs = []
    for number, (text, encoding) in enumerate(zip(texts, loaded.encode(texts), strict=True)):
        windows = windower.single(number, encoding.ids)
        best = clearest([window.tokens for window in windows], len(encoding))
        places = [(at, windows[at].row(token)) for token, at in enumerate(best)]
        first, last = windows[0], windows[-1]
        before = [(0, row) for row in range(first.first)]
        end = last.first + len(last.tokens)
        after = [(len(windows) - 1, row) for row in range(end, len(last.ids))]
        if spans is not None or pool == "words":
            starts_and_ends = ((start, end) for _, start, end in words(text, encoding))
            owned = list(starts_and_ends if spans is None else spans[number])
            inside = tokens_inside(encoding, owned)
            rows = [[places[token] for token in tokens] for tokens in inside]
        elif pool == "mean":
            owned = [(0, len(text))]
            rows = [[*before, *places, *after] if special or not places else places]
        elif special:
            owned = [(0, 0)] * len(before) + [*encoding.offsets] + [(len(text),) * 2] * len(after)
            rows = [[place] for place in (*before, *places, *after)]
        else:
            owned, rows = [*encoding.offsets], [[place] for place in places]
        jobs.append(_Job(text, owned, windows, rows))
    return jobs


def tokens_inside(encoding: Encoding, spans: Sequence[Span]) -> Iterator[range]:
    """For each span the tokens that share a character with it."""
    starts = [start for start, _ in encoding.offsets]
    ends = [end for _, end in encoding.offsets]
    for start, end in spans:
        yield range(bisect_right(ends, start), bisect_left(starts, end))


def _run(
    loaded: LoadedModel, jobs: Sequence[_Job], depths: Sequence[int]
) -> Iterator[TextStates | None]:
    """Read the windows that matter, longest first; hand the texts on in their order."""
    width = loaded.checkpoint.config.width
    states = [np.zeros((len(depths), len(job.rows), width), np.float32) for job in jobs]
    items = [item for number, job in enumerate(jobs) for item in _window_rows(number, job)]
    lengths = [len(item.window.ids) for item in items]
    plan = list(packed(lengths, loaded.budget or BUDGETS.get(loaded.device.type, 2048)))
    yield None  # the model was not needed so far
    with token_bar(sum(lengths), len(plan), loaded.progress) as advance:
        for chosen in plan:
            _add_states(loaded, [items[number] for number in chosen], depths, states)
            yield None
            advance(sum(lengths[number] for number in chosen))
    for job, vectors in zip(jobs, states, strict=True):
        vectors[:, [not places for places in job.rows]] = np.nan
        yield TextStates(job.text, job.spans, vectors)


def _add_states(
    loaded: LoadedModel, group: Sequence[_WindowRows], depths: Sequence[int], states: list[Floats]
) -> None:
    """Add what the windows of a batch contribute to the states of their texts."""
    batch = Batch.of([one.window.ids for one in group], [one.window.segments for one in group])
    starts = accumulate(batch.layout.lengths, initial=0)
    source, target, weight, count = [], [], [], 0
    for start, item in zip(starts, group, strict=False):
        source += [start + row for row in item.source]
        target += [count + place for place in item.target]
        weight += item.weight
        count += len(item.rows)
    device, trace = loaded.device, Trace(states=True)
    picked, place = torch.tensor(source, device=device), torch.tensor(target, device=device)
    scale = torch.tensor(weight, device=device)[:, None]
    with torch.inference_mode():
        final = loaded.model.encoder(batch.to(device), trace).last
        for number, depth in enumerate(depths):
            hidden = final if depth == all_depths(loaded)[-1] else trace.hidden[depth]
            pooled = torch.zeros(count, hidden.shape[1], device=device)
            pooled.index_add_(0, place, hidden[picked].float() * scale)
            rows, done = pooled.cpu().numpy(), 0
            for item in group:
                states[item.job][number, item.rows] += rows[done : done + len(item.rows)]
                done += len(item.rows)


def _window_rows(number: int, job: _Job) -> list[_WindowRows]:
    """The windows of a text that hold anything of its rows."""
    items: dict[int, _WindowRows] = {}
    for row, places in enumerate(job.rows):
        for at, source in places:
            item = items.setdefault(at, _WindowRows(number, job.windows[at], [], [], [], []))
            if not item.rows or item.rows[-1] != row:
                item.rows.append(row)
            item.source.append(source)
            item.target.append(len(item.rows) - 1)
            item.weight.append(1 / len(places))
    return list(items.values())
