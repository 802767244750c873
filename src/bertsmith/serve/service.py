"""The service behind every route: texts → encoder passes in shared batches → results."""

import asyncio
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, TypeVar, cast

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import TextStates, all_depths, hidden_state_steps
from bertsmith.infer.windows import Window
from bertsmith.serve.access import Caller, Key
from bertsmith.serve.address import ADDRESSED
from bertsmith.serve.batcher import Job
from bertsmith.serve.drift import Drift
from bertsmith.serve.errors import ServeError
from bertsmith.serve.ids import ids_to_text
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Models, ServedModel
from bertsmith.settings.serving import ServingSettings
from bertsmith.tasks.embedding import EmbedRequest, Vectors, unit_vectors
from bertsmith.tasks.registry import USES
from bertsmith.tasks.use import Call, RequestBody
from bertsmith.tokenizer import Spelled

Result = TypeVar("Result")
INLINE = 4000  # characters tokenized on the event loop: faster than a thread switch
MOST_MASKS = 64  # masks in a request: each costs a probability for every token of the vocabulary
MOST_NUMBERS = 8_000_000  # hidden-state values in an answer
MOST_CHARACTERS = 20_000_000  # characters of all filled-in texts in an answer


Spans = list[tuple[int, int]]  # text[start:end] of each part that was read
PARTIAL = ("long texts cut", "masks read in a window of a long text")


def read_spans(
    bert: LoadedModel, texts: Sequence[str], windows: Sequence[Window], prompt: int = 0
) -> list[Spans]:
    """Return the characters of each text that were read, after a prompt of so many characters."""
    spans_of_texts: list[Spans] = [[(0, len(text))] for text in texts]
    if not any(bert.ledger.counts[what] for what in PARTIAL):
        return spans_of_texts
    spelled: Spelled = "mask" if bert.ledger.counts[PARTIAL[1]] else "text"
    token_ranges: dict[int, set[tuple[int, int]]] = {}
    for window in windows:
        token_ranges.setdefault(window.number, set()).add((window.tokens.start, window.tokens.stop))
    for number, ranges in token_ranges.items():
        if number >= len(texts):
            continue
        text = bert.sentence.prepared(texts[number]) if prompt else texts[number]
        encoded = bert.tokenizer.encode(text, special=False, spelled=spelled).offsets
        offsets = [(max(0, start - prompt), max(0, end - prompt)) for start, end in encoded]
        spans: Spans = []
        for start, stop in sorted(ranges):
            if start == stop:
                continue
            first = offsets[start][0] if start < len(offsets) else len(texts[number])
            last = offsets[min(stop, len(offsets)) - 1][1]
            begin = 0 if start == 0 else first
            end = len(texts[number]) if stop >= len(offsets) else last
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
        spans_of_texts[number] = spans
    return spans_of_texts


@dataclass(eq=False)
class Usage:
    """The cost of a request so far, which the gate adds to headers and metrics."""

    caller: Caller
    method: str
    path: str
    number: str  # the id of the request
    start: float = field(default_factory=perf_counter)
    route: str = ""
    model: str = ""
    sha: str | None = None  # of the files of the model
    seconds: float = 60.0  # that it may take
    until: float = math.inf  # when it times out, by the event loop's clock
    tokens: int = 0
    tokenise: float = 0.0
    wait: float = 0.0
    compute: float = 0.0
    read: list[Spans] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # if they are logged
    phases: list[tuple[str, float, float]] = field(default_factory=list)  # for traces

    @property
    def counts(self) -> dict[str, int]:
        """The tokens, as OpenAI and others count them."""
        return {"prompt_tokens": self.tokens, "total_tokens": self.tokens}

    def spend(self, tokens: int) -> None:
        """Count tokens; an error if the rate of the caller is used up."""
        self.tokens += tokens
        self.caller.spend("tokens", tokens)

    def phase(self, name: str, start: float, end: float) -> float:
        """Note what was done from when to when; return the seconds."""
        self.phases.append((name, start, end))
        return end - start


USAGE: ContextVar[Usage] = ContextVar("usage")


