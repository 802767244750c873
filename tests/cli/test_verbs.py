"""Every verb, for a person and for a machine."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bertsmith import load
from bertsmith.checkpoint import built_in
from bertsmith.cli import shared
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from cli.conftest import Run
from tasks.words import LINES

MASKED = ["The [MASK] flows.", "[MASK] and [MASK] 😀"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 60 columns."""
    monkeypatch.setattr(shared, "console", lambda: Console(highlight=False, width=60))


# ------------------------------------------------------------------ fill-mask


def test_fill_mask_for_a_machine(run: Run, model: Path) -> None:
    shown = run("fill-mask", model, *MASKED, "--top", "3", "--json")
    assert (shown.status, shown.err) == (0, "note: unknown tokens: 1 of 8 (12%)\n")
    assert [row["text"] for row in shown.rows] == MASKED
    guesses = shown.rows[1]["guesses"]
    assert [guess["mask"] for guess in guesses] == [0, 0, 0, 1, 1, 1]
    assert guesses[0].keys() == {"token", "score", "text", "id", "mask"}
    expected = load(model).fill_mask(MASKED, top=3)
    assert [guess["id"] for guess in guesses] == [guess.id for guess in expected[1]]


def test_fill_mask_for_a_person(run: Run, model: Path) -> None:
    lines = run("fill-mask", model, *MASKED, "--top", "2").out.splitlines()
    assert lines[0] == MASKED[0]
    assert lines[3] == f"mask 1: {MASKED[1]}"
    assert lines[6] == f"mask 2: {MASKED[1]}"
    guess = re.compile(r" {2,4}\d{1,2}\.\d%  [█ ]{20}  \S+")
    assert all(guess.fullmatch(lines[place]) for place in (1, 2, 4, 5, 7, 8))
    assert len(lines) == 9


@pytest.mark.usefixtures("narrow")
def test_fill_mask_shows_where_the_mask_is(run: Run, model: Path) -> None:
    before, after = "the river " * 12, " the mayor" * 12
    for text in (f"{before}[MASK]{after}", f"[MASK]{after}", f"{before}[MASK]"):
        line = run("fill-mask", model, text, "--top", "1").out.splitlines()[0]
        assert "[MASK]" in line
        assert 56 <= len(line) <= 60
        assert line.startswith("…") == text.startswith("the")
        assert line.endswith("…") == text.endswith("mayor")
    escapes = run("fill-mask", model, "\x1b[2Jred\n[MASK] [bold]x", "--top", "1").out
    assert escapes.splitlines()[0] == " [2Jred [MASK] [bold]x"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["no mask"], "the text has no mask token"),
        (["[MASK]", "--top", "0"], "top must be a whole number of at least 1, not 0"),
        (["[MASK]", "--device", "gpu"], "device 'gpu' is not available"),
        (["[MASK]", "--family", "gpt"], "gpt"),
        (["[MASK]", "--family", "roberta"], "missing"),
    ],
)
def test_fill_mask_refuses(words: list[str], fault: str, run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match=fault):
        run("fill-mask", model, *words)


# ------------------------------------------------------------------ embed


