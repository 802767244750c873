"""Heads and layers taken away: what is left is what is meant to be left."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from analysis.conftest import KINDS, Small
from analysis.known import known
from bertsmith import Bert, load
from bertsmith.analysis.ablation import (
    ablated,
    importance,
    labelled,
    loss,
    masked_words,
    mean_outputs,
    one_by_one,
)
from bertsmith.analysis.heads import METRICS, measure, texts
from bertsmith.analysis.maps import head_counts
from bertsmith.analysis.pages import heads_page
from bertsmith.analysis.pruning import least, pruned, zeroed
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Trace
from tasks.models import Maker
from tasks.words import LINES

TEXTS = LINES.split("\n")[:4]
SOME = [(0, 1), (0, 3), (1, 0), (2, 2)]


def states(bert: Bert) -> list[torch.Tensor]:
    """The hidden states of every depth, and the outputs of the masked-LM head."""
    encoded = bert.tokenizer.encode_many(TEXTS)
    batch = Batch.of([one.ids for one in encoded], [one.segments for one in encoded])
    trace = Trace(states=True)
    with torch.inference_mode():
        hidden = bert.model.encoder(batch, trace)
        return [*trace.hidden, bert.model.heads["masked_lm"](hidden, batch)]


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor], within: float = 1e-5) -> bool:
    return all(torch.allclose(a, b, atol=within) for a, b in zip(ours, theirs, strict=True))


def block(bert: Bert, depth: int) -> Any:
    found = bert.model.encoder.blocks[bert.model.encoder.plan[depth][0]]
    return getattr(found, "block", found)


@pytest.mark.parametrize("name", KINDS)
def test_without_all_its_heads_a_layer_has_no_attention(name: str, small: Small) -> None:
    """What is left of attention is the bias of its output map."""
    bert = small(name)
    whole = states(bert)
    with ablated(bert, [(1, head) for head in range(4)]):
        found = states(bert)
    assert all(torch.equal(a, b) for a, b in zip(found[:2], whole[:2], strict=True))
    with torch.inference_mode():
        nothing = torch.zeros(len(whole[1]), 32)
        assert torch.allclose(found[2], block(bert, 1).finish(whole[1], nothing), atol=1e-6)
    assert not same(found[2:], whole[2:], 1e-3)
    assert same(states(bert), whole, 0.0)  # and all is as it was


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_that_is_left_out_passes_its_input_on(name: str, small: Small) -> None:
    bert = small(name)
    whole = states(bert)
    with ablated(bert, layers=[1]):
        found = states(bert)
    assert torch.equal(found[1], whole[1])
    assert torch.equal(found[2], found[1])
    assert not torch.allclose(found[3], whole[3], atol=1e-3)


def test_layers_left_out_are_a_smaller_model(small: Small) -> None:
    bert = small()
    shorter = deepcopy(bert)
    shorter.model.encoder.plan = (bert.model.encoder.plan[0],)
    with ablated(bert, layers=[1, 2]):
        assert torch.equal(states(bert)[-1], states(shorter)[-1])


def test_means(small: Small) -> None:
    """The average of what was found is found by every token, by the heads named and no others."""
    bert = small()
    windows = bert.windows(TEXTS)
    found: list[torch.Tensor] = []
    output = block(bert, 1).attention.output
    hook = output.register_forward_pre_hook(lambda module, given: found.append(given[0]))
    means = mean_outputs(bert, windows)
    plain = torch.cat(found).view(-1, 4, 8)
    found.clear()
    assert torch.allclose(means.heads[1], plain.mean(0), atol=1e-5)
    with ablated(bert, [(1, 2)], means=means):
        states(bert)
    hook.remove()
    changed = found[0].view(-1, 4, 8)
    assert torch.allclose(changed[:, 2], means.heads[1][2].expand(len(changed), 8), atol=1e-6)
    assert not torch.allclose(changed[:, 1], changed[:1, 1], atol=1e-3)


def test_a_layer_that_adds_what_it_adds_on_average(small: Small) -> None:
    bert = small()
    whole = states(bert)
    means = mean_outputs(bert, bert.windows(TEXTS))
    assert torch.allclose(means.layers[1], (whole[2] - whole[1]).mean(0), atol=1e-5)
    with ablated(bert, layers=[1], means=means):
        found = states(bert)
    assert torch.allclose(found[2], whole[1] + means.layers[1], atol=1e-6)
    assert bert.model.encoder.skipped == {}


def test_enhanced_decoders_lose_their_heads_too(small: Small) -> None:
    """DeBERTa's mask decoder runs the last block again: without the same heads."""
    bert = small("deberta", legacy=False)
    last = [(2, head) for head in range(4)]
    with ablated(bert, last):
        found = states(bert)[-1]
    empty = deepcopy(bert)
    with torch.no_grad():
        block(empty, 2).attention.output.weight.zero_()
    assert torch.allclose(found, states(empty)[-1], atol=1e-5)


