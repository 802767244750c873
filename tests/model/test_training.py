"""Fresh weights, gradients, dropout, half precision: what training needs of every family."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bertsmith.checkpoint import create
from bertsmith.families import FAMILIES
from bertsmith.model import Model, initialise
from model.tiny import TINY, difference, ragged, tiny

LENGTHS = [5, 30, 1, 30, 60]


def loss(model: Model) -> Tensor:
    """A number to which every head contributes."""
    batch = ragged(LENGTHS)
    hidden = model.encoder(batch)
    total = hidden.last.square().mean()
    for head in model.heads.values():
        total = total + head(hidden, batch).square().mean()
    return total


def tables(model: Model) -> Iterator[str]:
    """Names of parameters some of whose rows no batch touches."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            yield f"{path}.weight"


def test_toys_cover_the_families() -> None:
    with_layers = set(FAMILIES) - {"static"}  # which has none: tests/distilling
    assert {settings["model_type"] for settings in TINY.values()} == with_layers


@pytest.mark.parametrize("name", TINY)
def test_gradients_reach_every_parameter(name: str) -> None:
    model = tiny(name).train()
    loss(model).backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path
        assert parameter.grad.abs().max() > 1e-7 or path.endswith("position_key.bias"), path
    spared = set(tables(model))
    for path, parameter in model.encoder.named_parameters(prefix="encoder"):
        if parameter.ndim > 1 and path not in spared:
            assert (parameter.grad.abs().sum(1) > 0).all(), path


@pytest.mark.parametrize("name", TINY)
def test_gradients_are_the_slopes(name: str) -> None:
    """A step along a random direction changes the loss as its gradient says."""
    model = tiny(name).double()
    parameters = list(model.parameters())
    random = torch.Generator().manual_seed(3)
    slopes = torch.autograd.grad(loss(model), parameters)
    steps = [torch.randn(p.shape, generator=random, dtype=torch.float64) for p in parameters]
    expected = sum(float((slope * step).sum()) for slope, step in zip(slopes, steps, strict=True))
    found, size = [], 1e-5
    for sign in (1, -1):
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, step in zip(moved.parameters(), steps, strict=True):
                parameter += sign * size * step
            found.append(float(loss(moved)))
    slope = (found[0] - found[1]) / (2 * size)
    assert slope == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("name", TINY)
def test_dropout_acts_in_training_only(name: str) -> None:
    model = tiny(name)
    with torch.no_grad():
        assert torch.equal(loss(model), loss(model))
        model.train()
        if name in (
            "albert",
            "modernbert",
            "nomic_bert",
        ):  # published without dropout in the encoder
            assert rates(model.encoder) == {0.0}
            return
        assert rates(model.encoder) == {0.0, 0.1} or rates(model.encoder) == {0.1}
        assert not torch.equal(loss(model), loss(model))
        model.eval()
        assert torch.equal(loss(model), loss(model))


def rates(module: nn.Module) -> set[float]:
    """All dropout rates in use."""
    parts = [part.p for part in module.modules() if isinstance(part, nn.Dropout)]
    return {*parts, *(part.dropout for part in module.modules() if hasattr(part, "kernel"))}


