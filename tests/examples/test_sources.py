"""Spans, pairs and crops: what is in them, how often, and that nothing is lost."""

from typing import Any

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.examples import Crops, Pairs, Spans
from bertsmith.tokenizer import Tokenizer
from examples.memory import MemoryCorpus

MILLION = np.arange(1_000_000)


def pieces(sequences: Any) -> list[list[int]]:
    return [row.tolist() for row in np.split(sequences.ids, np.cumsum(sequences.lengths)[:-1])]


@pytest.mark.parametrize("length", [8, 16, 33, 64, 500])
def test_an_epoch_of_spans_is_the_whole_text_once(corpus: Any, length: int) -> None:
    spans = Spans(corpus, length=length, seed=1)
    for epoch in (0, 1):
        plan = spans.plan(np.arange(spans.count) + epoch * spans.count)
        seen = np.zeros(corpus.tokens, dtype=int)
        for start, size in zip(plan.starts, plan.lengths - 2, strict=True):
            seen[start : start + size] += 1
        assert (seen == 1).all()
        assert plan.lengths.max() <= length


def test_spans_do_not_cross_documents_and_are_no_stumps(corpus: Any) -> None:
    spans = Spans(corpus, length=16)
    plan = spans.plan(np.arange(spans.count))
    document = np.searchsorted(corpus.document_starts, plan.starts, "right") - 1
    ends = corpus.document_starts[document + 1]
    assert (plan.starts + plan.lengths - 2 <= ends).all()
    whole = np.diff(corpus.document_starts)[document]
    assert ((plan.lengths - 2 >= 7) | (whole < 14)).all()


def test_a_span_is_dressed_as_the_tokenizer_would(corpus: Any, tokenizer: Tokenizer) -> None:
    spans = Spans(corpus, length=16)
    plan = spans.plan(np.arange(20))
    made = pieces(spans.make(plan))
    for ids, start, size in zip(made, plan.starts, plan.lengths - 2, strict=True):
        assert ids == tokenizer.build(corpus.row[start : start + size].tolist())[0]


def test_joined_spans_are_full_and_have_a_separator_behind_each_document(
    corpus: Any, tokenizer: Tokenizer
) -> None:
    spans = Spans(corpus, length=32, joined=True)
    plan = spans.plan(np.arange(spans.count))
    made = dict(zip(plan.starts.tolist(), pieces(spans.make(plan)), strict=True))
    assert sorted(map(len, made.values()))[1] == 32
    row = [token for start in sorted(made) for token in made[start][1:-1]]
    expected: list[int] = []
    for document in np.split(corpus.row, corpus.document_starts[1:-1]):
        expected += [*document.tolist(), tokenizer.sep_id]
    assert row == expected


def test_half_of_a_million_pairs_follow_each_other(corpus: Any) -> None:
    pairs = Pairs(corpus, length=64)
    plan = pairs.plan(MILLION)
    assert abs(plan.labels.mean() - 0.5) < 0.002
    first = np.searchsorted(corpus.document_starts, plan.starts, "right") - 1
    second = np.searchsorted(corpus.document_starts, plan.second_starts, "right") - 1
    follows = plan.labels == 0
    assert (first[follows] == second[follows]).all()
    assert (first[~follows] != second[~follows]).all()
    # Documents are chosen by their text, for a random second as for the first.
    ours, others = (np.bincount(x[~follows], minlength=corpus.documents) for x in (first, second))
    assert ((ours > 0) == (others > 0)).all()
    assert (np.abs(ours - others) < 0.1 * ours + 100).all()


def told(labels: Any, *features: Any) -> float:
    """The accuracy of the best guess of a label from some numbers."""
    kind = np.zeros(len(labels), dtype=np.int64)
    for feature in features:
        kind = kind * 256 + feature
    kind = np.unique(kind, return_inverse=True)[1]
    ones, all_of_kind = np.bincount(kind, labels), np.bincount(kind)
    return float(np.maximum(ones, all_of_kind - ones).sum() / len(labels))


