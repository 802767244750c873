"""The page's own tokenizer, encoder and heads give what the package gives."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import Bert
from bertsmith.analysis.layers import lens
from bertsmith.batch import Batch
from bertsmith.explorer import explorer
from bertsmith.infer.spans import trimmed
from bertsmith.model import Trace
from bertsmith.tokenizer import Tokenizer
from explorer.models import MODELS, tiny
from explorer.node import worker

FIRST = "The river Vltava flows through Prague; nobody could answer her question."
SECOND = "My sister's dog chased the cats."


SOME = ("bert", "albert", "deberta", "deberta-v2", "modernbert")  # all choices of a Config
SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in MODELS if one not in SOME]


@pytest.mark.parametrize("family", [*SOME, *SLOW])
def test_states_and_logits_are_those_of_torch(family: str, tmp_path: Path) -> None:
    """Every family: the states of a pair, the logits of its mask, the attention of every head."""
    bert = tiny(family)
    bert.model.half().float()  # so that the page stores all weights exactly
    explorer(bert, tmp_path / "page.html", dtype="float16")
    mask = bert.tokenizer.mask_token
    text = FIRST.replace("Prague", str(mask))
    encoding = bert.tokenizer.encode(text, SECOND, spelled="mask")
    trace = Trace(states=True, heads=dict.fromkeys(range(len(bert.checkpoint.config.plan))))
    with torch.inference_mode():
        batch = Batch.of([encoding.ids], [encoding.segments])
        hidden = bert.model.encoder(batch, trace)
        logits = bert.model.heads["masked_lm"](hidden, batch)
    with worker(tmp_path / "page.html") as page:
        run = page.ask("run", first=text, second=SECOND)
        rows = page.ask("logits", head="masked_lm", first=text, second=SECOND)["logits"]
        last = page.ask("logits", head="states", first=text, second=SECOND)["logits"][0]
    assert [token["id"] for token in run["tokens"]] == encoding.ids
    assert [token["segment"] for token in run["tokens"]] == encoding.segments
    width = bert.checkpoint.config.width
    np.testing.assert_allclose(np.reshape(last, (-1, width)), hidden.last, atol=2e-4)
    np.testing.assert_allclose(np.array(rows), logits, atol=1e-2)
    for depth, ours in enumerate(run["maps"]):
        theirs = trace.maps[depth][0].numpy()
        np.testing.assert_allclose(np.reshape(ours, theirs.shape), theirs, atol=1e-4)
    place = encoding.ids.index(bert.tokenizer.mask_id or 0)
    best = [guess["id"] for guess in run["answers"]["masked_lm"][0]["best"][:3]]
    assert best == logits[place, : bert.tokenizer.size].topk(3).indices.tolist()


WORDS = "The river's old-fashioned keeper, Anna (from Kraków), wasn't unpacking 3.5 letters!"
ODD = "abcXYZ  .,;!?'\"``()-_\t\n 0123éüßÉİΣşñ½ﬁ™…—“”中文字한국어日本😀👍🏽👨👩👧"
ODD += "e\u0301\u0000\ufeff\u200b\xa0\u3000\x85\u2028\x7f\xadабвЯЖшלוםعربיहिन्दीไทยΑΩάრქ☃♞€£¥§±×÷"


def odd_texts(tokenizer: Tokenizer) -> list[str]:
    """A few hundred strings that pipelines are known to stumble over."""
    draw, special = random.Random(0), (tokenizer.mask_token, tokenizer.sep_token)
    texts = ["", " ", "\n \t", "x" * 300, "don't we'll I'M it's 'S", "``quoted'' text", WORDS]
    for one in special:
        texts += [f"a{one}b", f" {one} ", f"the {one}{one} flows  to {one}."]
    for _ in range(400):
        letters = (draw.choice(ODD) for _ in range(draw.randrange(20)))
        texts.append("".join(letters) + draw.choice(["", *WORDS.split()]))
    return texts


def exported(bert: Bert, folder: Path) -> Path:
    """A page with exactly the weights that the model has."""
    bert.model.half().float()
    explorer(bert, folder / "page.html", dtype="float16")
    return folder / "page.html"


def test_labels_entities_and_answers_are_those_of_the_package(tmp_path: Path) -> None:
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    named = {"id2label": dict(enumerate(labels)), "label2id": {}, "num_labels": 5}
    bert = tiny("bert", "classify", "tag", "answer", "next_sentence", deviation=0.5, **named)
    path = exported(bert, tmp_path)
    expected = bert.answer(SECOND, FIRST, top=3)
    with worker(path) as page:
        single = page.ask("run", first=FIRST)["answers"]
        pair = page.ask("run", first=SECOND, second=FIRST)["answers"]
        alike = page.ask("compare", first=FIRST, second=SECOND)["similarity"]
    scores = dict(zip(labels, single["classify"], strict=True))
    assert scores == pytest.approx(bert.classify(FIRST).scores, abs=1e-4)
    entities = [(one.label, one.start, one.end) for one in bert.tag(FIRST)]
    assert [
        (one["label"], one["start"], one["end"]) for one in single["tag"]["entities"]
    ] == entities
    assert entities
    expected = bert.answer(SECOND, FIRST, top=3)
    assert [one["text"] for one in pair["answer"]["answers"][:3]] == [one.text for one in expected]
    shares = [one["score"] for one in pair["answer"]["answers"][:3]]
    assert shares == pytest.approx([one.score for one in expected], abs=1e-4)
    assert pair["follows"]["scores"][0] == pytest.approx(bert.follows(SECOND, FIRST), abs=1e-4)
    first, second = bert.embed([FIRST, SECOND], normalise=True)
    assert alike == pytest.approx(float(first @ second), abs=1e-4)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_heads_and_layers_are_switched_off(family: str, tmp_path: Path) -> None:
    """As the package's ablation does it; and the guesses of every depth are those of `lens`."""
    bert = tiny(family)
    path = exported(bert, tmp_path)
    text = FIRST.replace("Prague", str(bert.tokenizer.mask_token))

    def silent(mixed: torch.Tensor) -> torch.Tensor:
        return torch.cat([mixed[:, :1], torch.zeros_like(mixed[:, 1:2]), mixed[:, 2:]], 1)

    bert.model.encoder.changes[2] = silent
    bert.model.encoder.skipped[1] = torch.zeros(bert.checkpoint.config.width)
    guesses, depths = bert.fill_mask(text, top=4), lens(bert, text, top=3)
    with worker(path) as page:
        run = page.ask("run", first=text, off=["2.1"], skipped=[1])["answers"]["masked_lm"][0]
        looked = page.ask("lens", row=run["row"], top=3)["depths"]
    assert [one["id"] for one in run["best"][:4]] == [one.id for one in guesses]
    for ours, theirs in zip(looked, depths, strict=True):
        assert [one["score"] for one in ours["best"]] == pytest.approx(theirs.scores, abs=1e-4)


