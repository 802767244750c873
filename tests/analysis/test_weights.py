"""Weights made row by row are those of the whole map; and no whole map is ever made."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bertsmith.analysis import Weights
from bertsmith.analysis import weights as module
from bertsmith.batch import Batch
from bertsmith.model import Model, Trace
from model.tiny import TINY, difference, ragged, tiny

LENGTH = 40


def seen(model: Model, batch: Batch, heads: list[int]) -> dict[int, Weights]:
    """The weights of each depth, as a pass of the model shows them."""
    found: dict[int, Weights] = {}

    def at(depth: int) -> Any:
        return lambda *shown: found.__setitem__(depth, Weights.of(*shown, heads))

    with torch.no_grad():
        model.encoder(batch, Trace(looks={n: at(n) for n in range(len(model.encoder.plan))}))
    return found


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CELLS", 3 * 7 * LENGTH)  # seven rows of three heads


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
        stretches = list(weights.stretches())
        assert [first for first, _ in stretches] == list(range(0, LENGTH, 7))
        assert difference(torch.cat([rows for _, rows in stretches], 1), whole) <= 1e-6
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
        weights = Weights.of(*shown, [0, 1])
        found.append((weights.rows([5, 2999]), weights.columns([0, 17]), weights.blocks(100)))

    with torch.inference_mode(), Largest() as largest:
        model.encoder(batch, Trace(looks=dict.fromkeys(range(3), look)))
    assert len(found) == 3
    assert 0 < largest.numbers < length**2 / 10
    with torch.inference_mode(), Largest() as dense:  # the same watch sees a map that is made
        model.encoder(batch, Trace(heads={0: [0]}))
    assert dense.numbers >= length**2
