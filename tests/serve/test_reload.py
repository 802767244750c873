"""Reloads: new models beside old requests, none lost; mistakes change nothing."""

import asyncio
import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from bertsmith import load
from bertsmith.checkpoint import Lora, attach, save_adapter
from bertsmith.errors import BertsmithError
from bertsmith.serve import ServingSettings
from bertsmith.serve.config import ModelSpec, ServerPlan
from bertsmith.serve.reload import Site
from serve.live import in_event_loop, tiny

HEADS = ("masked_lm", "tag")
LORA = Lora(rank=2, alpha=4)


class Files:
    """Models on disk, and a plan that tests change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, 0
        tiny(HEADS).save(folder / "first")
        tiny(("tag",), seed=3).save(folder / "tagger")
        self.plan = ServerPlan({"tiny": self.spec("first")}, {}, ServingSettings())

    def spec(self, name: str) -> ModelSpec:
        return ModelSpec(path=str(self.folder / name), device="cpu")

    def read(self) -> ServerPlan:
        return self.plan

    def open(self, spec: ModelSpec) -> Any:
        self.loaded += 1
        return load(spec.path, device="cpu")

    def site(self) -> Site:
        return Site(self.read, self.open, None)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def client(site: Site) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=site.app)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@in_event_loop
async def test_adapters_share_the_weights_of_their_model(files: Files) -> None:
    """Each answers as when it is loaded alone, with its updates merged."""
    specs = {"tagger": files.spec("tagger")}
    for number in (1, 2):
        bert = load(files.folder / "tagger", device="cpu")
        attach(bert.checkpoint, LORA, seed=number)
        for name, parameter in bert.model.named_parameters():
            if ".lora.b." in name:
                torch.nn.init.normal_(parameter, std=0.3)
        folder, base = files.folder / f"adapter{number}", files.folder / "tagger"
        folder.mkdir()
        save_adapter(folder, bert.checkpoint, bert.tokenizer, bert.sentence, base, LORA)
        specs[folder.name] = files.spec(folder.name)
    files.plan = ServerPlan(specs, {}, ServingSettings())
    site = files.site()
    weights = [dict(site.served[name].bert.model.named_parameters()) for name in specs]
    shared = [n for n in weights[0] if all(one[n] is weights[0][n] for one in weights)]
    assert {name for name in weights[0] if name.startswith("encoder.")} <= set(shared)
    answers = []
    async with client(site) as http:
        for name, spec in specs.items():
            found = await http.post("/tag", json={"inputs": "a b", "model": name})
            alone = load(spec.path, device="cpu").tag("a b")
            scores = [one["score"] for one in found.json()["results"][0]]
            # Sums of float32 in another order: unmerged updates are added to the outputs.
            assert scores == pytest.approx([one.score for one in alone], abs=1e-5)
            answers.append(scores[0])
    assert np.diff(sorted(answers)).min() > 1e-3  # each has its own updates
    site.admission.service.close()


@in_event_loop
async def test_models_come_and_go(files: Files) -> None:
    site = files.site()
    async with client(site) as http:
        assert (await http.post("/tag", json={"inputs": "a"})).status_code == 200
        first = site.served["tiny"]
        more = {"tagger@2": files.spec("tagger")}
        files.plan = files.plan._replace(models={**files.plan.models, **more})
        assert (await site.reload())["loaded"] == ["tagger@2"]
        assert site.served["tiny"] is first  # kept, with its queue
        named = {"inputs": "a", "model": "tagger"}
        assert (await http.post("/tag", json=named)).json()["model"] == "tagger@2"
        files.plan = files.plan._replace(models=more, settings=ServingSettings(batch_tokens=7))
        assert (await site.reload())["ended"] == ["tiny"]
        await site._ending
        assert not first.batcher.alive
        assert site.served["tagger@2"].batcher.budget == 7
        assert (await http.post("/fill-mask", json={"inputs": "[MASK]"})).status_code == 404
        text = (await http.get("/metrics")).text
        assert 'bertsmith_model_info{model="tiny"' in text
        current = [line for line in text.splitlines() if line.startswith("bertsmith_model_")]
        assert [line[-3:] for line in current if "tagger@2" in line] == ["1.0"]
        assert [line[-3:] for line in current if '"tiny"' in line] == ["0.0"]
    site.admission.service.close()


@in_event_loop
async def test_the_same_folder_with_other_weights_is_loaded_again(files: Files) -> None:
    site = files.site()
    before = site.served["tiny"]
    assert (await site.reload())["loaded"] == []
    tiny(HEADS, seed=9).save(files.folder / "first")
    result = await site.reload()
    assert result["loaded"] == result["ended"] == ["tiny"]
    assert site.served["tiny"].sha != before.sha
    await site._ending
    assert not before.batcher.alive
    gone = weakref.ref(before.batcher)
    del before
    gc.collect()
    assert gone() is None, "the old model stays in memory"
    site.admission.service.close()


@in_event_loop
async def test_requests_that_have_begun_finish_with_the_old_model(files: Files) -> None:
    site = files.site()
    old = site.served["tiny"]
    async with client(site) as http:
        with old.batcher._turn:
            asked = asyncio.ensure_future(http.post("/embed", json={"inputs": "a text"}))
            while not site.admission.state.active:
                await asyncio.sleep(0.01)
            tiny(HEADS, seed=9).save(files.folder / "first")
            site.launcher.turns.clear()  # the new model does not wait for the old one
            await site.reload()
            assert old.batcher.alive
        answer = await asked
        assert answer.status_code == 200
        expected = old.bert.embed(["a text"], normalise=True)[0].tolist()
        assert answer.json()[0] == pytest.approx(expected, abs=1e-6)
        await site._ending
        assert not old.batcher.alive
    site.admission.service.close()


@in_event_loop
async def test_a_mistake_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    site = files.site()
    good = files.plan
    with caplog.at_level(logging.ERROR, "bertsmith.serve"):
        for wrong in (
            good._replace(models={**good.models, "new": files.spec("nothing")}),
            good._replace(aliases={"a": {"b": 1.0}}),
            good._replace(
                models={**good.models, "new": files.spec("tagger")}, aliases={"a": {"b": 1.0}}
            ),
        ):
            files.plan = wrong
            with pytest.raises(BertsmithError):
                await site.reload()
    async with client(site) as http:
        assert list(site.served) == ["tiny"]
        assert (await http.post("/embed", json={"inputs": "a"})).status_code == 200
        assert 'bertsmith_reloads_total{result="failed"} 3.0' in (await http.get("/metrics")).text
    site.admission.service.close()