@pytest.mark.parametrize("kind", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_kind_of_dropout_acts(kind: str) -> None:
    both = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    batch = ragged(LENGTHS)
    for rate in (0.0, 0.5):
        model = tiny("bert", **{**both, kind: rate}).train()
        with torch.no_grad():
            same = torch.equal(model.encoder(batch).last, model.encoder(batch).last)
        assert same == (rate == 0.0)


@pytest.mark.parametrize(
    ("name", "kind", "rate"),
    [
        ("bert", "pooler", 0.0),
        ("bert", "next_sentence", 0.0),
        ("bert", "classify", 0.1),
        ("roberta", "pooler", 0.0),
        ("albert", "pooler", 0.0),
        ("albert", "sentence_order", 0.1),
        ("albert", "tag", 0.1),
        ("distilbert", "classify", 0.2),
        ("distilbert", "answer", 0.1),
        ("electra", "choose", 0.1),
        ("modernbert", "classify", 0.0),
    ],
)
def test_heads_drop_what_their_authors_drop(name: str, kind: str, rate: float) -> None:
    assert rates(tiny(name).heads[kind]) == {rate}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", TINY)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    model, batch = tiny(name), ragged(LENGTHS)
    room = {torch.float16: 0.02, torch.bfloat16: 0.15}[dtype]
    with torch.no_grad():
        exact = model.encoder(batch)
        half = copy.deepcopy(model).to(dtype)
        hidden = half.encoder(batch)
        assert hidden.last.dtype == dtype
        assert difference(hidden.last.float(), exact.last) <= room
        for kind, head in half.heads.items():
            found, expected = head(hidden, batch).float(), model.heads[kind](exact, batch)
            assert difference(found, expected) <= room * max(1.0, float(expected.abs().max())), kind


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name in TINY if name.startswith("deberta")])
def test_loud_scores_in_half_precision(name: str, dtype: torch.dtype) -> None:
    """Products of queries and keys beyond float16's range, as trained DeBERTas come near."""
    model, batch = tiny(name), ragged(LENGTHS)
    with torch.no_grad():
        for block in model.encoder.blocks:
            attention = getattr(block, "block", block).attention
            attention.scores = attention.scores._replace(scale=attention.scores.scale / 4e4)
            inner = attention.qkv.weight.shape[0] // 3
            attention.qkv.weight[: 2 * inner] *= 200
            for part in ("position_key", "position_query"):
                if getattr(attention, part, None) is not None:
                    getattr(attention, part).weight.mul_(200)
        query, key, _ = attention.project(model.encoder(batch).before).unbind(1)
        assert torch.einsum("ihd,jhd->hij", query, key).abs().max() > 65504
        for kernel in ("reference", "runs"):
            half = copy.deepcopy(model).to(dtype)
            half.use_kernel(kernel)
            hidden = half.encoder(batch)
            assert hidden.last.isfinite().all()
            assert difference(hidden.last.float(), model.encoder(batch).last) <= 0.3
            assert half.heads["masked_lm"](hidden, batch).isfinite().all()


@pytest.mark.parametrize("name", TINY)
def test_inference_first_and_training_after(name: str) -> None:
    """Nothing made in inference mode is kept to be found again in training."""
    model, batch = tiny(name), ragged([37, 3])
    with torch.inference_mode():
        model(batch, "masked_lm")
    model.train()
    model(batch, "masked_lm").sum().backward()
    assert model.encoder.embedding.token.weight.grad is not None


# ------------------------------------------------------------------ fresh weights


@pytest.mark.parametrize("name", TINY)
def test_fresh_weights_are_as_bert_was_drawn(name: str) -> None:
    kinds = dict.fromkeys(entry.kind for entry in FAMILIES[TINY[name]["model_type"]].heads)
    model = create(TINY[name], heads=kinds, initializer_range=0.05).model
    norms = {f"{path}.weight" for path, m in model.named_modules() if isinstance(m, nn.LayerNorm)}
    drawn = []
    for path, parameter in model.named_parameters():
        if path in norms:
            assert (parameter == 1).all(), path
        elif parameter.ndim == 1:
            assert not parameter.any(), path
        else:
            drawn.append(parameter.detach().flatten())
            assert parameter.abs().max() <= 0.1, path
    everything = torch.cat(drawn)
    assert float(everything.std()) == pytest.approx(0.05 * 0.8796, rel=0.03)
    assert abs(float(everything.mean())) < 0.002
    assert everything.abs().max() > 0.099  # the cut is at two deviations, not before


def test_a_seed_decides_every_weight() -> None:
    first, again, other = (create(TINY["bert"], seed=seed).model for seed in (3, 3, 4))
    for (name, a), b, c in zip(
        first.named_parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        assert a.ndim == 1 or not torch.equal(a, c), name


def test_only_the_named_are_drawn() -> None:
    model = tiny("bert")
    before = copy.deepcopy(model.state_dict())
    name = "heads.classify.output.weight"
    initialise(model, 0.02, torch.Generator().manual_seed(5), only={name})
    after = model.state_dict()
    assert [key for key in after if not torch.equal(before[key], after[key])] == [name]


def test_no_deviation_is_no_weight() -> None:
    model = create(TINY["bert"], initializer_range=0.0).model
    assert not model.encoder.blocks[0].attention.qkv.weight.any()


def test_tied_matrices_are_one_tensor() -> None:
    model = tiny("bert")
    assert model.heads["masked_lm"].output.weight is model.encoder.embedding.token.weight
    apart = tiny("bert", tie_word_embeddings=False)
    assert apart.heads["masked_lm"].output.weight is not apart.encoder.embedding.token.weight


def test_the_enhanced_decoder_has_no_block_of_its_own() -> None:
    model = copy.deepcopy(tiny("deberta"))
    head = model.heads["masked_lm"]
    assert head.block[0] is model.encoder.blocks[-1]
    assert not any("block" in name for name, _ in head.named_parameters())
