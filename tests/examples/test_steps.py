"""Steps: filled to a budget, cut into parts, the same for any number of ranks and workers."""

from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.examples import Examples, Loader, Masking, Pairs, Spans
from bertsmith.examples.loader import Loaded, Wanted


@pytest.fixture(params=["spans", "pairs"])
def examples(request: pytest.FixtureRequest, corpus: Any) -> Examples:
    source = Spans(corpus, length=32) if request.param == "spans" else Pairs(corpus, length=32)
    return Examples(source, Masking(corpus.tokenizer))


@pytest.mark.parametrize(("tokens", "most"), [(1000, 300), (32, 32), (5000, 5000), (10, 10)])
def test_a_step_is_filled_and_none_is_left_out(examples: Examples, tokens: int, most: int) -> None:
    position = 7
    for _ in range(5):
        plan = examples.plan(position, tokens=tokens, most=most)
        assert plan.position == position
        numbers = [first + k for first, count in plan.parts for k in range(count)]
        assert numbers == list(range(position, plan.end))
        sizes = [
            int(examples.source.plan(np.arange(f, f + n)).lengths.sum()) for f, n in plan.parts
        ]
        more = int(examples.source.plan(np.array([plan.end])).lengths[0])
        assert sum(sizes) <= tokens or len(numbers) == 1
        assert sum(sizes) + more > tokens
        assert all(size <= most for size in sizes) or len(numbers) == 1
        position = plan.end


def test_an_example_holds_what_its_samples_are(examples: Examples) -> None:
    made = examples.make((5, 20), fill=64)
    assert made.samples == 20
    assert made.batch.layout.total % 64 == 0
    assert made.tokens == sum(made.batch.layout.lengths[:20])
    assert len(made.batch.ids) - made.tokens < 64
    lengths = made.batch.layout.lengths[:20]
    assert list(lengths) == sorted(lengths, reverse=True)
    assert int(made.rows.max()) < made.tokens
    assert max(made.batch.layout.lengths) <= 32
    plain = examples.make((5, 20))
    assert torch.equal(made.batch.ids[: made.tokens], plain.batch.ids)
    assert torch.equal(made.rows, plain.rows)


def test_segments_that_a_model_does_not_have(corpus: Any) -> None:
    source = Pairs(corpus, length=32)
    for segments, most in ((2, 1), (1, 0), (0, 0)):
        made = Examples(source, None, segments).make((0, 10))
        assert int(made.batch.segments.max()) == most
    assert len(made.rows) == 0


def loaded(examples: Examples, **options: Any) -> list[Loaded]:
    def wanted(step: int) -> Wanted | None:
        return Wanted(examples, 600, 150) if step < 6 else None

    return list(Loader(wanted, **options))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_ranks_and_workers_see_the_same_samples(
    examples: Examples, ranks: int, workers: int
) -> None:
    alone = loaded(examples, workers=1)
    shares = [loaded(examples, rank=r, ranks=ranks, workers=workers) for r in range(ranks)]
    for step, whole in enumerate(alone):
        steps = [share[step] for share in shares]
        assert len({len(one.parts) for one in steps}) == 1  # all ranks do as many passes
        real = [
            (number * ranks + rank, part)
            for rank, one in enumerate(steps)
            for number, (part, idle) in enumerate(zip(one.parts, one.idle, strict=True))
            if not idle
        ]
        found = [part for _, part in sorted(real, key=lambda pair: pair[0])]
        assert len(found) == len(whole.parts)
        for mine, expected in zip(found, whole.parts, strict=True):
            assert torch.equal(mine.batch.ids, expected.batch.ids)
            assert torch.equal(mine.rows, expected.rows)


def test_a_loader_goes_on_from_any_position(examples: Examples) -> None:
    whole = loaded(examples)
    rest = loaded(examples, step=2, position=whole[1].plan.end)
    assert [one.plan for one in rest] == [one.plan for one in whole[2:]]
    assert torch.equal(rest[0].parts[0].batch.ids, whole[2].parts[0].batch.ids)


def test_a_fault_in_a_worker_is_not_swallowed(examples: Examples) -> None:
    def broken(part: Any, fill: int = 1) -> Any:
        raise RuntimeError("the disk is gone")

    examples.make = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        loaded(examples)
