"""Counts of published sizes: as their authors state them; the page and the table."""

import pytest

from bertsmith.compare.static import compare_presets, count_preset, static_page, static_rows
from bertsmith.errors import BertsmithError
from bertsmith.families import presets


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-base-uncased", 109_482_240),
        ("roberta-base", 124_645_632),
        ("albert-base-v2", 11_683_584),
        ("distilbert-base-uncased", 66_362_880),
        ("electra-base", 108_891_648),
    ],
)
def test_published_parameters(name: str, parameters: int) -> None:
    counts = count_preset(name)
    assert counts.parameters == parameters
    # Two operations for each weight of the layers; ALBERT uses its one layer twelve times.
    layers = 85_054_464 / (2 if "distil" in name else 1)
    assert counts.flops == pytest.approx(2 * layers, rel=0.05)
    assert counts.training_flops > 3 * counts.flops
    assert counts.training_memory > 16 * parameters
    assert counts.inference_memory > 4 * parameters


def test_every_size_can_be_counted() -> None:
    counts = list(compare_presets(["bert-tiny", "bert-mini", "deberta-v3-xsmall"], speed=False))
    assert all(one.flops > 0 and one.tokens_per_second is None for one in counts)
    page = static_page(counts, "cpu")
    for row in static_rows(counts):
        assert row[0] in presets()
        assert row[0] in page


def test_speed_is_measured_once_for_a_shape() -> None:
    first, second = compare_presets(["bert-tiny", "bert-tiny"])
    assert first.tokens_per_second == second.tokens_per_second
    assert first.latency is not None
    (large,) = compare_presets(["bert-tiny"], largest=1000.0)
    assert large.tokens_per_second is None


def test_unknown_sizes() -> None:
    with pytest.raises(BertsmithError, match="did you mean bert-tiny"):
        count_preset("bert-tny")
