"""Embeddings: equal to sentence-transformers', with real weights and with our own directories."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

from bertsmith import Bert, load
from bertsmith.checkpoint import Sentence, convert, create
from bertsmith.checkpoint.dense import Dense as OurDense
from bertsmith.errors import BertsmithError
from tasks.models import LINES, Made, Maker, save, tokenizer

CLOSE = 1e-5
WORDS = LINES.split()
TEXTS = [
    "",
    " ",
    "word",
    "🙂 👩‍👩‍👧 🇫🇷 naïve café",
    "שלום עולם ومرحبا بالعالم",
    "a\0b\0",
    "[cls] [SEP [MASK",
    "東京は日本の首都です",
    "e\u0301 \u200b\u00ad\ufeff x\r\n\ty",
    *LINES.splitlines(),
    " ".join(random.Random(0).choices(WORDS, k=100)),
]


def reference(folder: Path, texts: list[str], **more: Any) -> Any:
    """What sentence-transformers makes of texts."""
    model = SentenceTransformer(str(folder), device="cpu")
    return model.encode(texts, show_progress_bar=False, **more)


def difference(ours: Any, theirs: Any) -> float:
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float32
    return float(np.abs(ours - theirs).max())


# ------------------------------------------------------------------ trained weights


def test_real_weights(minilm: Bert, minilm_folder: Path) -> None:
    # The longest that fit, the first that do not, and far longer: sentence-transformers cuts.
    limit = [f"{'river ' * count}end" for count in (252, 253, 254, 255, 600)]
    sizes = [len(minilm.tokenizer.encode(text)) for text in limit]
    assert sizes == [255, 256, 257, 258, 603]
    texts = TEXTS + limit
    before = minilm.ledger.counts["long texts cut"]
    ours = minilm.embed(texts, long="cut")
    assert minilm.ledger.counts["long texts cut"] == before + 3
    assert difference(ours, reference(minilm_folder, texts)) <= CLOSE
    assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)
    windowed = minilm.embed(texts)
    assert difference(windowed[:-3], ours[:-3]) <= CLOSE, "texts that fit are read the same"
    assert difference(windowed[-3:], ours[-3:]) > CLOSE


def test_real_weights_in_another_pooling(minilm: Bert, minilm_folder: Path) -> None:
    parts = Transformer(str(minilm_folder), max_seq_length=256)
    model = SentenceTransformer(modules=[parts, Pooling(384, "cls")], device="cpu")
    theirs = model.encode(TEXTS, show_progress_bar=False)
    assert difference(minilm.embed(TEXTS, pooling="cls", normalise=False), theirs) <= CLOSE
    assert minilm.sentence == Sentence(
        "mean", normalise=True, max_length=256, more=minilm.sentence.more
    )


@pytest.mark.slow
def test_real_weights_saved_again(minilm: Bert, minilm_folder: Path, tmp_path: Path) -> None:
    minilm.save(tmp_path)
    again = load(tmp_path, device="cpu")
    assert again.sentence == minilm.sentence
    texts = [*TEXTS, "river " * 400]
    assert np.array_equal(again.embed(texts), minilm.embed(texts))
    assert difference(again.embed(texts, long="cut"), reference(tmp_path, texts)) <= CLOSE
    assert difference(minilm.embed(TEXTS), reference(tmp_path, TEXTS)) <= CLOSE


def test_real_weights_in_half_the_bits(minilm: Bert, minilm_folder: Path) -> None:
    half = load(minilm_folder, device="cpu", dtype="bfloat16").embed(LINES.splitlines())
    whole = minilm.embed(LINES.splitlines())
    assert half.dtype == np.float32
    assert ((half * whole).sum(1) > 0.998).all()


# ------------------------------------------------------------------ directories of both sides


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_what_we_save(family: str, pool: str, normalise: bool, made: Maker, tmp_path: Path) -> None:
    source = made(family, "Model").ours
    bert = Bert(source.checkpoint, source.tokenizer, sentence=Sentence(pool, normalise, 60))
    bert.save(tmp_path)
    ours = bert.embed(TEXTS, long="cut")
    assert difference(ours, reference(tmp_path, TEXTS)) <= CLOSE
    again = load(tmp_path, device="cpu")
    assert again.sentence == bert.sentence
    assert np.array_equal(again.embed(TEXTS, long="cut"), ours)


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_what_they_save(mode: str, made: Maker, tmp_path: Path) -> None:
    folder = made("bert", "Model").folder
    parts = [Transformer(str(folder), max_seq_length=40), Pooling(32, mode), Normalize()]
    model = SentenceTransformer(modules=parts, device="cpu")
    model.save(str(tmp_path))
    bert = load(tmp_path, device="cpu")
    assert bert.sentence.normalise
    theirs = model.encode(TEXTS, show_progress_bar=False)
    assert difference(bert.embed(TEXTS, long="cut"), theirs) <= CLOSE


def test_prompts_and_lower_case_are_kept(made: Maker, tmp_path: Path) -> None:
    folder = made("roberta", "Model").folder  # whose tokenizer keeps upper case
    more = {"prompts": {"query": "Find: ", "none": ""}, "default_prompt_name": "query"}
    source = load(folder, device="cpu")
    sentence = Sentence(lowercase=True, max_length=64, more=more)
    bert = Bert(source.checkpoint, source.tokenizer, sentence=sentence)
    bert.save(tmp_path)
    texts = [text for text in TEXTS if text.strip()]
    assert difference(bert.embed(texts, long="cut"), reference(tmp_path, texts)) <= CLOSE
    assert difference(bert.embed(texts), source.embed(texts)) > CLOSE
    again = load(tmp_path, device="cpu")
    assert again.sentence == sentence
    assert np.array_equal(again.embed("ANNA"), bert.embed("anna"))


@pytest.mark.parametrize(
    ("sizes", "options", "normalise"),
    [
        ([16], {}, False),
        ([16], {"bias": False, "activation_function": torch.nn.Identity()}, True),
        ([48, 8], {"activation_function": torch.nn.GELU()}, True),
    ],
)
def test_dense_modules(
    sizes: list[int], options: dict[str, Any], normalise: bool, made: Maker, tmp_path: Path
) -> None:
    """Read, applied after the pooling, and written back in the same layout."""
    torch.manual_seed(0)
    parts = [Transformer(str(made("bert", "Model").folder), max_seq_length=60), Pooling(32, "mean")]
    parts += [Dense(a, b, **options) for a, b in pairwise([32, *sizes])]
    model = SentenceTransformer(modules=[*parts, *[Normalize()] * normalise], device="cpu")
    model.save(str(tmp_path / "theirs"))
    want = model.encode(TEXTS, show_progress_bar=False)
    bert = load(tmp_path / "theirs", device="cpu")
    assert bert.vector_width == sizes[-1]
    assert difference(bert.embed(TEXTS, long="cut"), want) <= CLOSE
    bert.save(tmp_path / "ours")
    assert difference(reference(tmp_path / "ours", TEXTS), want) <= CLOSE
    convert(tmp_path / "theirs", tmp_path / "converted")
    assert (
        difference(load(tmp_path / "converted", device="cpu").embed(TEXTS, long="cut"), want)
        <= CLOSE
    )
    for name in ("theirs", "ours"):
        assert [path.name for path in sorted((tmp_path / name).glob("*_Dense"))] == [
            f"{number}_Dense" for number in range(2, 2 + len(sizes))
        ]


def test_dense_modules_of_older_files(made: Maker, tmp_path: Path) -> None:
    """pytorch_model.bin instead of safetensors."""
    parts = [Transformer(str(made("bert", "Model").folder)), Pooling(32, "cls"), Dense(32, 8)]
    model = SentenceTransformer(modules=parts, device="cpu")
    model.save(str(tmp_path), safe_serialization=False)
    assert (tmp_path / "2_Dense" / "pytorch_model.bin").is_file()
    want = model.encode(TEXTS, show_progress_bar=False)
    assert difference(load(tmp_path, device="cpu").embed(TEXTS, long="cut"), want) <= CLOSE


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"activation_function": "os.system"}, "the activation 'os.system' is not known"),
        ({"out_features": 9}, "do not have the shape"),
        ({"use_residual": True}, "is not supported"),
        ({"module_input_name": "token_embeddings"}, "is not supported"),
        ({"in_features": 16}, "do not have the shape"),
    ],
)
def test_dense_modules_that_are_refused(
    settings: dict[str, Any], fault: str, made: Maker, tmp_path: Path
) -> None:
    bert = made("bert", "Model").ours
    dense = OurDense(torch.zeros(8, 32), torch.zeros(8))
    Bert(bert.checkpoint, bert.tokenizer, sentence=Sentence(dense=(dense,))).save(tmp_path)
    path = tmp_path / "2_Dense" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(BertsmithError, match=fault) as caught:
        load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_dense_modules_fit_the_encoder(made: Maker) -> None:
    bert = made("bert", "Model").ours
    dense = OurDense(torch.zeros(8, 16), None)
    with pytest.raises(BertsmithError, match="reads vectors of width 16, but its encoder has 32"):
        Bert(bert.checkpoint, bert.tokenizer, sentence=Sentence(dense=(dense,)))


def test_prompts_by_name_and_by_hand(made: Maker, tmp_path: Path) -> None:
    source = made("bert", "Model").ours
    more = {"prompts": {"query": "the river: ", "document": "a stone: "}}
    bert = Bert(source.checkpoint, source.tokenizer, sentence=Sentence(more=more))
    bert.save(tmp_path)
    texts = LINES.splitlines()
    model = SentenceTransformer(str(tmp_path), device="cpu")
    for name, theirs in (("query", model.encode_query), ("document", model.encode_document)):
        want = theirs(texts, show_progress_bar=False)
        assert difference(bert.embed(texts, long="cut", prompt_name=name), want) <= CLOSE
        prompt = more["prompts"][name]
        assert difference(bert.embed(texts, long="cut", prompt=prompt), want) <= CLOSE
        assert difference(bert.embed(texts, long="cut"), want) > CLOSE
    with pytest.raises(BertsmithError, match="has no prompt 'title'; it has: query, document"):
        bert.embed("a", prompt_name="title")
    with pytest.raises(BertsmithError, match="not both"):
        bert.embed("a", prompt_name="query", prompt="x")


@pytest.mark.parametrize(
    ("more", "pair"),
    [
        ({}, ("", "")),
        ({"prompts": {"query": "q: ", "passage": "p: "}}, ("q: ", "p: ")),
        ({"prompts": {"query": "q: ", "document": "", "passage": "p: "}}, ("q: ", "p: ")),
        ({"prompts": {"query": "q: "}}, ("q: ", "")),
        ({"prompts": {"search_query": "q: ", "search_document": "p: "}}, ("q: ", "p: ")),
        ({"prompts": {"x": "same: "}, "default_prompt_name": "x"}, ("same: ", "same: ")),
        ({"prompts": {"query": "q: "}, "default_prompt_name": "query"}, ("q: ", "")),
    ],
)
def test_prompts_of_queries_and_documents(more: Any, pair: tuple[str, str]) -> None:
    assert Sentence(more=more).search_prompts == pair


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("multilingual-e5-small", "query: ", "passage: "),
        ("models--intfloat--e5-base-v2/snapshots/0a1b", "query: ", "passage: "),
        ("bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("modernbert-embed-base", "search_query: ", "search_document: "),
        ("my-e5-base-v2-reranker", "", ""),
    ],
)
def test_prompts_of_published_models(
    name: str, query: str, document: str, made: Maker, tmp_path: Path
) -> None:
    """Their files do not name them; the name of the directory does."""
    made("bert", "Model").ours.save(tmp_path / name)
    assert load(tmp_path / name, device="cpu").sentence.search_prompts == (query, document)


def test_an_older_layout(made: Maker, tmp_path: Path) -> None:
    bert = made("bert", "Model").ours
    bert.save(tmp_path / "0_Transformer")
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / "0_Transformer" / name).unlink()
    inside = tmp_path / "0_Transformer" / "sentence_distilbert_config.json"
    inside.write_text('{"max_seq_length": 20}')
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    kind = "sentence_transformers.models."
    modules = [{"path": path, "type": kind + name} for path, name in kinds.items()]
    rows = [{"idx": number, "name": str(number), **row} for number, row in enumerate(modules)]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    old = load(tmp_path, device="cpu")
    assert old.sentence == Sentence("first", max_length=20)
    assert difference(old.embed(TEXTS, long="cut"), reference(tmp_path, TEXTS)) <= CLOSE


# ------------------------------------------------------------------ many, long, none


@pytest.fixture(scope="module")
def tiny(made: Maker) -> Made:
    return made("bert", "Model")


def test_order_and_company_do_not_matter(tiny: Made) -> None:
    bert, draw = tiny.ours, random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 60))) for _ in range(300)]
    vectors = bert.embed(texts)
    assert vectors.shape == (300, 32)
    for number in (0, 7, 150, 299):
        assert difference(bert.embed(texts[number]), vectors[number]) <= CLOSE
    assert difference(bert.embed(texts[::-1])[::-1], vectors) <= CLOSE
    for budget in (1, 50, 10**9):
        other = Bert(bert.checkpoint, bert.tokenizer, budget=budget)
        assert difference(other.embed(iter(texts)), vectors) <= CLOSE
    assert difference(bert.embed(np.array(texts)), vectors) <= CLOSE


def test_shapes(tiny: Made) -> None:
    assert tiny.ours.embed("a").shape == (32,)
    assert tiny.ours.embed(["a"]).shape == (1, 32)
    none = tiny.ours.embed([])
    assert none.shape == (0, 32)
    assert none.dtype == np.float32
    assert tiny.ours.embed([], normalise=True).shape == (0, 32)


def test_a_long_text_is_the_mean_of_its_windows(tiny: Made) -> None:
    bert = tiny.ours
    text = " ".join(random.Random(2).choices(WORDS, k=300))
    windows = bert.windower(overlap=0).single(0, bert.tokenizer.encode(text, special=False).ids)
    assert len(windows) > 3
    before = bert.ledger.counts["long texts read in windows"]
    found = bert.embed(text)
    assert bert.ledger.counts["long texts read in windows"] == before + 1
    with torch.no_grad():
        inputs = [torch.tensor([window.ids]) for window in windows]
        states = [tiny.theirs(ids).last_hidden_state[0] for ids in inputs]
    assert difference(found, torch.cat(states).mean(0).numpy()) <= CLOSE
    with pytest.raises(BertsmithError, match=r"^input 1 has .* tokens, but the model reads 126 at"):
        bert.embed(["a", text], long="refuse")


def test_a_text_of_a_megabyte(tiny: Made) -> None:
    text = (LINES + "\n") * (2**20 // len(LINES) + 1)
    assert len(text) > 2**20
    vector = tiny.ours.embed(text)
    assert np.isfinite(vector).all()
    unbroken = tiny.ours.embed("x" * 2**20)  # one word, unknown as a whole
    assert np.isfinite(unbroken).all()


@pytest.mark.parametrize("wanted", [True, False, None])
def test_a_bar_is_shown_where_a_person_watches(
    wanted: bool | None, tiny: Made, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, this is a terminal
    bert = Bert(tiny.ours.checkpoint, tiny.ours.tokenizer, budget=20, progress=wanted)
    bert.embed(["the river flows"] * 50)
    said = capsys.readouterr()
    assert said.out == ""
    assert ("250 of 250 tokens" in said.err) == bool(wanted)
    assert said.err.endswith("\x1b[2K") == bool(wanted), "and then it is wiped away"


def test_unknown_tokens_are_counted(tiny: Made) -> None:
    bert = Bert(tiny.ours.checkpoint, tiny.ours.tokenizer)
    bert.embed(["東 京", "river", "東"])
    (line,) = bert.ledger.lines()
    assert line.startswith("unknown tokens: 3 of 4 (75%): is this")


@pytest.mark.parametrize(
    ("texts", "more", "fault"),
    [
        (5, {}, "texts must be a list of strings, not of type int"),
        (None, {}, "texts must be a list of strings, not of type NoneType"),
        ({"a": 1}, {}, "texts must be a list of strings, not of type dict"),
        (["a", 5], {}, "texts must be strings, but number 1 is of type int"),
        ([["a"]], {}, "texts must be strings, but number 0 is of type list"),
        ("\ud83d", {}, r"half of a surrogate pair \(U\+D83D\) at character 0"),
        (["a", "b\udc00c"], {}, r"text 1 has half of a surrogate pair \(U\+DC00\) at character 1"),
        ("a", {"pooling": "max"}, "unknown pooling 'max'; known: mean, cls"),
        ("a", {"pooling": 3}, "unknown pooling 3; known: mean, cls"),
        ("a", {"long": "ignore"}, 'long must be "window", "refuse" or "cut", not \'ignore\''),
    ],
)
def test_bad_inputs(texts: Any, more: dict[str, Any], fault: str, tiny: Made) -> None:
    with pytest.raises(BertsmithError, match=fault) as caught:
        tiny.ours.embed(texts, **more)
    assert "\n" not in str(caught.value)


def test_a_model_with_no_room_for_a_text_says_so(tmp_path: Path) -> None:
    bert = save(tmp_path, "bert", "Model", max_position_embeddings=3).ours
    with pytest.raises(BertsmithError, match="this model reads 3 tokens at once: no room"):
        bert.embed("a")


def test_a_fresh_model_embeds() -> None:
    words = tokenizer("bert")
    bert = Bert(create("bert-tiny", vocab_size=words.size, heads=()), words)
    assert bert.embed(["a", "b"]).shape == (2, 128)
    assert "bert 2x128" in repr(bert)
