"""A sequence's result does not depend on who lies beside it, in any family, under any head."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.batch import Batch
from bertsmith.model import Model
from model.tiny import TINY, alone, difference, ragged, tiny

HIDDEN = 1e-5
MODELS: dict[str, Model] = {}  # made once: a toy model is the same for every example


def model(name: str) -> Model:
    return MODELS.setdefault(name, tiny(name))


def outputs(name: str, batch: Batch) -> dict[str, list[torch.Tensor]]:
    """Final states and the outputs of every head, a sequence at a time."""
    made = model(name)
    with torch.no_grad():
        hidden = made.encoder(batch)
        found = {kind: head(hidden, batch) for kind, head in made.heads.items()}
    return {
        kind: list(x.split(1) if len(x) < batch.layout.total else batch.layout.split(x))
        for kind, x in {"hidden": hidden.last, **found}.items()
    }


@pytest.mark.parametrize("name", TINY)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=8, deadline=None)
def test_alone_or_in_company(name: str, lengths: list[int], seed: int, data: st.DataObject) -> None:
    parts = alone(ragged(lengths, seed))
    order = data.draw(st.permutations(range(len(parts))))
    together = outputs(
        name,
        Batch.of(
            [parts[which].ids.tolist() for which in order],
            [parts[which].segments.tolist() for which in order],
        ),
    )
    for place, which in enumerate(order):
        for kind, (expected,) in outputs(name, parts[which]).items():
            found = together[kind][place]
            assert difference(found, expected) <= HIDDEN * max(1.0, float(expected.abs().max()))


def test_long_local_sequences_in_company() -> None:
    """Sequences longer than a chunk of local attention, which the toy lengths are not."""
    made = tiny("modernbert", max_position_embeddings=1024, local_attention=100)
    batch = ragged([600, 300, 2, 300, 257])
    with torch.no_grad():
        found = batch.layout.split(made.encoder(batch).last)
        for mine, other in zip(found, alone(batch), strict=True):
            assert difference(mine, made.encoder(other).last) <= HIDDEN


@pytest.mark.parametrize("name", TINY)
def test_neighbours_get_no_gradient(name: str) -> None:
    """The loss of one sequence reaches its own embeddings and nobody else's."""
    made, batch = model(name), ragged([5, 9, 9, 2])
    kept: list[torch.Tensor] = []
    hook = made.encoder.embedding.register_forward_hook(lambda _, __, x: kept.append(x))
    try:
        hidden = made.encoder(batch)
        heads = [head(hidden, batch) for head in made.heads.values()]
    finally:
        hook.remove()
    mine = sum(x[1].square().sum() for x in heads if len(x) == 4)
    mine = mine + sum(x[5:14].square().sum() for x in heads if len(x) == 25)
    (pull,) = torch.autograd.grad(mine, kept)
    rows = pull.abs().sum(1) > 0
    assert rows[5:14].all()
    assert not rows[:5].any()
    assert not rows[14:].any()


@pytest.mark.parametrize("name", TINY)
def test_the_reference_kernel_gives_the_same_model(name: str) -> None:
    made, batch = tiny(name), ragged([5, 30, 30, 1])
    with torch.no_grad():
        chosen = made.encoder(batch).last
        made.use_kernel("reference")
        assert {m.kernel for m in made.modules() if hasattr(m, "kernel")} == {"reference"}
        assert difference(made.encoder(batch).last, chosen) <= HIDDEN


@pytest.mark.parametrize("name", TINY)
def test_rows_are_those_of_the_whole(name: str) -> None:
    made, batch = model(name), ragged([5, 30, 30, 1])
    rows = torch.tensor([0, 64, 7, 7])
    with torch.no_grad():
        assert difference(made(batch, "masked_lm", rows), made(batch, "masked_lm")[rows]) <= 1e-5
        assert torch.equal(made(batch, "classify", rows), made(batch, "classify"))
