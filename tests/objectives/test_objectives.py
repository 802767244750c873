"""Objectives against what they should be, written out, and on every family."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import build, build_head, initialise
from bertsmith.objectives import (
    Contrastive,
    EncoderPass,
    FollowingTokens,
    MaskedTokens,
    MultiObjective,
    NextSentence,
    ReplacedTokens,
    SentenceOrder,
    generator_config,
)
from bertsmith.objectives.objective import best_guesses
from bertsmith.objectives.replaced import sample
from bertsmith.train.captured import inputs_of
from bertsmith.train.optimizer import optimizer_for
from model.tiny import TINY, tiny

LENGTHS = [9, 7, 7, 4]
GENERATOR = "objectives.0.generator"


def example(filler: int = 5, seed: int = 0) -> Example:
    """Four samples and a filler of random tokens, some to be guessed."""
    random = torch.Generator().manual_seed(seed)
    lengths = LENGTHS + ([filler] if filler else [])
    real, total = sum(LENGTHS), sum(lengths)
    ids = torch.randint(5, 50, (total,), generator=random)
    rows = torch.tensor([1, 4, 10, 12, 20, 25])
    targets = torch.randint(5, 50, (6,), generator=random)
    batch = Batch(ids, torch.zeros_like(ids), Layout.of(lengths))
    return Example(batch, rows, targets, torch.tensor([0, 1, 1, 0]), len(LENGTHS), real)


def terms(objective: Any, model: Any, given: Example) -> dict[str, Any]:
    return {term.name: term for term in objective.terms(EncoderPass(model, given), given)}


def test_masked_lm_is_cross_entropy_at_the_rows() -> None:
    model, given = tiny("bert"), example()
    found = terms(MaskedTokens(), model, given)["masked_lm"]
    logits = model(given.batch, "masked_lm")[given.rows]
    assert torch.allclose(found.sum, F.cross_entropy(logits, given.targets, reduction="sum"))
    assert int(found.correct) == int((logits.argmax(-1) == given.targets).sum())
    assert MaskedTokens().counts(given) == {"masked_lm": 6}


@pytest.mark.parametrize(
    ("objective", "family"), [(NextSentence, "bert"), (SentenceOrder, "albert")]
)
def test_pairs_are_judged_by_their_first_state(objective: Any, family: str) -> None:
    model, given = tiny(family), example()
    found = terms(objective(), model, given)[objective.name]
    logits = model(given.batch, objective.kind)[:4]  # the filler is no pair
    assert torch.allclose(found.sum, F.cross_entropy(logits, given.labels, reduction="sum"))
    assert objective().counts(given) == {objective.name: 4}
    with pytest.raises(BertsmithError, match="needs pairs"):
        terms(objective(), model, replace(given, labels=None))


def test_left_to_right_guesses_each_next_token() -> None:
    model, given = tiny("bert", is_decoder=True), example()
    found = terms(FollowingTokens(), model, given)["following_lm"]
    logits, loss = model(given.batch, "masked_lm"), 0.0
    start = 0
    for length in LENGTHS:
        part, ids = logits[start : start + length - 1], given.batch.ids[start : start + length]
        loss = loss + F.cross_entropy(part, ids[1:], reduction="sum")
        start += length
    assert torch.allclose(found.sum, torch.as_tensor(loss))
    assert FollowingTokens().counts(given) == {"following_lm": sum(LENGTHS) - 4}


def test_a_causal_model_does_not_see_what_follows() -> None:
    model, given = tiny("bert", is_decoder=True).eval(), example()
    other = given.batch.ids.clone()
    other[5:9] = 7  # the end of the first sequence
    with torch.no_grad():
        one = model.encoder(given.batch).last
        two = model.encoder(replace(given.batch, ids=other)).last
    assert torch.equal(one[:5], two[:5])
    assert not torch.allclose(one[5:9], two[5:9])


def test_left_to_right_is_refused_where_tokens_see_both_sides() -> None:
    with pytest.raises(BertsmithError, match="is_decoder"):
        FollowingTokens.head(create(TINY["bert"]).config)


def replaced(sharing: Any, **shape: float) -> tuple[Any, Any, ReplacedTokens]:
    checkpoint = create(TINY["electra"], heads=["replaced"], seed=1)
    small = build(generator_config(checkpoint.config, **shape)).eval()
    initialise(small, 0.15, torch.Generator().manual_seed(2))
    return checkpoint.model, small, ReplacedTokens(checkpoint.model, small, sharing)


@pytest.mark.parametrize("sharing", ["shared", "disentangled", "none"])
def test_replaced_tokens_are_what_the_generator_changed(sharing: Any) -> None:
    model, generator, objective = replaced(sharing, width=0.5)
    given = example()
    torch.manual_seed(3)
    found = terms(objective, model, given)
    torch.manual_seed(3)
    with torch.no_grad():
        logits = generator(given.batch, "masked_lm", given.rows)
        chosen = sample(logits)
        ids = given.batch.ids.clone()
        ids[given.rows] = chosen
        wanted = torch.zeros(given.tokens)
        wanted[given.rows] = (chosen != given.targets).float()
        scores = model(replace(given.batch, ids=ids), "replaced")[: given.tokens, 0]
    loss = F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    assert torch.allclose(found["replaced"].sum, loss, rtol=1e-5)
    generated = F.cross_entropy(logits, given.targets, reduction="sum")
    assert torch.allclose(found["generator"].sum, generated, rtol=1e-5)
    assert objective.counts(given) == {"generator": 6, "replaced": given.tokens}


@pytest.mark.parametrize("fills", [0.5, 0.3, 0.75])
def test_sequences_that_are_not_filled_are_guessed_in_the_same_pass(fills: float) -> None:
    checkpoint = create(TINY["electra"], heads=["replaced", "masked_lm"], seed=1)
    model, given = checkpoint.model, example().partly_filled(fills)
    assert given.filled is not None
    small = build(generator_config(checkpoint.config, width=0.5)).eval()
    initialise(small, 0.15, torch.Generator().manual_seed(2))
    objective = ReplacedTokens(model, small, "shared", fills)
    passes = []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    torch.manual_seed(3)
    found = terms(objective, model, given)
    assert len(passes) == 1
    chosen = [int((at + 1) * fills) > int(at * fills) for at in range(4)]
    judged = torch.tensor(
        [own for own, size in zip(chosen, LENGTHS, strict=True) for _ in range(size)]
    )
    assert 0 < sum(chosen) < 4
    rows, targets = example().rows, example().targets
    mine = judged[rows]
    assert given.filled == int(mine.sum())
    torch.manual_seed(3)
    with torch.no_grad():
        logits = small(given.batch, "masked_lm", torch.cat([rows[mine], rows[~mine]]))
        filled = sample(logits[: given.filled])
        batch = replace(given.batch, ids=given.batch.ids.index_copy(0, rows[mine], filled))
        wanted = torch.zeros(given.tokens)
        wanted[rows[mine]] = (filled != targets[mine]).float()
        scores = model(batch, "replaced")[: given.tokens, 0][judged]
        guesses = model(batch, "masked_lm", rows[~mine])
    right = ((scores > 0) == (wanted[judged] > 0)).sum()
    loss = F.binary_cross_entropy_with_logits(scores, wanted[judged], reduction="sum")
    assert torch.allclose(found["replaced"].sum, loss, rtol=1e-5)
    assert found["replaced"].correct == right
    masked = F.cross_entropy(guesses, targets[~mine], reduction="sum")
    assert torch.allclose(found["masked_lm"].sum, masked, rtol=1e-5)
    counts = {"generator": 6, "replaced": int(judged.sum()), "masked_lm": 6 - given.filled}
    assert objective.counts(given) == counts


def test_a_frozen_generator_is_neither_trained_nor_stored() -> None:
    checkpoint = create(TINY["electra"], heads=["replaced", "masked_lm"], seed=1)
    model, given = checkpoint.model, example().partly_filled(0.5)
    assert given.filled
    assert given.judged is not None
    frozen = create(TINY["electra"], heads=["masked_lm"], seed=2).model.eval()
    objective = ReplacedTokens(model, frozen, fills=0.5, frozen=True, temperature=2.0)
    learner = MultiObjective(model, [objective], {})
    assert objective.capturable
    assert not {*frozen.parameters()} & {*learner.parameters()}
    assert objective.counts(given) == {
        "replaced": int(given.judged.sum()),
        "masked_lm": 6 - given.filled,
    }
    torch.manual_seed(3)
    found = terms(objective, model, given)
    assert found.keys() == {"replaced", "masked_lm"}
    torch.manual_seed(3)
    mine, others = given.rows[: given.filled], given.rows[given.filled :]
    with torch.no_grad():
        chosen = sample(frozen(given.batch, "masked_lm", mine), 2.0)
        batch = replace(given.batch, ids=given.batch.ids.index_copy(0, mine, chosen))
        guesses = model(batch, "masked_lm", others)
    masked = F.cross_entropy(guesses, given.targets[given.filled :], reduction="sum")
    assert torch.allclose(found["masked_lm"].sum, masked, rtol=1e-5)
    found["replaced"].sum.backward()
    assert all(parameter.grad is None for parameter in frozen.parameters())


def test_a_batch_may_have_no_sequence_to_fill_or_none_to_guess() -> None:
    checkpoint = create(TINY["electra"], heads=["replaced", "masked_lm"], seed=1)
    frozen = create(TINY["electra"], heads=["masked_lm"], seed=2).model.eval()
    for fills, counts in ((0.1, {"replaced": 0, "masked_lm": 6}), (0.9, {})):
        given = example().partly_filled(fills)
        objective = ReplacedTokens(checkpoint.model, frozen, fills=fills, frozen=True)
        assert objective.counts(given).items() >= counts.items()
        found = terms(objective, checkpoint.model, given)
        total = sum(term.sum for term in found.values())
        assert torch.isfinite(torch.as_tensor(total))


@pytest.mark.parametrize("fills", [1.0, 0.5])
def test_rows_that_only_fill_up_a_shape_change_nothing(fills: float) -> None:
    checkpoint = create(TINY["electra"], heads=["replaced", "masked_lm"], seed=1)
    model, given = checkpoint.model, example().partly_filled(fills)
    frozen = create(TINY["electra"], heads=["masked_lm"], seed=2).model.eval()
    objective = ReplacedTokens(model, frozen, fills=fills, frozen=True, temperature=1e-4)
    inputs = inputs_of(given, {"replaced": 1.0})
    more = inputs.build(inputs.tensors)[0]
    assert len(more.rows) > len(given.rows)
    one, other = (terms(objective, model, each) for each in (given, more))
    assert one.keys() == other.keys()
    for name in one:
        assert torch.allclose(one[name].sum, other[name].sum)
        assert one[name].correct == other[name].correct


@pytest.mark.parametrize("generator", [False, True])
def test_a_pair_is_judged_in_a_pass_that_is_there_already(
    generator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = create(TINY["electra"], heads=["replaced"], seed=1)
    model, config = checkpoint.model, checkpoint.config
    model.heads["sentence_order"] = build_head(config, model.encoder, SentenceOrder.head(config))
    frozen = create(TINY["electra"], heads=["masked_lm"], seed=2).model.eval()
    passes = []
    real = type(model.encoder).forward

    def counted(self: Any, *given: Any) -> Any:
        passes.append(self is model.encoder)
        return real(self, *given)

    monkeypatch.setattr(type(model.encoder), "forward", counted)
    objectives: list[Any] = [SentenceOrder()]
    if generator:
        objectives.insert(0, ReplacedTokens(model, frozen, frozen=True))
    given = example()
    learner = MultiObjective(model, objectives, {})
    loss, _ = learner(given, learner.counts(given))
    assert torch.isfinite(loss)
    assert sum(passes) == 1


def test_samples_follow_the_probabilities() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, 2.0, -50.0]]).expand(100_000, 4)
    shares = torch.bincount(sample(logits), minlength=4) / 100_000
    assert torch.allclose(shares, logits[0].softmax(0), atol=0.01)


def test_no_sample_is_outside_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", torch.ones)  # a draw that rounding made the whole
    assert sample(torch.randn(3, 7)).tolist() == [6, 6, 6]


@pytest.mark.parametrize("sharing", ["shared", "disentangled", "none"])
def test_who_moves_which_table(sharing: Any) -> None:
    """Shared: one table. Disentangled: the model's gradient never moves the generator's table,
    and the generator's movement moves the model's. None: each for itself.
    """
    model, generator, objective = replaced(sharing, width=0.5)
    learner = MultiObjective(model, [objective], {"replaced": 50.0})
    mine, theirs = (m.encoder.embedding.token.weight for m in (model, generator))
    assert (mine is theirs) == (sharing == "shared")
    given = example()
    rate, before = 0.01, mine.detach().clone()
    start = theirs.detach().clone()
    if sharing == "disentangled":
        assert torch.equal(mine, theirs)
    alone = generator(given.batch, "masked_lm", given.rows)
    own = F.cross_entropy(alone, given.targets, reduction="sum") / 6
    own_gradient = torch.autograd.grad(own, theirs)[0]
    loss, _ = learner(given, learner.counts(given))
    loss.backward()
    grads = mine.grad.clone(), theirs.grad.clone()
    objective.before_step()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter -= rate * parameter.grad
    objective.after_step()
    moved = theirs.detach() - start
    assert torch.allclose(moved, -rate * grads[1], atol=1e-7)
    expected = before - rate * grads[0] + (moved if sharing == "disentangled" else 0)
    assert torch.allclose(mine, expected, atol=1e-6)
    # Only a shared table learns from both losses.
    assert torch.allclose(own_gradient, grads[1], atol=1e-6) == (sharing != "shared")


OWN, THEIRS = (f"{where}.encoder.embedding.token.weight" for where in ("model", GENERATOR))


def options(optimizer: str) -> Any:
    """High rate and decay: what is decayed twice, or not at all, shows at once."""
    return SimpleNamespace(
        optimizer=optimizer,
        learning_rate=0.05,
        matrix_learning_rate=0.05,
        weight_decay=0.5,
        betas=(0.9, 0.99),
        epsilon=1e-3,
        layer_decay=1.0,
    )


def disentangled() -> tuple[MultiObjective, ReplacedTokens]:
    model, _, objective = replaced("disentangled", width=0.5)
    return MultiObjective(model, [objective], {"replaced": 50.0}), objective


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "stable_adamw"])
def test_disentangled_sharing_is_two_parameters_and_their_sum(optimizer: str) -> None:
    """The reference has E and Δ as parameters, and computes the model's table from them."""
    learner, objective = disentangled()
    reference, _ = disentangled()
    parameters: dict[str, Any] = dict(reference.named_parameters())
    embedding, delta = parameters[THEIRS], torch.nn.Parameter(torch.zeros_like(parameters[OWN]))
    parameters[OWN] = delta
    mine = optimizer_for(learner, options(optimizer))
    holder = torch.nn.ParameterDict({n.replace(".", "_"): p for n, p in parameters.items()})
    theirs = optimizer_for(holder, options(optimizer))
    for step in range(6):
        given = example(seed=step)
        mine.clear()
        torch.manual_seed(step)
        learner(given, learner.counts(given))[0].backward()
        objective.before_step()
        mine.step()
        objective.after_step()
        theirs.clear()
        torch.manual_seed(step)
        table = {**parameters, OWN: embedding.detach() + delta}
        counts = reference.counts(given)
        torch.func.functional_call(reference, table, (given, counts))[0].backward()
        theirs.step()
    found = dict(learner.named_parameters())
    assert float(delta.detach().norm()) > 0.1
    torch.testing.assert_close(found[OWN], embedding + delta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[THEIRS], embedding, rtol=1e-4, atol=1e-5)


