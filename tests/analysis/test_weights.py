"""Weights made row by row are those of the whole map; and no whole map is ever made."""

import weakref
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bertsmith.analysis import AttentionWeights
from bertsmith.analysis import weights as module
from bertsmith.batch import Batch
from bertsmith.kernels import rows
from bertsmith.model import Model, Trace
from bertsmith.model.attend import written_out
from model.tiny import TINY, difference, ragged, tiny

LENGTH = 40


def seen(model: Model, batch: Batch, heads: list[int]) -> dict[int, AttentionWeights]:
    """The weights of each depth, as a pass of the model shows them."""
    found: dict[int, AttentionWeights] = {}

    def at(depth: int) -> Any:
        return lambda *shown: found.__setitem__(depth, AttentionWeights.of(*shown, heads))

    with torch.no_grad():
        model.encoder(batch, Trace(looks={n: at(n) for n in range(len(model.encoder.plan))}))
    return found


def written(weights: AttentionWeights) -> torch.Tensor:
    """Every score of every head, at once."""
    return written_out(weights.query, weights.key, weights.scores)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CELLS", 7 * LENGTH)  # seven rows of one head


@pytest.mark.parametrize("name", TINY)
def test_parts_equal_the_whole_map(name: str) -> None:
    model, batch, heads = tiny(name), ragged([LENGTH]), [3, 0, 2]
    depths = range(len(model.encoder.plan))
    dense = Trace(heads=dict.fromkeys(depths, heads))
    with torch.no_grad():
        model.encoder(batch, dense)
    found = seen(model, batch, heads)
    assert list(found) == list(depths)
    some = [0, 7, 21, LENGTH - 1]
    for depth, weights in found.items():
        whole = dense.maps[depth][0]
        assert difference(weights.rows(some), whole[:, some]) <= 1e-6
        assert difference(weights.columns(some), whole[:, :, some]) <= 1e-6
        assert difference(weights.cells(range(9, 30), some), whole[:, 9:30, some]) <= 1e-6
        assert difference(weights.logsumexp, written(weights).logsumexp(-1)) <= 1e-5
        assert difference(weights.rows(some).sum(-1), torch.ones(3, 4)) <= 1e-5


@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta"])
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_blocks_are_sums_over_keys_and_means_over_queries(name: str, size: int) -> None:
    model, batch = tiny(name), ragged([LENGTH])
    for weights in seen(model, batch, [1, 2]).values():
        whole = weights.rows(range(LENGTH))
        expected = torch.stack(
            [
                torch.stack([part.sum(-1).mean(-1) for part in rows.split(size, -1)], -1)
                for rows in whole.split(size, 1)
            ],
            1,
        )
        assert difference(weights.blocks(size), expected) <= 1e-6
        assert difference(weights.blocks(size).sum(-1), torch.ones(expected.shape[:2])) <= 1e-5


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_fast_kernel_keeps_what_is_computed_without_it(
    name: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in seen(tiny(name), ragged([LENGTH]), [0, 2]).values():
        weights = AttentionWeights(one.query, one.key, one.scores._replace(causal=causal))
        kept = weights.logsumexp
        with monkeypatch.context() as without:
            without.setattr(module, "KERNEL", None)
            computed = AttentionWeights(weights.query, weights.key, weights.scores).logsumexp
        assert difference(kept, computed) <= 1e-5


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_no_square_stands_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    length = 3000
    monkeypatch.setattr(module, "CELLS", 2**18)
    model = tiny(name, max_position_embeddings=length)
    batch, found = ragged([length]), []

    def look(*shown: Any) -> None:
        weights = AttentionWeights.of(*shown, [0, 1])
        found.append((weights.rows([5, 2999]), weights.columns([0, 17]), weights.blocks(100)))

    with torch.inference_mode(), Largest() as largest:
        model.encoder(batch, Trace(looks=dict.fromkeys(range(3), look)))
    assert len(found) == 3
    assert 0 < largest.numbers < length**2 / 10
    with torch.inference_mode(), Largest() as dense:  # the same watch sees a map that is made
        model.encoder(batch, Trace(heads={0: [0]}))
    assert dense.numbers >= length**2


class Alive(TorchDispatchMode):
    """Counts the bytes of all tensors made while it watches: those there are, and most ever."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: Counter[int] = Counter()  # of each storage, how many tensors show it
        self.now = self.most = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor):
                self.hold(one)
        return made

    def hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self.now += 0 if self.holders[key] else size
        self.most = max(self.most, self.now)
        self.holders[key] += 1
        weakref.finalize(tensor, self.leave, key, size)

    def leave(self, key: int, size: int) -> None:
        self.holders[key] -= 1
        self.now -= 0 if self.holders[key] else size


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_long_text_is_inspected_in_little_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In units of the states, (T, D): 8,192 tokens of width 768 have 24 MiB of them."""
    length, width = 3072, 64
    monkeypatch.setattr(module, "CELLS", 2**17)  # as much of the states as for width 768
    monkeypatch.setattr(rows, "ROWS", 256)
    sizes = {"hidden_size": width, "intermediate_size": 4 * width}
    model = tiny(name, max_position_embeddings=length, **sizes)
    batch, found = ragged([length]), []

    def look(*shown: Any) -> None:
        weights = AttentionWeights.of(*shown, range(4))
        found.append(weights.rows([5]).sum() + weights.columns([0]).sum())

    trace = Trace(looks=dict.fromkeys(range(3), look))
    with torch.inference_mode(), Alive() as alive:
        small = model.encoder(batch, trace).last
    assert len(found) == 3
    assert 4 < alive.most / (4 * length * width) <= 7
    monkeypatch.setattr(rows, "ROWS", length)
    with torch.inference_mode(), Alive() as at_once:
        whole = model.encoder(batch).last
    assert at_once.most / (4 * length * width) > 10
    assert difference(small, whole) <= 1e-5
