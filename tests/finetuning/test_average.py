"""Model soups: what is averaged, that it is kept only where it is better, and its proof."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bertsmith import BertsmithError, load
from bertsmith.finetuning import Interrupted, finetune
from bertsmith.finetuning.average import WeightSnapshots, averaged
from bertsmith.finetuning.result import TrainingRun
from bertsmith.finetuning.settings import RunSettings
from bertsmith.train.distributed import Ranks
from finetuning.conftest import FAST, Write, labelled
from finetuning.test_resume import Stopper
from tasks.models import Maker

SEEDS: dict[str, Any] = {**FAST, "seeds": 3, "average": True, "device": "cpu"}


class Scored:
    """A model whose score is as near to 1 as its only weight is to a target."""

    def __init__(self, target: float, values: dict[int, float]) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        self.target, self.weights = (
            target,
            WeightSnapshots(Ranks.alone(torch.device("cpu")), None, 9),
        )
        self.scores = {}
        for number, value in values.items():
            self.model.weight.data.fill_(value)
            self.weights.add(number, self.model)
            self.scores[number] = self.look().scores["accuracy"]

    def look(self) -> Any:
        score = 1 - abs(self.model.weight.item() - self.target)
        examples = SimpleNamespace(examples=[1, 2])
        scorer = lambda weights: {"accuracy": score}  # noqa: E731
        return SimpleNamespace(
            scores={"accuracy": score}, dataset=examples, scorer=scorer, __len__=lambda: 2
        )

    def best(self) -> Any:
        number = max(self.scores, key=lambda one: self.scores[one])
        self.model.weight.data.copy_(self.weights.read(number)["weight"])
        settings, model = RunSettings(metric="accuracy"), SimpleNamespace(model=self.model)
        run = TrainingRun(settings, SimpleNamespace(), {}, model)
        return replace(run, dev=self.look(), scores={"dev": self.look().scores})


@pytest.fixture(autouse=True)
def no_bootstrap(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "by_hand" in request.node.name:
        monkeypatch.setattr("bertsmith.finetuning.average._compared", lambda *_: None)


@pytest.mark.parametrize(
    ("target", "values", "members"),
    [
        (0.5, {0: 0.4, 1: 0.6, 2: 0.5}, None),  # one is exact: nothing is better
        (0.5, {0: 0.3, 1: 0.8, 2: 0.45, 3: 0.56}, [2, 3]),  # others would take it away
        (0.5, {0: 0.3, 1: 0.7}, [0, 1]),
        (0.5, {0: 0.1, 1: 0.2}, None),  # on the same side: the nearer one is better
        (1.0, {0: 0.7, 1: 0.95, 2: 0.8}, None),
    ],
)
def test_by_hand(target: float, values: dict[int, float], members: list[int] | None) -> None:
    one = Scored(target, values)
    best = one.best()
    run, content = averaged(best, one.weights, one.scores, "seeds", one.look)
    assert content["kept"] is (members is not None)
    now = one.model.weight.item()
    if members is None:
        assert run is best
        assert now == pytest.approx(max(values.values(), key=lambda x: -abs(x - target)))
        return
    assert content["best"]["members"] == members
    assert now == pytest.approx(sum(values[n] for n in members) / len(members))
    assert abs(now - target) < min(abs(x - target) for x in values.values())
    assert run.scores["dev"]["accuracy"] == pytest.approx(content["best"]["dev"])
    assert content["tried"][0]["members"] == list(values)


def test_seeds_and_resuming(base: Maker, write: Write, tmp_path: Path) -> None:
    """Averaged or not, the report has all that was tried; a resumed command writes the same."""
    folder, file = base().folder, write("t.jsonl", labelled(24))
    how = {**SEEDS, "epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "dev": file}
    result = finetune(folder, file, tmp_path / "whole", **how)
    content = result.content["average"]
    assert [one["number"] for one in content["members"]] == [0, 1, 2]
    assert content["kept"] is (content["best"]["dev"] > content["single"]["dev"])
    assert any("average" in line for line in result.notes)
    assert len(result.seeds) == 3
    with pytest.raises(Interrupted):
        finetune(folder, file, tmp_path / "out", watch=Stopper(8), **how)
    finetune(folder, file, tmp_path / "out", resume=True, **how)
    name = "model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert load(tmp_path / "out", device="cpu").classify("in Paris").label in ("city", "thing")


def test_epochs_of_one_run(base: Maker, write: Write, tmp_path: Path) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    how = {**SEEDS, "seeds": 1, "epochs": 4, "learning_rate": 3e-3, "patience": 9, "test": file}
    result = finetune(folder, file, tmp_path / "out", dev=file, **how)
    content = result.content["average"]
    assert content["of"] == "epochs"
    assert [one["number"] for one in content["members"]] == [1, 2, 3, 4]
    assert result.kept.scores["test"] is not None
    assert load_file(tmp_path / "out" / "model.safetensors")
    assert "average of 1, 2, 3, 4" in (tmp_path / "out" / "report.html").read_text()


def test_mistakes(base: Maker, write: Write) -> None:
    folder, file = base().folder, write("t.jsonl", labelled())
    for more, message in (
        ({"hold_out": 0.0}, "average needs a dev file"),
        ({"trained": "lora"}, "cannot be combined with LoRA"),
        ({"sweep": True}, "cannot be combined with sweep"),
        ({"folds": 3, "seeds": 1}, "cannot be combined with average"),
        ({"seeds": 1, "epochs": 1}, "average needs several seeds or epochs"),
    ):
        with pytest.raises(BertsmithError, match=message):
            finetune(folder, file, **{**SEEDS, **more})