def test_a_model_that_is_trained_on_keeps_its_token_table_to_the_bit() -> None:
    checkpoint = create(TINY["electra"], heads=["replaced"], seed=1)
    table = checkpoint.model.encoder.embedding.token.weight
    before = table.detach().clone()
    small = build(generator_config(checkpoint.config, width=0.5))
    initialise(small, 0.15, torch.Generator().manual_seed(2))
    ReplacedTokens(checkpoint.model, small, "disentangled")
    assert torch.equal(table, before)
    assert torch.equal(small.encoder.embedding.token.weight, before)


def test_disentangled_sharing_of_sharded_tables() -> None:
    whole, objective = disentangled()
    sharded, other = disentangled()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
        for learner, one in ((whole, objective), (sharded, other)):
            optimizer = optimizer_for(learner, options("lamb"))
            torch.manual_seed(0)
            learner(example(), learner.counts(example()))[0].backward()
            one.before_step()
            optimizer.step()
            one.after_step()
        tables: Any = dict(sharded.named_parameters())
        for name, parameter in whole.named_parameters():
            torch.testing.assert_close(tables[name].full_tensor(), parameter)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("outputs", [2, 50])
def test_the_best_three_tokens_are_kept_outside_of_training(outputs: int) -> None:
    probabilities, ids = best_guesses(torch.randn(6, outputs))
    assert probabilities.shape == ids.shape == (6, min(3, outputs))
    model, given, objective = tiny("bert"), example(), MaskedTokens()
    learner = MultiObjective(model, [objective], {}).eval()
    learner(given, learner.counts(given))
    assert objective.best is not None
    expected = model(given.batch, "masked_lm", given.rows).softmax(-1).topk(3)
    torch.testing.assert_close(objective.best, (expected.values, expected.indices))
    assert not objective.best[0].requires_grad
    learner.train()
    learner(given, learner.counts(given))
    assert objective.best is None


