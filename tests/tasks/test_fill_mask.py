"""Filling masks: the guesses are those of `transformers`' own logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertsmith.errors import BertsmithError
from bertsmith.tasks import filling
from tasks.models import STEMS, Made, Maker, save, tokenizer

TEXTS = [
    "The old lighthouse keeper writes a {} to his daughter.",
    "{} lives in Uppsala, {}, and works for a small {}.",
    "{}",
    "Why do you keep ({}) 😀 the mayor of Kraków?\n\nUn{} {}{}",
]


def texts(made: Made) -> list[str]:
    return [text.replace("{}", made.ours.tokenizer.mask_token or "") for text in TEXTS]


def by_hand(made: Made, text: str, top: int) -> list[list[tuple[int, float]]]:
    """The best ids and their probabilities for each mask, from `transformers` alone."""
    ids = made.their_tokenizer(text)["input_ids"]
    rows = [place for place, id_ in enumerate(ids) if id_ == made.their_tokenizer.mask_token_id]
    found = []
    for row in made.logits(text).logits[0, rows].softmax(-1):
        scores, best = row.topk(top)
        found.append(list(zip(best.tolist(), scores.tolist(), strict=True)))
    return found


@pytest.mark.parametrize("family", STEMS)
def test_guesses_are_those_of_transformers(family: str, made: Maker) -> None:
    model = made(family, "ForMaskedLM")
    for text, guesses in zip(texts(model), model.ours.fill_mask(texts(model), top=4), strict=True):
        expected = [pair for mask in by_hand(model, text, 4) for pair in mask]
        assert [guess.id for guess in guesses] == [id_ for id_, _ in expected]
        assert [guess.score for guess in guesses] == pytest.approx([s for _, s in expected], 1e-3)
        masks = text.count(model.ours.tokenizer.mask_token or "")
        assert [guess.mask for guess in guesses] == [n for n in range(masks) for _ in range(4)]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_guesses_are_those_of_the_pipeline(family: str, made: Maker) -> None:
    model = made(family, "ForMaskedLM")
    pipeline: Any = transformers.FillMaskPipeline(model.theirs, model.their_tokenizer)
    text = texts(model)[0]
    theirs = pipeline(text, top_k=6)
    ours = model.ours.fill_mask(text, top=6)
    assert [guess.id for guess in ours] == [guess["token"] for guess in theirs]
    assert [guess.token for guess in ours] == [guess["token_str"].strip() for guess in theirs]
    assert [g.score for g in ours] == pytest.approx([g["score"] for g in theirs], abs=1e-5)


def test_one_text_and_several_agree(made: Maker) -> None:
    bert = made("bert", "ForMaskedLM").ours
    given = texts(made("bert", "ForMaskedLM"))
    together = bert.fill_mask(given)
    for text, guesses in zip(given, together, strict=True):
        alone = bert.fill_mask(text)
        assert [guess.id for guess in alone] == [guess.id for guess in guesses]
    assert bert.fill_mask(tuple(reversed(given)))[-1][0].id == together[0][0].id
    assert bert.fill_mask([]) == []


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_rows_beyond_the_vocabulary_are_never_guessed(family: str, tmp_path: Path) -> None:
    size = tokenizer(family).size
    model = save(tmp_path, family, "ForMaskedLM", vocab_size=size + 60)
    with torch.no_grad():
        model.theirs.get_output_embeddings().bias[size:] += 50  # they would win
    model.theirs.save_pretrained(tmp_path)
    text = texts(model)[0]
    row = model.their_tokenizer(text)["input_ids"].index(model.ours.tokenizer.mask_id)
    logits = model.logits(text).logits[0, row]
    assert int(logits.argmax()) >= size
    guesses = model.ours.fill_mask(text, top=10**6)
    assert [guess.id for guess in guesses[:9]] == logits[:size].topk(9).indices.tolist()
    assert {guess.id for guess in guesses} == set(range(size))
    assert len(guesses) == size
    assert sum(guess.score for guess in guesses) == pytest.approx(1, abs=1e-5)


def test_a_mask_in_a_long_text_is_read_in_its_neighbourhood(made: Maker) -> None:
    model = made("bert", "ForMaskedLM")
    bert, mask = model.ours, model.ours.tokenizer.mask_id or 0
    word = bert.tokenizer.encode("river", special=False).ids
    count = 3000 // len(word)
    text = f"{'river ' * count}[MASK] flows{' river' * 700} and [MASK]."
    before = dict(bert.ledger.counts)
    guesses = bert.fill_mask(text, top=3)
    assert (
        bert.ledger.counts["masks read in a window of a long text"]
        == before.get("masks read in a window of a long text", 0) + 2
    )
    ids = bert.tokenizer.encode(text, special=False, spelled="mask").ids
    assert ids.index(mask) == count * len(word) >= 2990
    room = bert.max_length - 2
    for number, place in enumerate(i for i, id_ in enumerate(ids) if id_ == mask):
        start = min(place - room // 2, len(ids) - room)
        part, _ = bert.tokenizer.build(ids[start : start + room])
        with torch.no_grad():
            logits = model.theirs(torch.tensor([part])).logits[0, place - start + 1]
        expected = logits.topk(3).indices.tolist()
        assert [guess.id for guess in guesses if guess.mask == number] == expected
    assert all(len(guess.text) > 10_000 for guess in guesses)


def test_masks_that_are_near_in_a_long_text_share_a_window(
    made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert = made("bert", "ForMaskedLM").ours
    windows = []
    real = filling._with_masks
    monkeypatch.setattr(
        filling, "_with_masks", lambda *given: windows.append(real(*given)) or windows[-1]
    )
    text = "[MASK] " * (3 * bert.max_length)
    guesses = bert.fill_mask(text, top=1)
    assert [guess.mask for guess in guesses] == list(range(3 * bert.max_length))
    assert len(windows) <= 8
    # All but the masks near the ends of the text have a quarter of a window on both sides.
    room = bert.max_length - 2
    for window in windows:
        first, last = window.masks[0] - window.first, window.masks[-1] - window.first
        assert last - first <= room // 2 + 1
        if window.tokens.start > 0 and window.tokens.stop < 3 * bert.max_length:
            assert first >= room // 4 - 2
            assert last <= room - room // 4 + 2


def test_short_texts_leave_the_ledger_empty(made: Maker) -> None:
    bert = made("roberta", "ForMaskedLM", num_hidden_layers=1).ours
    bert.fill_mask("a <mask> 😀")
    assert bert.ledger.lines() == []


@pytest.mark.parametrize(
    ("family", "text", "word", "whole"),
    [
        ("bert", "the [MASK].", "river", "the river."),
        ("bert", "([MASK])", "river", "(river)"),
        ("bert", "play [MASK] on", "##ing", "playing on"),
        ("bert", "[MASK] on", "##ing", "ing on"),
        ("bert", "wait [MASK]", ".", "wait."),
        ("roberta", "the <mask>.", "Ġriver", "the river."),
        ("roberta", "<mask>.", "Ġriver", "river."),
        ("roberta", "the<mask>.", "Ġriver", "the river."),
        ("roberta", "play <mask> on", "ing", "playing on"),
        ("albert", "the [MASK].", "▁light", "the light."),
        ("albert", "play [MASK] on", "ing", "playing on"),
        ("deberta-v2", "the [MASK].", "▁light", "the light."),
        ("deberta", "the [MASK].", "Ġriver", "the river."),
        ("modernbert", "the [MASK]\n", "Ġriver", "the river\n"),
    ],
)
def test_guesses_are_written_into_the_text(
    family: str, text: str, word: str, whole: str, made: Maker
) -> None:
    bert = made(family, "ForMaskedLM").ours
    wanted = bert.tokenizer.id(word)
    assert wanted is not None, f"the fixture's vocabulary lacks {word}"
    guesses = bert.fill_mask(text, top=10**6)
    assert [guess.text for guess in guesses if guess.id == wanted] == [whole]


@pytest.mark.parametrize("text", ["no mask here", "", " ", "[CLS] [SEP]", "[mask]"])
def test_a_text_without_a_mask_is_refused(text: str, made: Maker) -> None:
    bert = made("bert", "ForMaskedLM").ours
    with pytest.raises(BertsmithError, match=r"^text 2 of 2 has no mask token: write \[MASK\]"):
        bert.fill_mask(["a [MASK]", text])


@pytest.mark.parametrize("top", [0, -1, 2.5, "3", None, True])
def test_a_bad_number_of_guesses_is_refused(top: Any, made: Maker) -> None:
    with pytest.raises(BertsmithError, match="top must be a whole number of at least 1"):
        made("bert", "ForMaskedLM").ours.fill_mask("a [MASK]", top=top)


def test_a_model_without_the_head_says_so(made: Maker) -> None:
    bert = made("bert", "ForSequenceClassification").ours
    with pytest.raises(BertsmithError, match=r"cannot fill masks: no such head \(it has: classify"):
        bert.fill_mask("a [MASK]")