@pytest.mark.parametrize("length", [64, 200])
def test_lengths_do_not_tell_what_follows(corpus: Any, length: int) -> None:
    plan = Pairs(corpus, length=length).plan(np.arange(200_000))
    assert told(plan.labels, plan.lengths) < 0.52
    assert told(plan.labels, plan.sizes // 16, plan.second_sizes // 16) < 0.53
    # Nor does it help to see where sentences begin and end.
    ends = plan.second_starts + plan.second_sizes
    borders = [np.isin(x, corpus.sentence_starts) for x in (plan.second_starts, ends)]
    assert told(plan.labels, plan.lengths // 16, *borders) < 0.54


def test_a_tenth_of_a_million_pairs_is_short(corpus: Any) -> None:
    long = MemoryCorpus([[[7] * 20] * 40] * 3, corpus.tokenizer)
    lengths = Pairs(long, length=64).plan(MILLION).lengths
    full = (lengths == 64).mean()
    # Those that begin in a document's last sentences are short as well: about 3 of 40.
    assert 0.80 < full < 0.90
    none = Pairs(long, length=64, short=0.0).plan(MILLION).lengths
    assert abs((none == 64).mean() - full - 0.1 * (none == 64).mean()) < 0.01


def test_what_follows_is_what_follows_in_the_text(corpus: Any) -> None:
    pairs = Pairs(corpus, length=200, short=0.0)  # long enough that nothing is cut
    plan = pairs.plan(np.arange(20_000))
    whole = plan.lengths < 200
    follows = (plan.labels == 0) & whole
    assert follows.sum() > 1000
    assert (plan.starts + plan.sizes == plan.second_starts)[follows].all()
    assert np.isin(plan.starts[whole], corpus.sentence_starts).all()
    assert np.isin(plan.second_starts[whole], corpus.sentence_starts).all()


def test_swapped_pairs_are_the_same_texts(corpus: Any) -> None:
    plan = Pairs(corpus, length=64, kind="order").plan(MILLION)
    assert abs(plan.labels.mean() - 0.5) < 0.002
    swapped = plan.labels == 1
    assert (plan.starts[~swapped] < plan.second_starts[~swapped]).all()
    assert (plan.starts[swapped] > plan.second_starts[swapped]).all()


def test_lengths_do_not_tell_the_order(corpus: Any) -> None:
    """Two long texts are cut to halves; which of them has the odd token must not depend on it."""
    plan = Pairs(corpus, length=64, kind="order", short=0.0).plan(MILLION)
    more = plan.sizes - plan.second_sizes
    as_it_was, swapped = (more[(np.abs(more) <= 1) & (plan.labels == label)] for label in (0, 1))
    assert min(len(as_it_was), len(swapped)) > 1000
    assert abs((as_it_was > 0).mean() - (swapped > 0).mean()) < 0.1


@pytest.mark.parametrize("kind", ["next", "order"])
@pytest.mark.parametrize("length", [6, 16, 64])
def test_pairs_fit_and_no_text_is_empty(corpus: Any, kind: Any, length: int) -> None:
    pairs = Pairs(corpus, length=length, kind=kind)
    plan = pairs.plan(np.arange(100_000))
    assert plan.lengths.max() <= length
    assert plan.sizes.min() >= 1
    assert plan.second_sizes.min() >= 1
    made = pairs.make(pairs.plan(np.arange(50)))
    for ids, a, n, b, m in zip(pieces(made), *(x[:50] for x in plan[:4]), strict=True):
        texts = (corpus.row[a : a + n].tolist(), corpus.row[b : b + m].tolist())
        assert ids == corpus.tokenizer.build(*texts)[0]


def test_pairs_are_cut_as_bert_cuts_them(corpus: Any) -> None:
    """The longer text gives way until both fit, so the shorter is whole or half."""
    plan = Pairs(corpus, length=23, short=0.0).plan(np.arange(100_000))
    both = np.minimum(plan.sizes, plan.second_sizes)
    full = plan.lengths == 23
    uncut = np.isin(plan.starts, corpus.sentence_starts)
    assert ((both >= 10) | uncut | (plan.second_sizes == both))[full].all()


def test_a_sample_does_not_depend_on_its_neighbours(corpus: Any) -> None:
    for source in (Spans(corpus, length=32), Pairs(corpus, length=32)):
        together = source.make(source.plan(np.arange(100, 150)))
        for number in (100, 120, 149):
            alone = source.make(source.plan(np.array([number])))
            assert alone.ids.tolist() == pieces(together)[number - 100]


def test_seeds_differ(corpus: Any) -> None:
    a, b = (Spans(corpus, length=32, seed=seed).plan(np.arange(50)) for seed in (0, 1))
    assert (a.starts != b.starts).mean() > 0.9


def test_what_cannot_be_sampled(tokenizer: Tokenizer) -> None:
    single = MemoryCorpus([[[7, 8]], [[9]]], tokenizer)
    with pytest.raises(BertsmithError, match="no document has two sentences"):
        Pairs(single, length=32)  # type: ignore[arg-type]
    one = MemoryCorpus([[[7, 8], [9]]], tokenizer)
    with pytest.raises(BertsmithError, match="one document has no other"):
        Pairs(one, length=32)  # type: ignore[arg-type]
    assert Pairs(one, length=32, kind="order").count == 1  # type: ignore[arg-type]
    with pytest.raises(BertsmithError, match="leaves no room for text"):
        Spans(one, length=3)  # type: ignore[arg-type]
    mixed = MemoryCorpus([[[7, 8], [9]], [[5]]], tokenizer)
    lines = Pairs(mixed, length=32).ledger.lines()  # type: ignore[arg-type]
    assert lines == ["documents of one sentence, which cannot be the first of a pair: 1"]


def test_both_texts_of_a_pair_are_of_one_document(corpus: Any) -> None:
    crops = Crops(corpus, length=32, titles=0.2, sentences=0.3, same=0.1, seed=3)
    samples = np.arange(crops.count)
    plan = crops.plan(samples)
    assert (plan.labels == samples // 2).all()
    sizes = plan.lengths - 2
    assert sizes.min() >= 1
    assert plan.lengths.max() == 32
    document = np.searchsorted(corpus.document_starts, plan.starts, "right") - 1
    assert (plan.starts + sizes <= corpus.document_starts[document + 1]).all()
    first, second = document.reshape(-1, 2).T
    assert (first == second).all()
    assert (sizes[1::2] >= 8).all()  # all documents that are used have as many
    kept = np.diff(corpus.document_starts) >= 16
    assert set(first.tolist()) == set(np.flatnonzero(kept).tolist())


def test_crops_say_which_texts_are_no_negatives(corpus: Any, tokenizer: Tokenizer) -> None:
    """Those of one document, and equal ones of two documents."""
    crops = Crops(corpus, length=32, seed=3)
    plan = crops.plan(np.arange(crops.count))
    made = crops.make(plan)
    document = np.searchsorted(corpus.document_starts, plan.starts, "right") - 1
    assert (made.labels == document).all()
    assert made.pairs is not None
    assert (made.pairs[:, 0] == np.arange(crops.count) // 2).all()
    texts = list(map(tuple, pieces(made)))
    assert 1 < len(set(texts)) < len(texts)
    assert len(set(zip(texts, made.pairs[:, 1].tolist(), strict=True))) == len(set(texts))
    assert len(set(made.pairs[:, 1].tolist())) == len(set(texts))
    heading = [7, 8, 9]
    twins = MemoryCorpus([[heading, [n] * 20] for n in (10, 11)], tokenizer)
    first = Crops(twins, length=32, titles=1.0, sentences=0.0)
    made = first.make(first.plan(np.arange(4)))
    assert made.labels is not None
    assert made.pairs is not None
    assert made.labels[0] != made.labels[2]
    assert made.pairs[0, 1] == made.pairs[2, 1]


def test_first_texts_are_of_the_kinds_that_were_asked_for(corpus: Any) -> None:
    def firsts(**shares: float) -> Any:
        crops = Crops(corpus, length=64, **{"titles": 0, "sentences": 0, "same": 0, **shares})
        plan = crops.plan(np.arange(2000))
        return plan.starts.reshape(-1, 2), plan.lengths.reshape(-1, 2) - 2

    starts, _ = firsts(titles=1)
    assert np.isin(starts[:, 0], corpus.document_starts).all()
    starts, sizes = firsts(sentences=1)
    assert np.isin(starts[:, 0], corpus.sentence_starts).all()
    assert np.isin((starts + sizes)[:, 0], corpus.sentence_starts).all()
    starts, sizes = firsts(same=1)
    assert (starts[:, 0] == starts[:, 1]).all()
    assert (sizes[:, 0] == sizes[:, 1]).all()
    starts, _ = firsts()
    assert (starts[:, 0] != starts[:, 1]).mean() > 0.7


def test_crops_are_a_function_of_their_numbers(corpus: Any) -> None:
    crops = Crops(corpus, length=32, seed=5)
    whole = pieces(crops.make(crops.plan(np.arange(100))))
    assert pieces(crops.make(crops.plan(np.arange(40, 60)))) == whole[40:60]


def test_documents_too_short_for_two_texts_are_noted(tokenizer: Tokenizer) -> None:
    crops = Crops(MemoryCorpus([[[7] * 20], [[8] * 20], [[9] * 15]], tokenizer), length=16)
    assert crops.ledger.counts["documents too short for two texts"] == 1
    with pytest.raises(BertsmithError, match="fewer than two documents hold two texts"):
        Crops(MemoryCorpus([[[7] * 20], [[9] * 15]], tokenizer), length=16)
