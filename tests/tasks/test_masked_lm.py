"""Masked-LM scores against `transformers` on the same masked ids; windows; files of texts."""

import gzip
import json
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.errors import BertsmithError
from bertsmith.examples import Masking, Sequences
from bertsmith.tasks import masked_lm
from bertsmith.tasks.masked_lm import is_plain_text, read_texts, score_masked_lm
from tasks.models import LINES, Made, Maker

TEXTS = LINES.split("\n")


def logits_of(made: Made, ids: Any) -> Any:
    with torch.no_grad():
        return made.theirs(input_ids=torch.tensor([list(ids)])).logits[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
def test_scores_are_those_of_transformers_on_the_same_masked_ids(family: str, made: Maker) -> None:
    model, texts = made(family, "ForMaskedLM"), TEXTS
    inputs = [model.their_tokenizer(text)["input_ids"] for text in texts]
    lengths = np.array([len(ids) for ids in inputs])
    row = np.concatenate(inputs)
    masked = Masking(model.ours.tokenizer, rate=0.15, seed=0)(
        Sequences(row, np.zeros_like(row), lengths), np.arange(len(texts))
    )
    logits = torch.cat(
        [logits_of(model, ids) for ids in np.split(masked.ids, np.cumsum(lengths))[:-1]]
    )
    targets = torch.tensor(masked.targets)
    loss = float(F.cross_entropy(logits[masked.rows], targets))
    found = score_masked_lm(model.ours, texts)
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert found["perplexity"] == pytest.approx(exp(loss), rel=1e-3)
    correct = (logits[masked.rows].argmax(-1) == targets).float().mean()
    assert found["accuracy"] == pytest.approx(float(correct))
    assert found["scored"] == len(masked.rows) > 10
    assert found["texts"] == len(texts)
    special = model.ours.tokenizer.special_count()
    assert found["tokens"] == lengths.sum() - special * len(texts)


def test_pseudo_perplexity_masks_every_token_alone(made: Maker) -> None:
    model, text = made("bert", "ForMaskedLM"), TEXTS[0]
    ids = model.their_tokenizer(text)["input_ids"]
    losses = []
    for place in range(1, len(ids) - 1):
        masked = [*ids[:place], model.ours.tokenizer.mask_id, *ids[place + 1 :]]
        losses.append(F.cross_entropy(logits_of(model, masked)[place], torch.tensor(ids[place])))
    found = score_masked_lm(model.ours, [text], pseudo=True)
    mean = float(torch.stack(losses).mean())
    assert found["pseudo_loss"] == pytest.approx(mean, rel=1e-4)
    assert found["pseudo_perplexity"] == pytest.approx(exp(mean), rel=1e-3)


def test_long_texts_are_windowed_and_nothing_is_dropped(
    made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert, seen = made("bert", "ForMaskedLM").ours, []

    def spy(windows: Any, masking: Any, first: int) -> Any:
        seen.extend(windows)
        return masked_windows(windows, masking, first)

    masked_windows = masked_lm.masked_windows
    monkeypatch.setattr(masked_lm, "masked_windows", spy)
    long = " ".join(TEXTS * 20)
    found = score_masked_lm(bert, [TEXTS[0], long])
    spans = [window.tokens for window in seen if window.number == 1]
    count = len(bert.token_ids([long])[0])
    assert (spans[0].start, spans[-1].stop) == (0, count)
    assert all(left.stop == right.start for left, right in pairwise(spans))
    lengths = [len(span) for span in spans]
    assert max(lengths) - min(lengths) <= 1
    assert max(len(window.ids) for window in seen) <= bert.max_length
    assert found["tokens"] == sum(len(window.tokens) for window in seen)
    assert found["scored"] == pytest.approx(0.15 * found["tokens"], rel=0.02)


def test_scores_do_not_depend_on_how_much_is_held_at_once(
    made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert = made("bert", "ForMaskedLM").ours
    whole = score_masked_lm(bert, TEXTS, pseudo=True)
    monkeypatch.setattr(masked_lm, "TOKENS", 40)
    monkeypatch.setattr(masked_lm, "CHARACTERS", 60)
    monkeypatch.setattr(masked_lm, "ROWS", 3)
    assert score_masked_lm(bert, iter(TEXTS), pseudo=True) == pytest.approx(whole, rel=1e-5)
    assert score_masked_lm(bert, TEXTS, seed=1)["loss"] != pytest.approx(whole["loss"], rel=1e-3)


def test_unknown_tokens_are_counted(made: Maker) -> None:
    bert = made("bert", "ForMaskedLM").ours
    assert score_masked_lm(bert, [TEXTS[0] + " ௵ ௵"])["unknown"] == 2


def test_models_and_texts_without_scores(made: Maker) -> None:
    with pytest.raises(BertsmithError, match=r"no masked-LM head to score \(its heads: classify\)"):
        score_masked_lm(made("bert", "ForSequenceClassification").ours, TEXTS)
    with pytest.raises(BertsmithError, match="no text to score"):
        score_masked_lm(made("bert", "ForMaskedLM").ours, ["", " "])


def test_texts_of_files(tmp_path: Path) -> None:
    def file(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_bytes(
            gzip.compress(content.encode()) if name.endswith("gz") else content.encode()
        )
        return path

    lines = file("lines.txt", "\n\na b\nc d\r\n e \n\n")
    assert list(read_texts(lines)) == ["a b", "c d", "e"]
    assert list(read_texts(file("lines.txt.gz", "\n\na b\nc d\n"))) == ["a b", "c d"]
    assert list(read_texts(file("documents.txt", "a b\nc d\n \ne\n\n\nf\n"))) == [
        "a b c d",
        "e",
        "f",
    ]
    records = "\n".join(json.dumps({"text": text, "n": 1}) for text in ("a b", "c"))
    assert list(read_texts(file("records.jsonl", records))) == ["a b", "c"]
    assert list(read_texts(file("words.conll", "a O\nb O\n\nc O\n"))) == ["a b", "c"]
    assert is_plain_text(lines)
    assert not is_plain_text(file("table.txt", "a\tb\n"))
    assert not is_plain_text(tmp_path / "records.jsonl")
    with pytest.raises(BertsmithError, match=r"empty\.txt is empty"):
        list(read_texts(file("empty.txt", "\n\n")))
    with pytest.raises(BertsmithError, match=r"none\.txt"):
        list(read_texts(tmp_path / "none.txt"))
    with pytest.raises(BertsmithError, match="is a folder"):
        list(read_texts(tmp_path))