def test_a_generator_is_of_its_models_kind() -> None:
    config = create(TINY["modernbert"]).config
    small = generator_config(config, width=0.5, depth=0.5)
    assert (small.width, small.attention_heads, len(small.plan)) == (16, 2, 2)
    assert small.token_width == config.token_width
    assert small.project_embedding
    same = generator_config(create(TINY["electra"]).config, width=1.0, depth=0.67)
    assert (same.width, len(same.plan), same.project_embedding) == (32, 2, True)


def test_terms_of_parts_add_up_to_those_of_the_whole() -> None:
    """Two parts, divided by the count of both, have the gradient of one batch of both."""
    model = tiny("bert")
    learner = MultiObjective(model, [MaskedTokens(), NextSentence()], {"next_sentence": 0.5})
    one, two = example(filler=0, seed=1), example(filler=3, seed=2)
    counts = learner.counts(one) + learner.counts(two)
    assert counts == {"masked_lm": 12, "next_sentence": 8}
    for part in (one, two):
        learner(part, counts)[0].backward()
    parts = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    ids = torch.cat([one.batch.ids, two.batch.ids])
    both = Example(
        Batch(ids, torch.zeros_like(ids), Layout.of([*LENGTHS, *LENGTHS, 3])),
        torch.cat([one.rows, two.rows + 27]),
        torch.cat([one.targets, two.targets]),
        torch.cat([one.labels, two.labels]),  # type: ignore[list-item]
        8,
        54,
    )
    loss, found = learner(both, counts)
    loss.backward()
    expected = found["masked_lm"][0] / 12 + 0.5 * found["next_sentence"][0] / 8
    assert torch.allclose(loss, expected)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(parts[name], parameter.grad, atol=1e-6), name


