"""Words added to a vocabulary come out whole; their rows begin as the mean of their pieces."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertsmith.checkpoint import Sentence, create, extend_vocabulary, read, save
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import extend, train

BASE = "the cat sat on the mat and the dog ran to the house with a ball in its mouth. "
DOMAIN = "angioplasty stenosis angioplasty cat stenting thrombosis restenosis, angioplasty! "


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    base, domain = tmp_path / "base.txt", tmp_path / "domain.txt"
    base.write_text(BASE * 30)
    domain.write_text(DOMAIN * 10 + " rarely")
    return base, domain


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_frequent_words_become_tokens(kind: Any, texts: tuple[Path, Path]) -> None:
    base, domain = texts
    old = train([base, domain], kind, size=330 if kind == "bpe" else 70, min_frequency=25)
    # With the space before it a word is another one to a byte-level vocabulary.
    new, added = extend(old, [domain], 8 if kind == "bpe" else 3)
    assert len(added) >= 3
    assert new.size == old.size + len(added)
    assert [one.id for one in added] == list(range(old.size, new.size))
    sentence = "cat angioplasty, stenting thrombosis"
    before, after = (t.encode_ids([sentence])[0] for t in (old, new))
    assert len(after) < len(before)
    assert old.id("angioplasty") is None
    for one in added:
        text = new.decode([one.id])
        assert one.id in new.encode_ids([text, f"cat {text.strip()}"])[text.strip() != text]
    assert new.decode(after) == old.decode(before)
    for one in added:
        assert old.decode(one.pieces).strip() == new.decode([one.id]).strip()
    roles = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    assert [getattr(new, role) for role in roles] == [getattr(old, role) for role in roles]
    # What was known before is split as before.
    assert new.encode_ids([BASE]) == old.encode_ids([BASE])


@pytest.mark.parametrize(("size", "family"), [("bert-tiny", "bert"), ("roberta-base", "roberta")])
def test_a_model_grows_with_its_vocabulary(
    size: str, family: str, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    base, domain = texts
    kind: Any = "wordpiece" if family == "bert" else "bpe"
    old = train([base, domain], kind, size=330, min_frequency=25)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    checkpoint = create(size, vocab_size=old.size, intermediate_size=64, **small)
    with torch.no_grad():
        checkpoint.model.heads["masked_lm"].output.bias.normal_()
    table = checkpoint.model.encoder.embedding.token.weight.detach().clone()
    bias = checkpoint.model.heads["masked_lm"].output.bias.detach().clone()
    new, added = extend(old, [domain], 2)
    wider = extend_vocabulary(checkpoint, {one.id: one.pieces for one in added}, new.size)
    save(tmp_path / "wider", wider, new, Sentence())
    again = read(tmp_path / "wider")
    grown = again.model.encoder.embedding.token.weight
    assert grown.shape[0] == new.size == again.config.vocabulary
    assert torch.equal(grown[: old.size], table)
    for one in added:
        assert torch.allclose(grown[one.id], table[one.pieces].mean(0))
        found = again.model.heads["masked_lm"].output.bias[one.id]
        assert torch.allclose(found, bias[one.pieces].mean())
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "wider")
    assert theirs.get_output_embeddings().weight.shape[0] == new.size
    assert torch.equal(theirs.get_input_embeddings().weight, grown)


def test_what_cannot_be_added(texts: tuple[Path, Path]) -> None:
    base, _ = texts
    old = train([base], "wordpiece", size=300)
    with pytest.raises(BertsmithError, match="no word of this text"):
        extend(old, [base], 5)
    with pytest.raises(BertsmithError, match="at least one"):
        extend(old, [base], 0)
    with pytest.raises(BertsmithError, match="the model does not have"):
        extend_vocabulary(create("bert-tiny", vocab_size=20), {20: [21]}, 21)
