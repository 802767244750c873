"""Large jobs on several devices or ranks: the results of one, in order; errors end all."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import Bert
from bertsmith.batch import Batch
from bertsmith.infer import loaded, opening
from bertsmith.infer.run import LEAST, copied, run
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model
from bertsmith.search.encoder import TextEncoder
from bertsmith.tasks.answering.task import find_answers
from bertsmith.tasks.masked_lm import score_masked_lm
from bertsmith.tasks.zero_shot.task import choose_label
from processes import ran
from serve.live import tiny

CPU = torch.device("cpu")
TEXTS = ["lorem ipsum " * (number % 9) + "dolor" for number in range(60)]


@pytest.fixture
def bert() -> Bert:
    model = tiny()
    model.budget = 32
    return model


def both(bert: Bert, ask: Callable[[Bert], Any]) -> tuple[Any, Any]:
    """Answers on one device, and on three."""
    one = ask(bert)
    bert.shared_devices = [CPU] * 3
    assert bert.devices == [CPU] * 3
    return one, ask(bert)


def test_three_devices_give_the_vectors_of_one(bert: Bert) -> None:
    one, three = both(bert, lambda model: model.embed(TEXTS))
    assert np.array_equal(one, three)


@pytest.mark.parametrize(
    "ask",
    [
        lambda bert: bert.classify(TEXTS),
        lambda bert: bert.tag(TEXTS),
        lambda bert: [one.answers(2, True) for one in find_answers(bert, ["dolor"] * 60, TEXTS)],
        lambda bert: bert.fill_mask([f"{text} [MASK]" for text in TEXTS]),
        lambda bert: choose_label(bert, TEXTS, ["lorem", "dolor"], "masks"),
        lambda bert: score_masked_lm(bert, TEXTS[:12], pseudo=True),
    ],
    ids=["classify", "tag", "answer", "fill_mask", "labels", "masked_lm"],
)
def test_three_devices_give_the_answers_of_one(bert: Bert, ask: Callable[[Bert], Any]) -> None:
    one, three = both(bert, ask)
    assert one == three


class Devices:
    """Notes batches and models by thread; each thread waits until all have begun."""

    def __init__(self, count: int) -> None:
        self.models: dict[int, Model] = {}
        self.batches: list[int] = []
        self.begun = threading.Barrier(count)

    def __call__(
        self, model: Model, hidden: Hidden, batch: Batch, group: Sequence[Window]
    ) -> list[int]:
        thread = threading.get_ident()
        if thread not in self.models:
            self.models[thread] = model
            self.begun.wait(30)
        self.batches.append(thread)
        return [window.number for window in group]


def test_each_device_has_a_thread_and_a_copy_and_results_keep_their_order(bert: Bert) -> None:
    seen = Devices(3)
    windows = bert.windows(TEXTS)
    results = run(bert.model, windows, seen, devices=[CPU] * 3, budget=32)
    assert results == [window.number for window in windows]
    assert seen.models[threading.get_ident()] is bert.model
    assert len({id(model) for model in seen.models.values()}) == 3
    weights = [{one.data_ptr() for one in model.parameters()} for model in seen.models.values()]
    assert len(set.union(*weights)) == sum(map(len, weights))
    alive = [one.name for one in threading.enumerate() if one.ident in seen.models]
    assert alive == [threading.current_thread().name]


def test_few_batches_stay_on_the_first_device(bert: Bert) -> None:
    bert.shared_devices = [CPU] * 3
    for batches, threads in (1, 1), (2 * LEAST - 1, 1), (2 * LEAST, 2), (5 * LEAST, 3):
        seen = Devices(threads)
        bert.budget = 5
        bert.run([Window(0, [5] * 5, [0] * 5, range(5), 0)] * batches, seen)
        assert len(seen.batches) == batches
        assert len(seen.models) == threads


def test_an_error_on_another_device_ends_all_and_is_raised(bert: Bert) -> None:
    class Broken(Devices):
        def __call__(self, model: Model, *given: Any) -> list[int]:
            if model is not bert.model:
                raise ValueError("a broken device")
            threading.Event().wait(0.05)
            return super().__call__(model, *given)

    seen = Broken(1)
    windows = bert.windows(TEXTS * 10)
    with pytest.raises(ValueError, match="a broken device"):
        run(bert.model, windows, seen, devices=[CPU, CPU], budget=32)
    assert len(seen.batches) < 100  # of more than 500
    assert np.isfinite(bert.embed(TEXTS)).all()


def test_changed_weights_count_on_all_devices(bert: Bert) -> None:
    bert.shared_devices = [CPU, CPU]
    before = bert.embed(TEXTS)
    for weight in bert.model.parameters():
        weight.data.mul_(0.9)  # which does not change its version
    after = bert.embed(TEXTS)
    bert.shared_devices = ()
    assert np.array_equal(after, bert.embed(TEXTS))
    assert not np.allclose(before, after)


def test_a_copy_shares_what_its_model_shares(bert: Bert) -> None:
    bert.model.register_buffer("count", torch.ones(2))
    copy: Any = copied(bert.model, CPU)
    assert len([*copy.parameters()]) == len([*bert.model.parameters()])
    assert not any(weight.requires_grad for weight in copy.parameters())
    copy.count += 1
    assert bert.model.count.tolist() == [1, 1]  # type: ignore[union-attr, operator]


def test_a_changed_encoder_stays_on_its_device(bert: Bert) -> None:
    bert.model.encoder.skipped = {0: torch.zeros(bert.checkpoint.config.width)}
    seen = Devices(1)
    run(bert.model, bert.windows(TEXTS), seen, devices=[CPU] * 3, budget=32)
    assert len(seen.models) == 1


# ------------------------------------------------------------------ which devices


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight GPUs, as far as `all_devices` knows."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.mark.usefixtures("eight")
def test_a_named_device_is_used_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(("masked_lm",)).save(tmp_path / "model")
    gpus = [torch.device("cuda", number) for number in range(8)]
    assert opening.open_model(tmp_path / "model").shared_devices == gpus
    for name in "cpu", CPU:
        assert opening.open_model(tmp_path / "model", device=name).shared_devices == ()
    monkeypatch.setattr(opening, "pick_device", lambda device: CPU)
    assert opening.open_model(tmp_path / "model", device="cuda:0").shared_devices == ()
    assert opening.open_model(tmp_path / "model", device="cuda").shared_devices == ()


@pytest.mark.usefixtures("eight")
def test_a_rank_of_several_has_no_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(loaded.all_devices()) == 8
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert loaded.all_devices() == []


def test_the_models_own_device_comes_first(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [torch.device("cuda", number) for number in range(3)]
    bert.shared_devices = gpus
    assert bert.devices == [CPU]  # the model was moved to the CPU
    monkeypatch.setattr(Bert, "device", gpus[1])
    assert bert.devices == [gpus[1], gpus[0], gpus[2]]
    assert Bert.of(bert).devices == bert.devices


def test_more_is_read_at_once_for_several_devices(bert: Bert) -> None:
    encoder = TextEncoder.__new__(TextEncoder)
    assert encoder.portion(100) == 100
    encoder.__dict__["model"] = bert
    assert bert.portion(100) == encoder.portion(100) == 100
    bert.shared_devices = [CPU, CPU]
    assert bert.portion(100) == encoder.portion(100) == 1600


def test_ranks_divide_the_batches_and_all_get_all_results() -> None:
    script = Path(__file__).with_name("encode_ranks.py")
    done = ran(script, env={**os.environ, "PYTHONPATH": str(script.parents[1])})
    assert done.returncode == 0, done.stderr
