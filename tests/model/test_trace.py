"""A Trace keeps hidden states and attention maps, and changes nothing."""

import pytest
import torch

from bertsmith.model import Trace
from bertsmith.model.attention import Context
from model.tiny import TINY, difference, ragged, tiny

LENGTHS = [5, 20, 1, 20]


@pytest.mark.parametrize("name", TINY)
def test_every_depth_is_kept(name: str) -> None:
    model, batch, trace = tiny(name), ragged(LENGTHS), Trace(states=True)
    with torch.no_grad():
        hidden = model.encoder(batch, trace)
        assert len(trace.hidden) == len(model.encoder.plan) + 1
        assert torch.equal(trace.hidden[0], model.encoder.embedding(batch))
        assert torch.equal(model.encoder.norm(trace.hidden[-1]), hidden.last)
    assert trace.hidden[-2] is hidden.before
    assert not trace.maps
    steps = zip(trace.hidden, trace.hidden[1:], strict=False)
    assert all(difference(after, before) > 1e-3 for before, after in steps)


@pytest.mark.parametrize("name", TINY)
def test_maps_of_chosen_depths_and_heads(name: str) -> None:
    model, batch = tiny(name), ragged(LENGTHS)
    trace, everything = Trace(heads={0: None, 2: [3, 1]}), Trace(heads={0: None, 1: None, 2: None})
    with torch.no_grad():
        plain = model.encoder(batch)
        traced = model.encoder(batch, trace)
        model.encoder(batch, everything)
    assert torch.equal(traced.last, plain.last)
    assert not trace.hidden
    assert {depth: len(found) for depth, found in trace.maps.items()} == {0: 4, 2: 4}
    assert [tuple(m.shape) for m in trace.maps[0]] == [(4, n, n) for n in LENGTHS]
    assert [tuple(m.shape) for m in trace.maps[2]] == [(2, n, n) for n in LENGTHS]
    for depth in trace.maps:
        for weights in trace.maps[depth]:
            assert difference(weights.sum(-1), torch.ones(weights.shape[:2])) <= 1e-5
    for few, all_four in zip(trace.maps[2], everything.maps[2], strict=True):
        assert difference(few, all_four[[3, 1]]) <= 1e-6
    assert all(
        difference(a, b) > 1e-3
        for a, b in zip(everything.maps[0], everything.maps[2], strict=True)
        if a.shape[-1] > 1
    )


def test_maps_are_those_the_block_used() -> None:
    """Weights times values is what the attention of that depth returned."""
    model, batch, trace = tiny("bert"), ragged(LENGTHS), Trace(states=True, heads={1: None})
    attention = model.encoder.blocks[1].attention
    with torch.no_grad():
        model.encoder(batch, trace)
        value = attention.project(trace.hidden[1])[:, 2]
        mixed = [
            (weights @ v.transpose(0, 1)).transpose(0, 1)
            for weights, v in zip(trace.maps[1], batch.layout.split(value), strict=True)
        ]
        expected = attention(trace.hidden[1], Context(batch.layout))
        assert difference(torch.cat(mixed).flatten(1), expected) <= 1e-5


def test_local_layers_look_no_further_than_their_window() -> None:
    model, batch, trace = tiny("modernbert"), ragged([30]), Trace(heads={0: None, 1: None, 3: None})
    with torch.no_grad():
        model.encoder(batch, trace)
    place = torch.arange(30)
    far = (place[:, None] - place).abs() > 3
    for depth, local in ((0, False), (1, True), (3, False)):
        assert bool((trace.maps[depth][0][:, far] == 0).all()) == local


def test_shared_blocks_have_a_map_for_each_depth() -> None:
    model, batch = tiny("albert", num_hidden_groups=1), ragged(LENGTHS)
    assert len(model.encoder.blocks) == 1
    trace = Trace(heads={0: [0], 1: [0], 2: [0]})
    with torch.no_grad():
        model.encoder(batch, trace)
    assert list(trace.maps) == [0, 1, 2]
    assert difference(trace.maps[0][1], trace.maps[2][1]) > 1e-3


def test_maps_can_be_trained_through() -> None:
    model, trace = tiny("deberta"), Trace(heads={2: None})
    model.encoder(ragged(LENGTHS), trace)
    trace.maps[2][1][0, 0, 3].backward()
    table = model.encoder.signals[0].table.weight
    assert table.grad is not None
    assert table.grad.any()
