"""The models of a server: names, versions, aliases, abilities, and the choice for a request."""

import copy
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any

import torch

from bertsmith.errors import BertsmithError, nearest
from bertsmith.infer.loaded import LoadedModel
from bertsmith.ledger import Ledger
from bertsmith.serve.batcher import Batcher, Canary
from bertsmith.serve.errors import ServeError
from bertsmith.serve.metrics import Metrics
from bertsmith.settings.serving import ServingSettings
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.registry import USES, task_of
from bertsmith.tasks.task import Task
from bertsmith.tasks.use import PairScores

WARM = "A first pass is slower than those that follow. " * 8
Shares = Mapping[str, float]  # names of models → the fraction of requests that each answers


@dataclass(frozen=True)
class ServedModel:
    """A loaded model with its name, queue and worker."""

    name: str  # NAME, or NAME@VERSION
    bert: LoadedModel
    batcher: Batcher
    created: int
    sha: str | None = None  # of the files of the model
    spec: Any = None  # the `ModelSpec` that it was loaded by

    @property
    def base(self) -> str:
        """The name without the version."""
        return self.name.partition("@")[0]

    @property
    def version(self) -> str | None:
        """What follows the @ in the name."""
        return self.name.partition("@")[2] or None

    @property
    def can(self) -> list[str]:
        """The verbs of the uses that the model supports."""
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

    def prompt(self, name: str | None) -> str | None:
        """The model's prompt of this name."""
        return None if name is None else self.bert.sentence.named_prompt(name)

    def supports_width(self, dimensions: int) -> bool:
        """Whether the model's vectors have this width, or can be cut to it (Matryoshka)."""
        settings, width = self.bert.checkpoint.settings, self.bert.vector_width
        trained = settings.get("matryoshka_dimensions")
        if dimensions == width or (isinstance(trained, list) and dimensions in trained):
            return True
        return settings.get("is_matryoshka") is True and dimensions < width

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
            "version": self.version,
            "sha256": self.sha,
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


@dataclass
class Launcher:
    """Starts a queue and a worker for each model; models on one device compute in turns."""

    metrics: Metrics
    turns: dict[torch.device, threading.Lock] = field(default_factory=dict)

    def launch(
        self,
        name: str,
        bert: LoadedModel,
        settings: ServingSettings,
        original: LoadedModel | None = None,
        sha: str | None = None,
        spec: Any = None,
    ) -> ServedModel:
        """Return a model that is warmed up; with `original`, a canary compares it with that."""
        metrics, canary = self.metrics, None
        if settings.canary and original is not None:
            canary = Canary(original, settings.canary, metrics.drift.labels(name).observe)
        turn = self.turns.setdefault(bert.device, threading.Lock())
        watch = partial(metrics.batch, name)
        batcher = Batcher(bert, settings, turn=turn, watch=watch, canary=canary)
        with turn:
            embed(bert, [WARM[:46], WARM])
        metrics.queue(name, batcher)
        return ServedModel(name, bert, batcher, int(time()), sha, spec)


class Models:
    """All models of a server, in the order in which they were named.

    A request names a model as NAME@VERSION, as NAME (its newest version: the one listed last), or
    by an alias of one model, or of several with the share of requests that each answers. An alias
    NAME goes before the newest version of NAME: clients need no change for another version.
    """

    def __init__(
        self,
        served: Sequence[ServedModel],
        aliases: Mapping[str, Shares] | None = None,
        *,
        any_name: bool = False,
    ) -> None:
        self.served = {model.name: model for model in served}
        self.newest = {model.base: model for model in served}
        self.any_name = any_name  # unknown names are answered too
        self.aliases = dict(aliases or {})
        for alias, shares in self.aliases.items():
            for target in shares:
                if target not in self.served and target not in self.newest:
                    known = nearest(target, [*self.served, *self.newest])
                    raise BertsmithError(f"the alias {alias}: there is no model {target!r}{known}")

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.served.values())

    @property
    def can(self) -> list[str]:
        """The verbs of the uses that at least one model supports."""
        return [verb for verb, use in USES.items() if any(use.can(model.bert) for model in self)]

    def full(self, client: str | None = None) -> bool:
        """Whether all models would refuse a small request of a client, or of any."""
        return bool(self.served) and all(model.batcher.full(client) for model in self)

    def find(self, name: str) -> ServedModel | None:
        """Return the model that answers to a name; of an alias with shares, one by chance."""
        shares = self.aliases.get(name)
        if shares is not None:
            name = random.choices(list(shares), list(shares.values()))[0]
        return self.served.get(name) or self.newest.get(name)

    def check_dimensions(self, served: ServedModel, dimensions: int) -> None:
        """Refuse shorter vectors than a model was trained for, and name those that were."""
        if served.supports_width(dimensions):
            return
        able = [model.name for model in self.current if model.supports_width(dimensions)]
        instead = f"{', '.join(able)} can" if able else "no model here can"
        message = (
            f"the vectors of {served.name} have {served.bert.vector_width} dimensions, and it was "
            f"not trained for {dimensions}: {instead}"
        )
        raise ServeError(422, message, param="dimensions", code="invalid_value")

    @property
    def current(self) -> list[ServedModel]:
        """The version of every model that answers requests without a version."""
        return [model for base in self.newest if (model := self.find(base)) is not None]

    def get(self, name: str) -> ServedModel:
        """Return the model of this name; an unknown name is an error."""
        served = self.find(name)
        if served is None:
            names = ", ".join(dict.fromkeys([*self.served, *self.newest, *self.aliases]))
            message = f"there is no model {name[:100]!r} here; the models are: {names}"
            raise ServeError(404, message, param="model", code="model_not_found")
        return served
