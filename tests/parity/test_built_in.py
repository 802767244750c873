"""The models that come with the package: `transformers` opens them and says the same."""

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import bertsmith as bs
from bertsmith.batch import Batch
from bertsmith.checkpoint import locate
from parity.compare import LOGITS

NAME = "bertsmith-small"
TEXTS = [
    "A short one.",
    "In 1984, Zoë paid £3.50 (or so) for a naïve painting; it hung in Łódź until 2001!",
    "The quick brown fox [MASK] over the lazy dog.",
    "Rare words: antidisestablishmentarianism, 漢字, 🙂.",
    " ".join(["and so it went on"] * 40),
]


def test_token_ids() -> None:
    theirs = AutoTokenizer.from_pretrained(locate(NAME))
    ours = bs.load(NAME, device="cpu").tokenizer
    # transformers reads special tokens that are spelled in a text.
    assert [ours.encode(text, spelled="tokens").ids for text in TEXTS] == theirs(TEXTS)["input_ids"]
    assert ours.encode(*TEXTS[:2]).ids == theirs(*TEXTS[:2])["input_ids"]


def test_logits() -> None:
    bert = bs.load(NAME, device="cpu")
    theirs, loading = AutoModelForMaskedLM.from_pretrained(
        locate(NAME), dtype=torch.float32, output_loading_info=True
    )
    assert not loading["unexpected_keys"]
    batch = Batch.of([bert.tokenizer.encode(text).ids for text in TEXTS])
    with torch.no_grad():
        logits = bert.model.heads["masked_lm"](bert.model.encoder(batch), batch)
        for mine, ids in zip(
            batch.layout.split(logits), batch.layout.split(batch.ids), strict=True
        ):
            expected = theirs.eval()(ids[None]).logits[0]
            assert float((mine - expected).abs().max()) <= LOGITS
