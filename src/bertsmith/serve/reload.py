"""A server process that reads its configuration again and replaces what it serves as a whole.

What is new or changed is loaded beside what is served. Then requests are admitted for the new
models, running ones finish with the old ones, and old workers end: no request is lost. A
mistake in the file changes nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from fastapi import FastAPI

from bertsmith.checkpoint import locate, model_hash
from bertsmith.checkpoint.lora import share
from bertsmith.cpu import int8_weights
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.serve.app import application, host
from bertsmith.serve.config import ModelSpec, ServerPlan
from bertsmith.serve.gate import LOG, Admission
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.models import Launcher, Models, ServedModel
from bertsmith.serve.own import Readers
from bertsmith.serve.service import ModelService


class Site:
    """What one server process serves: a plan, the models that it names, and an index."""

    def __init__(
        self,
        read: Callable[[], ServerPlan],
        open_model: Callable[[ModelSpec], LoadedModel],
        index: Any,
    ) -> None:
        self.read, self.open_model = read, open_model
        self.index = None if index is None else Readers(index)
        self.launcher = Launcher(Metrics())
        self.served: Mapping[str, ServedModel] = {}  # what a reload keeps
        self._one_at_a_time = asyncio.Lock()
        service = self._open(self.read())
        self.served = service.models.served
        self.app: FastAPI = host(service, self.index)
        self.admission: Admission = self.app.state.admission

    async def reload(self) -> dict[str, Any]:
        """Serve what the configuration says now; return what was loaded and what was ended."""
        metrics = self.launcher.metrics
        async with self._one_at_a_time:
            try:
                plan = await asyncio.to_thread(self.read)
                service = await asyncio.to_thread(self._open, plan)
            except Exception as error:
                metrics.reloads.labels("failed").inc()
                LOG.error("reload failed, nothing has changed: %s", error)
                if isinstance(error, BertsmithError):
                    raise
                message = f"the models cannot be loaded ({type(error).__name__}: {error})"
                raise BertsmithError(message) from error
            app = await asyncio.to_thread(application, service, self.admission, self.index)
            old, now, before = self.admission.service, service.models.served, self.served
            self.served = now
            for model in before.values():
                metrics.served(model, 0)
            self.admission.serve(service, app)
            self.admission.app, self.app.state.service = app, service
            for model in now.values():
                model.batcher.limit(plan.settings)
            self._ending = asyncio.create_task(self._end(old, service.models))
            metrics.reloads.labels("succeeded").inc()
            result = {
                "models": {name: model.sha for name, model in now.items()},
                "aliases": plan.aliases,
                "loaded": [name for name, model in now.items() if before.get(name) is not model],
                "ended": [name for name, model in before.items() if now.get(name) is not model],
            }
            LOG.info("reloaded", extra={"entry": result})
            return result

    async def _end(self, old: ModelService, remaining: Models) -> None:
        """End the workers of models that are served no more, once no request needs them."""
        await self.admission.state.finished()
        await asyncio.to_thread(old.close, remaining)
        # FastAPI keeps the routes of former applications in its caches; models must not stay there.
        old.models.served.clear()
        old.models.newest.clear()

    def _open(self, plan: ServerPlan) -> ModelService:
        """Load the models of a plan that are new or have changed; the others are kept."""
        settings, metrics = plan.settings, self.launcher.metrics
        opened: list[ServedModel] = []
        try:
            for name, spec in plan.models.items():
                sha, model = model_hash(spec.path), self.served.get(name)
                if model is None or (model.spec, model.sha) != (spec, sha):
                    bert = self.open_model(spec)
                    _share(bert, spec, [*self.served.values(), *opened])
                    original = None
                    if settings.canary and int8_weights(bert.model):
                        float32 = {"device": "cpu", "dtype": "float32"}
                        original = self.open_model(spec.model_copy(update=float32))
                    model = self.launcher.launch(name, bert, settings, original, sha, spec)
                opened.append(model)
            if settings.canary and not any(int8_weights(model.bert.model) for model in opened):
                int8 = setting_name("dtype", "int8")
                raise BertsmithError(
                    f"{setting_name('canary')} compares int8 with float32: add {int8}"
                )
            models = Models(opened, plan.aliases, any_name=settings.any_model_name)
        except BaseException:
            for model in opened:
                if self.served.get(model.name) is not model:
                    metrics.forget(model.name, model.batcher)
                    model.batcher.close()
            raise
        for model in models:
            metrics.queue(model.name, model.batcher)
        return ModelService(models, settings, metrics, plan.keys)


def _share(bert: LoadedModel, spec: ModelSpec, others: Sequence[ServedModel]) -> None:
    """Let adapters of one model share its weights, unless these are packed for a CPU."""
    first = next(bert.model.parameters())
    packed = first.device.type == "cpu" and first.dtype != torch.float32
    if packed or int8_weights(bert.model):
        return
    checkpoints = [model.bert.checkpoint for model in others]
    if count := share(bert.checkpoint, locate(spec.path), checkpoints):
        LOG.info("adapter", extra={"entry": {"path": spec.path, "shared_parameters": count}})