@pytest.mark.slow
def test_replaced_tokens(tmp_path: Path) -> None:
    """The discriminators of ELECTRA and of DeBERTa-v3, whose states are read beside the first."""
    for family in ("electra", "deberta-v2"):
        bert = tiny(family, "replaced")
        encoding = bert.tokenizer.encode(FIRST)
        with worker(exported(bert, tmp_path)) as page:
            scores = page.ask("run", first=FIRST)["answers"]["replaced"]
        with torch.inference_mode():
            logits = bert.model(Batch.of([encoding.ids], [encoding.segments]), "replaced")
        np.testing.assert_allclose(scores, logits.sigmoid()[:, 0], atol=1e-4)


def test_long_texts_are_cut(tmp_path: Path) -> None:
    """The page reads as many tokens as the model, and says how many it leaves out."""
    bert = tiny("bert")
    with worker(exported(bert, tmp_path)) as page:
        run = page.ask("run", first="the river " * 100, second="the dog")
    assert len(run["tokens"]) == 128
    assert run["left_out"] == 200 + 2 + 3 - 128


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        "albert",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("roberta", "deberta-v2", "modernbert")),
    ],
)
def test_odd_texts_have_the_same_tokens(family: str, tmp_path: Path) -> None:
    """Ids and words are those of the tokenizers library; offsets too, but for spaces."""
    bert = tiny(family)
    explorer(bert, tmp_path / "page.html")
    texts = odd_texts(bert.tokenizer)
    encoded = bert.tokenizer.encode_many(texts, special=False, spelled="mask")
    with worker(tmp_path / "page.html") as page:
        answers = page.ask("encode", texts=texts)["texts"]
    off = 0
    for text, ours, theirs in zip(texts, answers, encoded, strict=True):
        assert [token["id"] for token in ours] == theirs.ids, ascii(text)
        assert [token["word"] for token in ours] == theirs.words, ascii(text)
        spans = [trimmed(text, *span) for span in theirs.offsets]
        off += spans != [trimmed(text, token["start"], token["end"]) for token in ours]
    assert off <= len(texts) // 25  # where characters were composed or replaced


@pytest.mark.parametrize("family", ["bert", "deberta", "modernbert"])
def test_the_steps_of_a_head_and_of_the_feed_forward_are_those_of_torch(
    family: str, tmp_path: Path
) -> None:
    """Layer 1, head 2, piece 5: what torch's modules return in a pass of the encoder."""
    bert, layer, head, row = tiny(family), 1, 2, 5
    bert.model.half().float()
    explorer(bert, tmp_path / "page.html", dtype="float16")
    encoding, seen = bert.tokenizer.encode(FIRST), {}
    block, config = bert.model.encoder.blocks[layer], bert.checkpoint.config

    def watch(name: str, module: torch.nn.Module) -> None:
        def keep(_: object, read: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            seen[name] = (read[0][row].clone(), out[row].clone())

        module.register_forward_hook(keep)

    watch("attention", block.attention.output)
    watch("up", block.feedforward.up)
    watch("down", block.feedforward.down)
    trace = Trace(states=True, heads=dict.fromkeys(range(len(config.plan))))
    with torch.inference_mode():
        bert.model.encoder(Batch.of([encoding.ids], [encoding.segments]), trace)
    with worker(tmp_path / "page.html") as page:
        page.ask("run", first=FIRST)
        steps = page.ask("steps", layer=layer, head=head, row=row)

    def same(values: object, expected: torch.Tensor) -> None:
        np.testing.assert_allclose(values, expected, atol=1e-4)

    size = config.per_head
    mixed, attended = seen["attention"]
    same(steps["mixed"], mixed[head * size : (head + 1) * size])
    same(steps["attended"], attended)
    same(steps["before"], seen["up"][0])
    same(steps["bent"], seen["down"][0])
    same(steps["fed"], seen["down"][1])
    same(steps["input"], trace.hidden[layer][row])
    same(steps["output"], trace.hidden[layer + 1][row])
    weights = np.exp(
        np.array(steps["scores"], float) - max(x for x in steps["scores"] if x is not None)
    )
    same(steps["weights"], torch.from_numpy(np.nan_to_num(weights) / np.nansum(weights)))
    same(steps["mixed"], torch.tensor(steps["weights"]) @ torch.tensor(steps["values"]))
    if family == "bert":  # no distances: the score is the product alone
        products = torch.tensor(steps["keys"]) @ torch.tensor(steps["query"]) * steps["scale"]
        same(steps["scores"], products)
