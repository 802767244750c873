"""Maps are those that `transformers` returns from its eager attention, for every family."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import Bert
from bertsmith.analysis import attention
from bertsmith.checkpoint import read
from parity.compare import make
from parity.test_families import FAMILIES
from tasks.words import tokenizer

TEXT = "The river Vltava flows through Prague; nobody could answer her question."
KINDS = {
    "NomicBert": "nomic_bert",
    "XLMRoberta": "roberta",
    "DistilBert": "bert",
    "Electra": "bert",
    "DebertaV2": "deberta-v2",
}


@pytest.mark.parametrize("stem", FAMILIES)
def test_maps(stem: str, tmp_path: Path) -> None:
    words = tokenizer(KINDS.get(stem, stem.lower()))
    settings = {**FAMILIES[stem], "vocab_size": words.size, "attn_implementation": "eager"}
    theirs = make(stem, "Model", **settings)
    theirs.save_pretrained(tmp_path)
    view = attention(Bert(read(tmp_path), words), TEXT)
    with torch.no_grad():
        ids = torch.tensor([view.ids])
        expected = theirs(ids, output_attentions=True).attentions
    reference = np.stack([one[0].numpy() for one in expected])
    maps = view.maps()
    assert maps.shape == reference.shape
    assert np.abs(maps - reference).max() <= 1e-5
    assert np.abs(maps.sum(-1) - 1).max() <= 1e-5
    assert np.abs(view.columns([3, 9]) - reference[..., [3, 9]]).max() <= 1e-5