def contrastive(documents: list[int], texts: list[int]) -> Example:
    """Four texts, of which the first and last, and the second and third, are pairs."""
    pairs = torch.tensor([[0, texts[0]], [1, texts[1]], [1, texts[2]], [0, texts[3]]])
    return replace(example(), labels=torch.tensor(documents), pairs=pairs)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize(
    ("documents", "texts", "negatives"),
    [
        ([0, 1, 1, 0], [5, 6, 7, 8], [[1, 2], [0, 3], [0, 3], [1, 2]]),
        ([0, 1, 1, 0], [5, 6, 7, 5], [[1, 2], [0, 3], [0, 3], [1, 2]]),  # a pair of equal texts
        ([9, 9, 9, 9], [5, 6, 7, 8], [[], [], [], []]),  # two pairs of one document
        # Equal texts of two documents are not negatives of each other, nor of their partners.
        ([0, 1, 1, 0], [5, 5, 7, 8], [[2], [3], [3], [2]]),
    ],
)
def test_contrastive_is_cross_entropy_of_cosines(
    family: str, documents: list[int], texts: list[int], negatives: list[list[int]]
) -> None:
    model, given = tiny(family), contrastive(documents, texts)
    objective = Contrastive(0.1)
    found = terms(objective, model, given)["contrastive"]
    states = model.encoder(given.batch).last
    parts = states[: sum(LENGTHS)].split(LENGTHS)  # the filler is no text
    vectors = F.normalize(torch.stack([part.mean(0) for part in parts]), dim=-1)
    expected, right = torch.tensor(0.0), 0
    for text, partner in enumerate([3, 2, 1, 0]):
        others = [partner, *negatives[text]]
        cosines = torch.stack([vectors[text] @ vectors[other] for other in others])
        expected += F.cross_entropy(cosines / 0.1, torch.tensor(0))
        right += int(cosines.argmax() == 0)
    assert torch.allclose(found.sum, expected, atol=1e-4)
    assert int(found.correct) == right
    assert objective.counts(given) == {"contrastive": 4}


def test_contrastive_needs_pairs() -> None:
    with pytest.raises(BertsmithError, match="contrastive needs pairs"):
        terms(Contrastive(), tiny("bert"), example())
