"""Steps: filled to a budget, divided evenly, the same for any number of ranks and workers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.examples import Crops, Examples, Loader, Masking, Pairs, Spans, divide
from bertsmith.examples.loader import LoadedStep, StepRequest


@pytest.fixture(params=["spans", "pairs"])
def examples(request: pytest.FixtureRequest, corpus: Any) -> Examples:
    source = Spans(corpus, length=32) if request.param == "spans" else Pairs(corpus, length=32)
    return Examples(source, Masking(corpus.tokenizer))


@pytest.mark.parametrize(("tokens", "micro"), [(1000, 300), (32, 32), (5000, 5000), (10, 10)])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_is_filled_and_none_is_left_out(
    examples: Examples, tokens: int, micro: int, ranks: int
) -> None:
    position = 7
    for _ in range(5):
        plan = examples.plan(position, tokens=tokens, micro_tokens=micro, ranks=ranks)
        assert plan.position == position
        batches = [batch for share in plan.micro_batches for batch in share]
        numbers = sorted(int(one) for batch in batches for one in batch)
        assert numbers == list(range(position, plan.end))
        sizes = [int(examples.source.plan(batch).lengths.sum()) for batch in batches]
        more = int(examples.source.plan(np.array([plan.end])).lengths[0])
        assert sum(sizes) <= tokens or len(numbers) == 1
        assert sum(sizes) + more > tokens
        assert all(size <= micro + examples.source.longest for size in sizes)
        assert len({len(share) for share in plan.micro_batches}) == 1
        position = plan.end


lengths = st.lists(st.integers(1, 512), min_size=1, max_size=300)


@given(lengths, st.integers(1, 70), st.integers(8, 5000), st.sampled_from([1, 64]))
def test_samples_are_divided_evenly(
    lengths: list[int], ranks: int, micro_tokens: int, fill: int
) -> None:
    sizes = np.array(lengths)
    shares, useful = divide(sizes, ranks=ranks, micro_tokens=micro_tokens, fill=fill)
    batches = [batch for share in shares for batch in share]
    assert len(shares) == ranks
    assert sorted(int(one) for batch in batches for one in batch) == list(range(len(sizes)))
    assert 0 < useful <= 1
    sums = [int(sizes[batch].sum()) for batch in batches]
    assert max(sums) <= sum(sums) / len(sums) + max(lengths)
    assert max(sums) <= micro_tokens + max(lengths)
    if fill == 1:
        slowest = max(sum(int(sizes[batch].sum()) for batch in share) for share in shares)
        assert useful == pytest.approx(sizes.sum() / (ranks * slowest))


def test_full_sequences_leave_no_rank_waiting() -> None:
    for ranks in (1, 2, 4, 8, 64):
        assert divide(np.full(256, 128), ranks=ranks, micro_tokens=32_768).useful == 1.0


def test_an_example_holds_what_its_samples_are(examples: Examples) -> None:
    made = examples.make(np.arange(5, 25), fill=64)
    assert made.samples == 20
    assert made.batch.layout.total % 64 == 0
    assert made.tokens == sum(made.batch.layout.lengths[:20])
    assert len(made.batch.ids) - made.tokens < 64
    lengths = made.batch.layout.lengths[:20]
    assert list(lengths) == sorted(lengths, reverse=True)
    assert int(made.rows.max()) < made.tokens
    assert max(made.batch.layout.lengths) <= 32
    plain = examples.make(np.arange(5, 25))
    assert torch.equal(made.batch.ids[: made.tokens], plain.batch.ids)
    assert torch.equal(made.rows, plain.rows)


def test_segments_that_a_model_does_not_have(corpus: Any) -> None:
    source = Pairs(corpus, length=32)
    for segments, most in ((2, 1), (1, 0), (0, 0)):
        made = Examples(source, None, segments).make(np.arange(10))
        assert int(made.batch.segments.max()) == most
    assert len(made.rows) == 0


def loaded(examples: Examples, **options: Any) -> list[LoadedStep]:
    def request(step: int) -> StepRequest | None:
        return StepRequest(examples, 600, 150) if step < 6 else None

    loader = Loader(request, **options)
    try:
        return list(iter(loader.next, None))
    finally:
        loader.close()


def sequences(steps: list[LoadedStep]) -> list[tuple[int, ...]]:
    """What ranks read of their own in a step, in any order: ids and where to predict."""
    found = []
    for one in steps:
        for example, active in zip(one.examples, one.active, strict=True):
            bounds = example.batch.layout.boundaries.tolist()
            for first, last in pairwise(bounds[: example.samples + 1] if active else []):
                rows = [r - first for r in example.rows.tolist() if first <= r < last]
                found.append((*example.batch.ids[first:last].tolist(), -1, *rows))
    return sorted(found)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 40])
def test_ranks_and_workers_see_the_same_samples(
    examples: Examples, ranks: int, workers: int
) -> None:
    alone = loaded(examples, workers=1)
    shares = [loaded(examples, rank=r, ranks=ranks, workers=workers) for r in range(ranks)]
    for step, whole in enumerate(alone):
        steps = [share[step] for share in shares]
        assert len({len(one.examples) for one in steps}) == 1  # all ranks make as many passes
        assert sequences(steps) == sequences([whole])
        assert sum(one.tokens for one in steps) == whole.tokens


def test_a_loader_goes_on_from_any_position(examples: Examples) -> None:
    whole = loaded(examples)
    rest = loaded(examples, step=2, position=whole[1].plan.end)
    assert [one.plan.end for one in rest] == [one.plan.end for one in whole[2:]]
    assert torch.equal(rest[0].examples[0].batch.ids, whole[2].examples[0].batch.ids)


def test_a_fault_in_a_worker_is_not_swallowed(examples: Examples) -> None:
    def broken(samples: Any, fill: int = 1) -> Any:
        raise RuntimeError("the disk is gone")

    examples.make = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        loaded(examples)


def test_an_empty_micro_batch_takes_a_whole_pair(corpus: Any) -> None:
    examples = Examples(Crops(corpus, length=33), None)
    loader = Loader(lambda step: StepRequest(examples, 60, 8) if step < 3 else None, ranks=2)
    try:
        steps = list(iter(loader.next, None))
    finally:
        loader.close()
    assert not all(active for step in steps for active in step.active)
    assert all(example.samples % 2 == 0 for step in steps for example in step.examples)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("tokens", [900, 520, 50])  # 520: an odd number would be drawn ahead
def test_the_texts_of_a_pair_share_a_micro_batch(corpus: Any, ranks: int, tokens: int) -> None:
    examples = Examples(Crops(corpus, length=33), None)
    position = 0
    for _ in range(3):
        plan = examples.plan(position, tokens=tokens, micro_tokens=200, ranks=ranks)
        parts = [part for share in plan.micro_batches for part in share]
        assert sorted(np.concatenate(parts).tolist()) == list(range(position, plan.end))
        for part in parts:
            assert (np.bincount(part // 2)[part // 2] == 2).all()
            if len(part):
                labels = examples.make(part).pairs
                assert labels is not None
                assert sorted(labels[:, 0].tolist()) == sorted((part // 2).tolist())
        position = plan.end