class ModelService:
    """All models, with the operations that routes share."""

    def __init__(
        self, models: Models, settings: ServingSettings, metrics: Metrics, keys: Sequence[Key] = ()
    ) -> None:
        own = [Key.of(settings.api_key)] if settings.api_key else []
        self.keys = [*keys, *own]  # without any, everyone may ask
        self.models, self.settings, self.metrics = models, settings, metrics
        self.drift = Drift(settings, metrics)
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="tokenizer")

    def close(self, remaining: Models | None = None) -> None:
        """Stop the workers of all models once their queues are empty, except those that remain."""
        batchers = {id(model.batcher) for model in remaining or ()}
        for model in self.models:
            if id(model.batcher) not in batchers:
                self.metrics.forget(model.name, model.batcher)
                model.batcher.close()
        self.threads.shutdown()

    async def ask(
        self, served: ServedModel, verb: str, request: RequestBody, long: str | None = None
    ) -> Any:
        """Return the answer to a request, as `Bert` gives it."""
        return await self.run(served, USES[verb].call(served.bert, request), long)

    async def run(self, served: ServedModel, call: Call, long: str | None = None) -> Any:
        """Run a request in shared batches."""
        texts = [*call.texts, *call.seconds]
        usage = self.begin(served, texts)
        self.check(texts, call.prompt)
        if call.letters > MOST_CHARACTERS:
            raise ServeError(413, "too many predictions in long texts for one response")
        characters = sum(map(len, texts)) + call.prompt * len(call.texts)
        bert = served.for_request(long or self.settings.long)
        steps = call.steps.steps(bert, *call.args)
        start = perf_counter()
        needed = await self.call(characters, lambda: next(steps))
        usage.tokenise += usage.phase("tokenize", start, perf_counter())
        tokens = sum(len(window.ids) for window in needed.windows)
        if tokens > (most := self.settings.max_tokens):
            message = f"the request has {tokens:,} tokens, at most {most:,} are accepted"
            raise ServeError(413, f"{message}: send less at once")
        if sum(len(window.masks) for window in needed.windows) > MOST_MASKS:
            raise ServeError(422, f"a request may have {MOST_MASKS} masks: send fewer at once")
        usage.spend(tokens)
        job = served.batcher.submit(needed, usage.caller.name)
        results = await self._wait(served, job)
        read = call.windowed or call.seconds or call.texts  # in windows where they are long

        def finish() -> tuple[Any, list[Spans]]:
            try:
                steps.send(results)
            except StopIteration as stop:
                return stop.value, read_spans(bert, read, needed.windows, call.prompt)
            raise AssertionError  # no task asks for a second pass

        value, spans = await self.call(characters, finish)
        usage.read += spans
        self.drift.add(served, needed.windows, call.texts, value)
        return value

    @property
    def addressed(self) -> list[ServedModel]:
        """The model that the address of the request names, else all models."""
        name = ADDRESSED.get()
        return [*self.models] if name is None else [self.models.get(name)]

    def usable(self, models: Iterable[ServedModel]) -> list[ServedModel]:
        """Those models that the caller may use; all if there is none, which are then refused."""
        candidates, may_use = [*models], USAGE.get().caller.may_use
        return [model for model in candidates if may_use(model.base)] or candidates

    def pick(self, name: str | None, ability: str) -> ServedModel:
        """Return the model of this name; without a name, the first usable one with the ability."""
        models = self.models
        served: ServedModel | None = None
        if name is not None:
            served = models.find(name) if models.any_name else models.get(name)
        if served is None:
            able = self.usable(model for model in models.current if ability in model.can)
            if not USES[ability].heads:  # every model can: prefer one that was trained for it
                able.sort(key=lambda model: model.task.verb != ability)
            if not able:
                raise ServeError(424, f"no model of this server can {ability}")
            return able[0]
        if ability not in served.can:
            can = ", ".join(served.can)
            raise ServeError(424, f"the model {name} cannot {ability}; it can {can}", param="model")
        return served

    def reranker(self, name: str | None) -> ServedModel:
        """Return the model of this name; without a name, the best of those that the caller may use.

        That is a cross-encoder, else a model without labels, whose vectors are compared, else a
        classifier with a label that may mean relevant.
        """

        def order(model: ServedModel) -> int:
            try:
                if model.pair_scores is None:
                    return 1 if model.task.head is None else 2
            except ServeError:
                return 4
            return 0 if model.cross_encoder else 3

        served = self.models.get(name) if name else min(self.usable(self.models), key=order)
        _ = served.pair_scores  # an error where the model cannot rank texts
        return served

    def begin(self, served: ServedModel, texts: Sequence[str]) -> Usage:
        """Note which model a request uses; one that its key does not allow is an error."""
        usage = USAGE.get()
        usage.caller.check_model(served.base)
        usage.model, usage.sha = served.name, served.sha
        if self.settings.log_texts:
            usage.texts += texts
        return usage

    async def alone(
        self,
        served: ServedModel,
        texts: Sequence[str],
        steps: Generator[None, None, Result],
        depths: int = 1,
    ) -> Result:
        """Run a call that has the model to itself for each step but the first, which prepares."""
        usage, start = self.begin(served, texts), perf_counter()
        self.check(texts)
        characters = sum(map(len, texts))
        ids = await self.call(characters, lambda: served.bert.token_ids(texts))
        tokens = sum(map(len, ids))
        if tokens * depths * served.bert.checkpoint.config.width > MOST_NUMBERS:
            raise ServeError(413, f"the states of {tokens:,} tokens are too many for one answer")
        usage.spend(tokens)
        await self.call(characters, lambda: next(steps))
        usage.tokenise += usage.phase("tokenize", start, perf_counter())
        job = served.batcher.submit_call(steps, tokens, usage.caller.name)
        usage.read += [[(0, len(text))] for text in texts]
        return cast(Result, await self._wait(served, job))

    async def states(
        self,
        served: ServedModel,
        texts: Sequence[str],
        depths: Sequence[int] | None = None,
        pool: str | None = None,
        special: bool = False,
        long: str | None = None,
    ) -> list[TextStates]:
        """Hidden states of tokens, words or texts: (depths, rows, D), by default the last depth."""
        bert = served.for_request(long or self.settings.long)
        chosen = depths or [all_depths(bert)[-1]]

        def steps() -> Generator[None, None, list[TextStates]]:
            rows = []
            for states in hidden_state_steps(bert, texts, chosen, pool, special):
                if states is None:
                    yield
                else:
                    rows.append(states)
            return rows

        return await self.alone(served, texts, steps(), len(chosen))

    async def _wait(self, served: ServedModel, job: Job) -> Any:
        """Wait for the results of a job; it is cancelled with the request."""
        usage = USAGE.get()
        try:
            results = await job.future
        except asyncio.CancelledError:
            served.batcher.cancel(job)
            raise
        except (BertsmithError, ServeError):
            raise
        except Exception as error:
            message = f"the model failed on this request: {type(error).__name__}: {one_line(error)}"
            raise ServeError(424, message) from error
        started = job.started or job.arrived
        usage.wait += usage.phase("queue", job.arrived, started)
        usage.phase("inference", started, perf_counter())
        usage.compute += job.seconds
        return results

    async def call(self, characters: int, call: Callable[[], Result]) -> Result:
        """Call a function of texts: directly if they are short, else in a thread."""
        if characters <= INLINE:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)

    async def texts(self, served: ServedModel, inputs: Any, *, framed: bool = False) -> list[str]:
        """Return one input or several as texts; see `ids_to_text` for token ids."""
        several = not isinstance(inputs, str) and not isinstance(inputs[0], int)
        rows = inputs if several else [inputs]
        self.check([""] * len(rows))
        tokenizer = served.bert.tokenizer
        size = sum(INLINE + len(row) for row in rows if not isinstance(row, str))

        def texts() -> list[str]:
            return [
                row if isinstance(row, str) else ids_to_text(tokenizer, row, framed=framed)
                for row in rows
            ]

        return await self.call(size, texts)

    def check(self, texts: Sequence[str], prompt: int = 0) -> None:
        """Raise an error for too many texts or characters, with a prompt before each text."""
        characters = sum(map(len, texts)) + prompt * len(texts)
        counts = {
            "texts": (len(texts), self.settings.max_inputs),
            "characters": (characters, self.settings.max_characters),
        }
        for what, (count, most) in counts.items():
            if count > most:
                raise ServeError(413, f"{count:,} {what}, at most {most:,} are accepted at once")

    # ------------------------------------------------------------------ what routes share

    async def embed(
        self,
        served: ServedModel,
        texts: Sequence[str],
        *,
        pooling: Literal["mean", "cls"] | None = None,
        normalise: bool | None = None,
        long: str | None = None,
        dimensions: int | None = None,
        prompt: str | None = None,
    ) -> Vectors:
        """A vector for every text; `prompt` replaces the model's own."""
        bert = served.bert
        if dimensions is not None:
            self.models.check_dimensions(served, dimensions)
        unit = bert.sentence.normalise if normalise is None else normalise
        cut = dimensions is not None and dimensions < bert.vector_width
        # A vector that is cut is normalised afterwards.
        asked = EmbedRequest.model_construct(
            inputs=list(texts), pooling=pooling, normalise=unit and not cut, prompt=prompt
        )
        vectors: Vectors = await self.ask(served, "embed", asked, long)
        if cut:
            vectors = vectors[:, :dimensions]
            vectors = unit_vectors(vectors) if unit else vectors
        if not np.isfinite(vectors).all():
            raise ServeError(424, "a vector has values that are not numbers")
        return vectors

    async def relevance(
        self,
        served: ServedModel,
        firsts: Sequence[str],
        seconds: Sequence[str],
        *,
        long: str | None = None,
        raw_scores: bool = False,
    ) -> list[float]:
        """How relevant each second text is to its first.

        A cross-encoder reads both together; of other models it is the cosine of their vectors.
        """
        scorer = served.pair_scores
        if scorer is not None:
            call = Call(scorer.steps, (firsts, seconds), firsts, seconds)
            scores = np.asarray(await self.run(served, call, long), dtype=np.float64)
            if scorer.logits:
                scores = scores if raw_scores else 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
            elif raw_scores:
                scores = np.log(np.maximum(scores, 1e-9) / np.maximum(1 - scores, 1e-9))
            return [float(score) for score in scores]
        unique = list(dict.fromkeys([*firsts, *seconds]))
        self.check([*firsts, *seconds])
        vectors = await self.embed(served, unique, normalise=True, long=long)
        row, usage = {text: number for number, text in enumerate(unique)}, USAGE.get()
        usage.read = [usage.read[row[text]] for text in seconds]
        pairs = zip(firsts, seconds, strict=True)
        return [float(vectors[row[first]] @ vectors[row[second]]) for first, second in pairs]