def test_embed_for_a_machine(run: Run, model: Path) -> None:
    texts = ["The river.", "", "Kraków"]
    shown = run("embed", model, *texts, "--json", "--pooling", "cls", "--normalise")
    assert (shown.status, shown.err) == (0, "")
    assert [row["text"] for row in shown.rows] == texts
    vectors = np.array([row["vector"] for row in shown.rows], dtype=np.float32)
    expected = load(model).embed(texts, pooling="cls", normalise=True)
    assert np.allclose(vectors, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl"])
def test_embed_to_a_file(name: str, run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / name
    shown = run("embed", model, "--out", out, text="one\nKraków\n")
    assert shown.out == f"2 vectors of width 16 in {out}\n"
    expected = load(model).embed(["one", "Kraków"])
    if name.endswith("npy"):
        found = np.load(out, allow_pickle=False)
        assert found.dtype == np.float32
    else:
        rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        assert [row["text"] for row in rows] == ["one", "Kraków"]
        found = np.array([row["vector"] for row in rows])
    assert np.allclose(found, expected, atol=1e-6)
    again = run("embed", model, "one", "--out", out, "--json")
    assert again.rows == [{"out": str(out), "texts": 1, "width": 16}]
    with pytest.raises(BertsmithError, match=r"cannot be written \(No such file or directory"):
        run("embed", model, "one", "--out", tmp_path / "no" / name)


def test_embed_for_a_person(run: Run, model: Path) -> None:
    one = run("embed", model, "The river.", "--normalise").out
    assert re.fullmatch(r"a vector of width 16 and length 1\.000:( -?\d\.\d{4}){4} …\n", one)
    lines = run("embed", model, *["the river"] * 3).out.splitlines()
    assert lines[0] == "3 vectors of width 16; cosine similarities:"
    assert lines[1].split() == ["1", "2", "3"]
    assert lines[2].split() == ["1", "1.00", "1.00", "1.00", "the", "river"]
    assert len(lines) == 5
    many = run("embed", model, *["the river"] * 1500).out.splitlines()
    assert len(many) == 13
    assert many[-1] == "and 1,490 more; write all with --out vectors.npy"


@pytest.mark.usefixtures("narrow")
def test_embed_fits_the_terminal(run: Run, model: Path) -> None:
    long = "the river [bold] \x1b[31m " * 9
    lines = run("embed", model, *[long] * 8).out.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert len(lines) == 8
    assert lines[2].rstrip().endswith("…")


def test_embed_says_what_became_of_long_texts(run: Run, model: Path) -> None:
    long = "river " * 100
    advice = "note: --long cut reads only the beginning of long texts, which is faster\n"
    assert run("embed", model, long).err == advice + "note: long texts read in windows: 1\n"
    assert run("embed", model, long, "--long", "cut").err == "note: long texts cut: 1\n"
    with pytest.raises(BertsmithError, match="input 1 has 100 tokens, but the model reads 62 at"):
        run("embed", model, "a", long, "--long", "refuse")
    with pytest.raises(BertsmithError, match="unknown pooling 'max'"):
        run("embed", model, "a", "--pooling", "max")


# ------------------------------------------------------------------ tokenizer


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokenizer_train(kind: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES, "utf-8")
    out, size = tmp_path / "out", {"wordpiece": 200, "bpe": 300, "unigram": 90}[kind]
    words = ["tokenizer", "train", tmp_path / "a.txt", "--out", out, "--kind", kind]
    shown = run(*words, "--size", str(size), "--json")
    assert (shown.status, shown.err) == (0, "")
    made = Tokenizer.load(out)
    assert shown.rows == [{"out": str(out), "kind": kind, "size": made.size, "family": made.family}]
    assert made.kind == kind
    assert made.size <= size
    shown = run(*words, "--size", "5000", "--min-frequency", "1", "--cased", "--overwrite")
    assert re.match(rf"{kind} vocabulary of [\d,]+ tokens in ", shown.out)
    assert re.match(r"note: the text is enough for [\d,]+ tokens, not for 5,000", shown.err)
    assert not Tokenizer.load(out).lowercase


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (["--kind", "sentencepiece"], "unknown kind 'sentencepiece' of vocabulary"),
        (["--family", "gpt"], "unknown family 'gpt'"),
        (["--size", "3"], "a vocabulary of 3 tokens is too small"),
        (["nothing.txt"], "nothing.txt"),
    ],
)
def test_tokenizer_train_refuses(more: list[str], fault: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES, "utf-8")
    with pytest.raises(BertsmithError, match=fault):
        run("tokenizer", "train", tmp_path / "a.txt", "--out", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_tokenizer_show(run: Run, model: Path) -> None:
    text = "The river 😀"
    (row,) = run("tokenizer", "show", model, text, "--json").rows
    assert row["unknown"] == 1
    assert [text[piece["start"] : piece["end"]] for piece in row["pieces"]] == [
        piece["text"] for piece in row["pieces"]
    ]
    lines = run("tokenizer", "show", model / "tokenizer.json", text).out.splitlines()
    assert lines[0] == "The river 😀  3 tokens, 1 unknown"
    assert lines[1].split() == ["token", "id", "characters", "text"]
    assert lines[2].split()[0] == "the"
    assert lines[2].split()[2:] == ["0-3", "'The'"]
    assert lines[4].split()[0] == "[UNK]"
    with pytest.raises(BertsmithError, match="no such file or directory"):
        run("tokenizer", "show", model / "nothing", text)


# ------------------------------------------------------------------ models of the package


@pytest.mark.parametrize("verb", ["fill-mask", "finetune", "prepare"])
def test_help_names_the_models_of_the_package(verb: str, run: Run) -> None:
    text = re.sub(r"\s", "", run(verb, "--help").out)  # lines may end at a hyphen
    assert all(name in text for name in built_in())


def test_their_vocabularies_have_their_names_too(run: Run, tmp_path: Path) -> None:
    (row,) = run("tokenizer", "show", "bertsmith-small", "A word.", "--json").rows
    own = load("bertsmith-small", device="cpu").tokenizer
    assert [piece["id"] for piece in row["pieces"]] == own.encode("A word.", special=False).ids
    (tmp_path / "a.txt").write_text(LINES, "utf-8")
    words = ["--tokenizer", "bertsmith-small", "--out", tmp_path / "corpus", "--workers", "0"]
    assert run("prepare", tmp_path / "a.txt", *words).status == 0
    assert Corpus.open(tmp_path / "corpus").tokenizer.vocabulary() == own.vocabulary()


@pytest.mark.usefixtures("narrow")
def test_tokenizer_show_fits_the_terminal(run: Run, model: Path) -> None:
    shown = run("tokenizer", "show", model, "[bold]river\n" * 20).out.splitlines()
    assert all(len(line) <= 60 for line in shown)
    assert shown[0].endswith("…  120 tokens, 40 unknown")


# ------------------------------------------------------------------ doctor


def test_doctor(run: Run) -> None:
    shown = run("doctor", "--json")
    (found,) = shown.rows
    assert (shown.status, shown.err) == (0, "")
    keys = "bertsmith python platform libraries extras models threads cpu_capability"
    keys += " bf16_matrix_units gpus kernels kernel_disagreement kernels_agree bfloat16_speedup"
    keys += " compile tokens_per_second fastest_dtype"
    assert [*found] == keys.split()
    assert found["kernels_agree"] is True
    assert found["libraries"]["torch"]
    assert found["extras"].keys() == {
        *("analysis", "corpus", "excel", "onnx", "ray", "search", "serve", "tensorboard", "wandb"),
        "mlflow",
    }
    assert found["models"] == ["bertsmith-classic", "bertsmith-embed", "bertsmith-small"]
    assert all(speed > 0 for speed in found["tokens_per_second"]["cpu"].values())


def test_doctor_for_a_person(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "bertsmith": "1", "python": "3", "platform": "here", "libraries": {"torch": None},
        "extras": {"ray": False}, "models": ["one", "two"], "threads": 4, "cpu_capability": "AVX",
        "bf16_matrix_units": True, "gpus": [], "kernel_disagreement": 0.5,
        "kernels": {"cpu": {"float32": "runs", "bfloat16": "reference"}},
        "kernels_agree": False, "bfloat16_speedup": {"cpu": 3.0},
        "compile": None, "tokens_per_second": {"cpu": {"reading, float32": 1234}},
    }  # fmt: skip
    monkeypatch.setattr("bertsmith.cli.doctor.examine", lambda: found)
    shown = run("doctor")
    assert shown.status == 1
    assert shown.err == "note: attention kernels disagree on this machine: please report it\n"
    lines = [line.rstrip() for line in shown.out.splitlines()]
    assert "torch             missing" in lines
    assert "extra ray         not installed: pip install 'bertsmith[ray]'" in lines
    assert "built-in models   one, two" in lines
    assert "attention on cpu  float32: runs, bfloat16: reference" in lines
    assert "kernels           DISAGREE (largest difference in bfloat16 5.0e-01)" in lines
    assert 'bfloat16 on cpu   3.0 x float32: use dtype="bfloat16" for speed' in lines
    assert "torch.compile     needs a C++ compiler; all runs without" in lines
    assert "fastest on cpu    dtype=float32" in lines
    assert "speed on cpu      a BERT-base, reading, float32: about 1,234 tokens/s" in lines