def test_what_is_not_there(small: Small) -> None:
    bert = small()
    for options, fault in (
        ({"heads": [(0, 4)]}, "layer 0 has no head 4"),
        ({"heads": [(3, 0)]}, "layer 3 has no head 0"),
        ({"layers": [-1]}, "no layer -1"),
    ):
        with pytest.raises(BertsmithError, match=fault), ablated(bert, **options):
            pass
    assert bert.model.encoder.changes == {}


# ------------------------------------------------------------------ what it costs


def test_the_loss_is_that_of_the_masked_tokens(small: Small) -> None:
    bert = small()
    material = masked_words(bert, TEXTS, seed=3)
    mask = bert.tokenizer.mask_id
    total, count = 0.0, 0
    for window, text in zip(material.windows, TEXTS, strict=True):
        original = torch.tensor(bert.tokenizer.encode(text).ids)
        batch = Batch.of([window.ids], [window.segments])
        hidden_ones = torch.tensor(window.ids) == mask
        assert 0 < hidden_ones.sum() <= round(0.15 * (len(original) - 2)) + 1
        with torch.inference_mode():
            logits = bert.model(batch, "masked_lm")
        total += float(F.cross_entropy(logits[hidden_ones], original[hidden_ones], reduction="sum"))
        count += int(hidden_ones.sum())
    assert loss(bert, material) == pytest.approx(total / count, abs=1e-5)
    again = masked_words(bert, TEXTS, seed=3).windows
    assert [window.ids for window in again] == [window.ids for window in material.windows]


def test_without_each_head_alone(small: Small) -> None:
    bert = small()
    material = masked_words(bert, TEXTS)
    table = one_by_one(bert, lambda: loss(bert, material))
    assert table.shape == (3, 4)
    whole = loss(bert, material)
    with ablated(bert, [(2, 1)]):
        assert table[2, 1] == pytest.approx(loss(bert, material) - whole, abs=1e-6)
    means = mean_outputs(bert, material.windows)
    averaged = one_by_one(bert, lambda: loss(bert, material), means)
    assert not np.allclose(table, averaged, atol=1e-4)


