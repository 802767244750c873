"""A server process that reads its configuration again and replaces what it serves as a whole.

What is new or changed is loaded beside what is served. Then requests are admitted for the new
models, those that have begun finish with the old ones, and old workers end: no request is lost. A
mistake in the file changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from bertsmith.checkpoint import model_hash
from bertsmith.cpu import int8_weights
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.serve.app import application, host
from bertsmith.serve.config import Place, Plan
from bertsmith.serve.gate import Admission, State
from bertsmith.serve.logs import LOG
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Launcher, Models, ServedModel, limits
from bertsmith.serve.search import Index, Readers
from bertsmith.serve.work import Work

Opened = dict[str, tuple[Place, ServedModel]]  # by the names of models


class Site:
    """What one server process serves: a plan, the models that it names, and an index."""

    def __init__(
        self,
        read: Callable[[], Plan],
        open_model: Callable[[Place], LoadedModel],
        index: Index | None,
        state: State,
    ) -> None:
        self.read, self.open_model = read, open_model
        self.index = None if index is None else Readers(index)
        self.launcher = Launcher(Metrics())
        self.opened: Opened = {}
        self._one_at_a_time = asyncio.Lock()
        plan = self.read()
        self.opened, work = self._open(plan)
        self.app: FastAPI = host(work, self.index, state)
        self.admission: Admission = self.app.state.admission

    async def reload(self) -> dict[str, Any]:
        """Serve what the configuration says now; return what was loaded and what was ended."""
        reloads = self.launcher.metrics.reloads
        async with self._one_at_a_time:
            try:
                plan = await asyncio.to_thread(self.read)
                opened, work = await asyncio.to_thread(self._open, plan)
            except BertsmithError as error:
                reloads.labels("failed").inc()
                LOG.error("reload failed, nothing has changed: %s", error)
                raise
            app = await asyncio.to_thread(application, work, self.admission, self.index)
            old, former, self.opened = self.admission.work, self.opened, opened
            for one in old.models:
                self.launcher.metrics.served(one, 0)
            self.admission.serve(work, app)
            self.admission.app, self.app.state.work = app, work
            for one in work.models:
                one.batcher.limit(**limits(plan.settings))
            self._ending = asyncio.create_task(self._end(old, work.models))
            reloads.labels("succeeded").inc()
            result = {
                "models": {one.name: one.sha for one in work.models},
                "aliases": plan.aliases,
                "loaded": [name for name, one in opened.items() if former.get(name) != one],
                "ended": [name for name, one in former.items() if opened.get(name) != one],
            }
            LOG.info("reloaded", extra={"entry": result})
            return result

    async def _end(self, old: Work, kept: Models) -> None:
        """End the workers of models that are served no more, once no request needs them."""
        await self.admission.state.finished()
        await asyncio.to_thread(old.close, kept)
        # FastAPI keeps the routes of former applications in its caches; models must not stay there.
        old.models.served.clear()
        old.models.newest.clear()

    def _open(self, plan: Plan) -> tuple[Opened, Work]:
        """Load the models of a plan that are new or have changed; the others are kept."""
        opened: Opened = {}
        metrics = self.launcher.metrics
        try:
            for name, place in plan.models.items():
                sha = model_hash(place.path)
                known = self.opened.get(name)
                if known is None or known[0] != place or known[1].sha != sha:
                    bert = self.open_model(place)
                    original = self._original(place, bert) if plan.settings.canary else None
                    served = self.launcher.launch(name, bert, plan.settings, original, sha)
                    known = place, served
                opened[name] = known
            all_served = [served for _, served in opened.values()]
            if plan.settings.canary and not any(int8_weights(one.bert.model) for one in all_served):
                raise BertsmithError("--canary compares int8 with float32: add --dtype int8")
            models = Models(all_served, plan.aliases, any_name=plan.settings.any_model_name)
        except BertsmithError:
            for name, (_, served) in opened.items():
                if self.opened.get(name) != opened[name]:
                    metrics.forget(name, served.batcher)
                    served.batcher.close()
            raise
        for one in models:
            metrics.queue(one.name, one.batcher)
        return opened, Work(models, plan.settings, metrics, plan.keys)

    def _original(self, place: Place, bert: LoadedModel) -> LoadedModel | None:
        """The float32 model that the canary compares an int8 model with."""
        if not int8_weights(bert.model):
            return None
        return self.open_model(place.model_copy(update={"device": "cpu", "dtype": "float32"}))
