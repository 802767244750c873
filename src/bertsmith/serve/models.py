"""The models of a server: names, abilities, and the choice for a request."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

import torch

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.ledger import Ledger
from bertsmith.serve.batcher import Batcher
from bertsmith.serve.errors import ServeError
from bertsmith.serve.metrics import Metrics
from bertsmith.settings.serving import Settings
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.registry import USES, task_of
from bertsmith.tasks.task import Task
from bertsmith.tasks.use import PairScores


@dataclass(frozen=True)
class ServedModel:
    """A loaded model with its name, queue and worker."""

    name: str
    bert: LoadedModel
    batcher: Batcher
    created: int

    @property
    def can(self) -> list[str]:
        """The verbs of what the model can do."""
        return [verb for verb, use in USES.items() if use.can(self.bert)]

    @property
    def task(self) -> Task:
        """The task that the model was trained for."""
        return task_of(self.bert)

    @property
    def pair_scores(self) -> PairScores | None:
        """How the model ranks texts; None: by their vectors. One that cannot is an error."""
        try:
            return self.task.pair_scores(self.bert)
        except BertsmithError as error:
            message = str(error).replace("the model", f"the model {self.name}", 1)
            raise ServeError(424, message) from error

    @property
    def cross_encoder(self) -> bool:
        """Whether the model has one output for a pair of texts."""
        try:
            return self.pair_scores is not None and self.pair_scores.single
        except ServeError:
            return False

    @property
    def max_length(self) -> int:
        """The maximum number of tokens per window for embeddings."""
        return min(self.bert.max_length, self.bert.sentence.max_length or self.bert.max_length)

    def for_request(self, long: str) -> LoadedModel:
        """Return the model with a separate ledger and a rule for long texts."""
        own = copy.copy(self.bert)
        own.ledger, own.long, own.budget = Ledger(), long, self.batcher.budget
        own.shared_devices = ()  # other models of the server may be there
        return own

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for clients and the playground."""
        bert, labelled = self.bert, any(USES[verb].labelled for verb in self.can)
        return {
            "id": self.name,
            "can": self.can,
            "task": self.task.name,
            "family": bert.checkpoint.family.name,
            "layers": len(bert.checkpoint.config.plan),
            "heads": bert.checkpoint.config.attention_heads,
            "width": bert.checkpoint.config.width,
            "max_length": bert.max_length,
            "labels": list(bert.checkpoint.labels) if labelled else [],
            "mask": bert.tokenizer.mask_token,
            "pooling": "cls" if bert.sentence.pool == "first" else "mean",
            "normalise": bert.sentence.normalise,
        }


class Models:
    """All models of a server, in the order in which they were named."""

    def __init__(
        self, models: Mapping[str, LoadedModel], settings: Settings, metrics: Metrics
    ) -> None:
        if not models:
            raise BertsmithError("a server needs at least one model")
        self.served: dict[str, ServedModel] = {}
        turns: dict[torch.device, threading.Lock] = {}
        for name, bert in models.items():
            batcher = Batcher(
                bert,
                budget=settings.batch_tokens,
                queue_batches=settings.queue_batches,
                patience=0.75 * settings.timeout,
                exact=settings.exact,
                turn=turns.setdefault(bert.device, threading.Lock()),
                watch=partial(metrics.batch, name),
            )
            metrics.queue(name, batcher)
            metrics.fill.labels(name).set(0)
            embed(bert, ["A first pass is slower than those that follow."])
            self.served[name] = ServedModel(name, bert, batcher, int(time()))

    def __iter__(self) -> Any:
        return iter(self.served.values())

    @property
    def can(self) -> list[str]:
        """The verbs of what at least one model can do."""
        return [verb for verb, use in USES.items() if any(use.can(one.bert) for one in self)]

    @property
    def full(self) -> bool:
        """Whether all models would refuse a request."""
        return all(one.batcher.full for one in self)

    def pick(self, name: str | None, ability: str) -> ServedModel:
        """Return the model of this name; without a name, the first that supports the task."""
        if name is None:
            able = [one for one in self if ability in one.can]
            if not USES[ability].heads:  # every model can: prefer one that was trained for it
                able.sort(key=lambda one: one.task.verb != ability)
            if not able:
                raise ServeError(424, f"no model of this server can {ability}")
            return able[0]
        served = self.named(name)
        if ability not in served.can:
            can = ", ".join(served.can)
            raise ServeError(424, f"the model {name} cannot {ability}; it can {can}", param="model")
        return served

    def named(self, name: str) -> ServedModel:
        """Return the model of this name."""
        if name not in self.served:
            known = ", ".join(self.served)
            raise ServeError(
                404,
                f"there is no model {name[:100]!r} here; the models are: {known}",
                param="model",
                code="model_not_found",
            )
        return self.served[name]

    def close(self) -> None:
        """Stop all workers once their queues are empty."""
        for one in self:
            one.batcher.close()


def named(arguments: Sequence[str]) -> dict[str, str]:
    """Return names and paths of models: NAME=PATH, or a path whose last part is the name."""
    places: dict[str, str] = {}
    for argument in arguments:
        name, equals, place = argument.partition("=")
        if not equals:
            place = argument
            name = place.rstrip("/").rsplit("/", 1)[-1] or place
        if name in places:
            raise BertsmithError(f"two models are named {name}: write NAME={place} for one of them")
        if not name or not place:
            raise BertsmithError(f"{argument!r} is not a model: write MODEL or NAME=MODEL")
        places[name] = place
    return places