def test_importance_is_the_slope_of_the_loss(small: Small) -> None:
    """Against differences: each head a little louder and a little quieter."""
    bert = small()
    materials = [masked_words(bert, [text]) for text in TEXTS[:2]]
    slopes = np.zeros((2, 3, 4))
    step = 1e-2
    for number, material in enumerate(materials):
        for layer in range(3):
            for head in range(4):
                losses = []
                for size in (1 + step, 1 - step):
                    gate = torch.ones(4, 1)
                    gate[head] = size
                    bert.model.encoder.changes = {layer: lambda mixed, gate=gate: mixed * gate}
                    losses.append(loss(bert, material))
                slopes[number, layer, head] = abs(losses[0] - losses[1]) / (2 * step)
    bert.model.encoder.changes = {}
    # The same masks in one material as in the two, so that both inputs count alike.
    both = masked_words(bert, TEXTS[:2])
    both = type(both)([m.windows[0] for m in materials], _joined(bert, materials))
    expected = slopes.mean(0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert importance(bert, both) == pytest.approx(expected, abs=2e-3)
    assert all(parameter.grad is None for parameter in bert.model.parameters())


def _joined(bert: Bert, materials: list[Any]) -> Any:
    """The loss of two materials of one window each, as one of two windows."""

    def joined(hidden: Any, batch: Batch, chosen: list[int]) -> Any:
        parts = []
        for place, number in enumerate(chosen):
            first = batch.layout.boundaries[place]
            rows = slice(int(first), int(batch.layout.boundaries[place + 1]))
            alone = hidden._replace(last=hidden.last[rows])
            one = Batch.of([batch.ids[rows].tolist()])
            parts.append(materials[number].loss(alone, one, [0])[0])
        owner = [place for place, part in enumerate(parts) for _ in part]
        return torch.cat(parts), torch.tensor(owner)

    return joined


def test_labels_of_a_classifier(made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification", num_labels=2).ours
    names = bert.checkpoint.labels
    material = labelled(bert, TEXTS[:2], [names[0], names[1]])
    found = bert.classify(TEXTS[:2])
    chances = [found[0].scores[names[0]], found[1].scores[names[1]]]
    assert loss(bert, material) == pytest.approx(-np.mean(np.log(chances)), abs=1e-5)
    assert importance(bert, material).shape == (2, 4)
    with pytest.raises(BertsmithError, match="the model has no label 'good'"):
        labelled(bert, TEXTS[:1], ["good"])
    with pytest.raises(BertsmithError, match="cannot fill masks"):
        masked_words(bert, TEXTS)


def test_a_useless_head_is_of_no_importance() -> None:
    bert = known()  # its values are zero: no head does anything
    with torch.no_grad():
        values = bert.model.encoder.blocks[0].attention.qkv.weight.view(3, 4, 42, -1)[2]
        values[0] = torch.randn(42, 168)
        bert.model.encoder.blocks[0].attention.output.weight.normal_()
        bert.model.encoder.embedding.token.weight.normal_(std=0.1)
        bert.model.heads["masked_lm"].transform["dense"].weight.normal_()
    material = masked_words(bert, ["the river flows .", "the river"])
    assert importance(bert, material)[0] == pytest.approx([1, 0, 0, 0], abs=1e-6)
    assert least(importance(bert, material), 2, head_counts(bert)) == [(0, 1), (0, 2)]


# ------------------------------------------------------------------ for good


@pytest.mark.parametrize("name", [name for name in KINDS if name != "mpnet"])
def test_pruned_is_ablated_and_smaller(name: str, small: Small, tmp_path: Path) -> None:
    bert = small(name)
    shared = len(bert.model.encoder.blocks) < len(bert.model.encoder.plan)
    heads = [(layer, head) for layer in (0, 1) for head in (1, 3)] + [(2, 2)] * (not shared)
    with ablated(bert, heads):
        expected = states(bert)
    smaller = pruned(bert, heads)
    assert same(states(smaller), expected)
    count = sum(parameter.numel() for parameter in bert.model.parameters())
    assert sum(parameter.numel() for parameter in smaller.model.parameters()) < count
    smaller.save(tmp_path)
    again = load(tmp_path, device="cpu")
    assert head_counts(again) == head_counts(smaller)
    assert same(states(again), states(smaller), 0.0)


def test_heads_that_share_biases_of_distances_stay(small: Small) -> None:
    """All layers of MPNet read one table of biases, with a column for each head."""
    with pytest.raises(BertsmithError, match="pruned"):
        pruned(small("mpnet"), [(0, 1)])


def test_pruned_models_are_looked_into(small: Small) -> None:
    """Layers of 2, 4 and 3 heads: what is left attends as it did in the same surroundings."""
    bert, gone = small(), [(0, 1), (0, 2), (2, 0)]
    smaller = pruned(bert, gone)
    with ablated(bert, gone):
        whole = bert.attention(TEXTS[0]).maps()
    found = smaller.attention(TEXTS[0])
    maps = found.maps()
    assert np.isnan(maps).any(axis=(2, 3)).tolist() == [
        [False, False, True, True],
        [False] * 4,
        [False, False, False, True],
    ]
    assert np.allclose(maps[0, :2], whole[0, [0, 3]], atol=1e-5)
    assert np.allclose(maps[2, :3], whole[2, 1:], atol=1e-5)
    assert np.abs(found.rollout().sum(-1) - 1).max() <= 1e-5
    assert '"counts": [2, 4, 3]' in found.page().html()
    assert "2 to 4 heads" in found.page().html()
    with pytest.raises(BertsmithError, match="no head 2: valid numbers are 0 to 1"):
        smaller.attention(TEXTS[0], layers=[0], heads=[2])


def test_heads_of_pruned_models(small: Small) -> None:
    bert, gone = small(), [(0, 1), (0, 2), (2, 0)]
    smaller = pruned(bert, gone)
    inputs = texts(bert, TEXTS)
    with ablated(bert, gone):
        whole = measure(bert, inputs).metrics["distance"]
    numbers = measure(smaller, inputs)
    table = numbers.metrics["distance"]
    assert np.allclose(table[0], [*whole[0, [0, 3]], np.nan, np.nan], atol=1e-4, equal_nan=True)
    assert np.allclose(table[2], [*whole[2, 1:], np.nan], atol=1e-4, equal_nan=True)
    assert len(list(numbers.rows())) == len(numbers.strongest("entropy", 99)) == 9
    assert len(re.findall(r"<td[^>]*>[^<]", heads_page(numbers, "m"))) == 9 * len(METRICS)


def test_pruned_twice(small: Small) -> None:
    """The second time heads have new numbers; config.json keeps the first ones."""
    bert = small()
    once = pruned(bert, [(0, 1), (2, 0)])
    twice = pruned(once, [(0, 1), (1, 3)])
    assert twice.checkpoint.settings["pruned_heads"] == {"0": [1, 2], "1": [3], "2": [0]}
    assert head_counts(twice) == [2, 3, 3]
    with ablated(bert, [(0, 1), (0, 2), (1, 3), (2, 0)]):
        assert same(states(twice), states(bert))


def test_a_layer_keeps_a_head(small: Small) -> None:
    bert = small()
    with pytest.raises(BertsmithError, match="layer 1 would lose all its heads"):
        pruned(bert, [(1, head) for head in range(4)])
    with pytest.raises(BertsmithError, match="layer 0 has no head 9"):
        pruned(bert, [(0, 9)])
    table = np.arange(12).reshape(3, 4)
    assert least(table, 5, [4, 4, 4]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_zeroed_models_open_in_transformers(made: Maker, tmp_path: Path) -> None:
    source = made("bert", "ForMaskedLM")
    bert = load(source.folder, device="cpu")
    with ablated(bert, [(0, 1), (1, 2)]):
        expected = states(bert)[-1]
    zeroed(bert, [(0, 1), (1, 2)])
    bert.save(tmp_path / "zeroed")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "zeroed").eval()
    ids = bert.tokenizer.encode(TEXTS[0]).ids
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0]
    assert torch.allclose(logits, expected[: len(ids)], atol=1e-4)
    pruned(bert, [(0, 1)]).save(tmp_path / "pruned")
    with pytest.raises(RuntimeError):  # version 5 no longer knows `pruned_heads`
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "pruned")


@pytest.mark.parametrize("bad", [{"0": [4]}, {"7": [0]}, {"0": [0, 1, 2, 3]}, {"x": [0]}])
def test_bad_settings_are_refused(bad: dict[str, list[int]], small: Small, tmp_path: Path) -> None:
    small().save(tmp_path)
    config = (tmp_path / "config.json").read_text("utf-8")
    told = {**json.loads(config), "pruned_heads": bad}
    (tmp_path / "config.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(BertsmithError, match=r"config\.json"):
        load(tmp_path, device="cpu")
