"""`POST /`: one result for each text, in the format of the task; no key is ignored."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bertsmith import Bert
from serve.live import serving, tiny
from serve.test_routes import close

HEADS = {"classify": "labels", "tag": "tags", "masked_lm": "masks", "answer": "answers"}
TEXTS = ["The river flows.", "Anna lives in Kraków"]


@pytest.fixture(scope="module")
def berts() -> dict[str, Bert]:
    return {name: tiny((head,)) for head, name in HEADS.items()}


@pytest.fixture(scope="module")
def hub(berts: dict[str, Bert]) -> Iterator[httpx.Client]:
    with serving(berts) as client:
        yield client


def ask(hub: httpx.Client, model: str, inputs: Any, **keys: Any) -> Any:
    response = hub.post("/", json={"model": model, "inputs": inputs, **keys})
    assert response.status_code == 200, response.text
    return response.json()


def refusal(hub: httpx.Client, model: str, inputs: Any, **keys: Any) -> str:
    response = hub.post("/", json={"model": model, "inputs": inputs, **keys})
    assert response.status_code in (400, 422), response.text
    return str(response.json()["error"])


def test_a_list_has_a_result_for_each_text(hub: httpx.Client, berts: dict[str, Bert]) -> None:
    labels = ask(hub, "labels", TEXTS)
    expected = [max(one.scores.values()) for one in berts["labels"].classify(TEXTS)]
    assert [row[0]["score"] for row in labels] == pytest.approx(expected, abs=1e-5)
    close(ask(hub, "labels", TEXTS[0]), labels[:1])
    assert len(ask(hub, "labels", [TEXTS])) == 1  # a pair, as TEI sends it
    tags = ask(hub, "tags", TEXTS)
    texts = [[one.text for one in row] for row in berts["tags"].tag(TEXTS)]
    assert [[one["word"] for one in row] for row in tags] == texts
    close(ask(hub, "tags", TEXTS[1]), tags[1])
    masked = ["a [MASK]", "the [MASK] flows"]
    guesses = ask(hub, "masks", masked)
    assert [len(row) for row in guesses] == [5, 5]
    close(ask(hub, "masks", masked[1]), guesses[1])
    assert len(ask(hub, "masks", TEXTS)) == 2  # vectors: there is nothing to fill
    assert "inputs must be an object" in refusal(hub, "answers", TEXTS)


def test_parameters_are_honoured(hub: httpx.Client, berts: dict[str, Bert]) -> None:
    every = ask(hub, "labels", TEXTS)
    best = ask(hub, "labels", TEXTS, parameters={"top_k": 1}, options={"wait_for_model": True})
    close(best, [row[:1] for row in every])
    raw = ask(hub, "labels", TEXTS[0], parameters={"function_to_apply": "none"})
    close(raw, ask(hub, "labels", TEXTS[0], raw_scores=True))
    sigmoid = ask(hub, "labels", TEXTS[0], parameters={"function_to_apply": "sigmoid"})
    assert [one["label"] for one in sigmoid[0]] == [one["label"] for one in raw[0]]
    assert sigmoid != raw
    entities = ask(hub, "tags", TEXTS[1], parameters={"aggregation_strategy": "first"})
    assert entities
    assert not ask(hub, "tags", TEXTS[1], parameters={"ignore_labels": ["O", "PER"]})
    assert len(ask(hub, "masks", "a [MASK]", parameters={"top_k": 2})) == 2
    question = {"question": "Who?", "context": TEXTS[1]}
    several = ask(hub, "answers", question, parameters={"top_k": 2, "max_answer_len": 3})
    ours = berts["answers"].answer("Who?", TEXTS[1], top=2, longest=3)
    assert [one["answer"] for one in several] == [one.text for one in ours]
    best = ask(hub, "answers", question, parameters={"max_answer_len": 3})
    assert best["answer"] == several[0]["answer"]
    plain = ask(hub, "masks", TEXTS, normalize=False)
    close(plain, ask(hub, "masks", TEXTS, parameters={"normalize": False}))
    assert plain != ask(hub, "masks", TEXTS)


@pytest.mark.parametrize(
    ("model", "inputs", "parameters", "message"),
    [
        ("masks", "a", {"candidate_labels": ["x"]}, "give at least two labels"),
        (
            "masks",
            "a",
            {"candidate_labels": "x, y", "multi_label": True},
            "it needs a label entail",
        ),
        ("masks", "a", {"candidate_labels": "x, y", "hypothesis_template": "z"}, "template must"),
        ("labels", "a", {"tpo_k": 1}, "tpo_k is not a known key (keys of this route: "),
        ("labels", "a", {"top_k": 0}, "top_k must be at least 1, not 0"),
        ("labels", "a", {"function_to_apply": "tanh"}, "function_to_apply must be"),
        ("tags", "a", {"aggregation_strategy": "simple"}, "aggregation_strategy must be 'first'"),
        ("tags", "a", {"stride": 5}, "stride is not a known key"),
        ("tags", "a", {"ignore_labels": []}, "ignore_labels must contain 'O'"),
        ("masks", "a [MASK]", {"targets": ["b"]}, "targets is not a known key"),
        ("masks", "a", {"top_k": 3}, "top_k is not a known key"),
        ("answers", {"question": "a", "context": "b"}, {"doc_stride": 9}, "doc_stride is not a"),
        ("answers", {"question": "a", "context": 5}, {}, "inputs.context must be a string, not 5"),
        ("masks", {"source_sentence": "a", "sentences": ["b"]}, {"top": 1}, "top is not a known"),
    ],
)
def test_other_parameters_are_refused(
    hub: httpx.Client, model: str, inputs: Any, parameters: Any, message: str
) -> None:
    inside = refusal(hub, model, inputs, parameters=parameters)
    assert message in inside
    assert "\n" not in inside
    if parameters:
        assert message in refusal(hub, model, inputs, **parameters)


def test_unknown_options_are_refused(hub: httpx.Client) -> None:
    assert "use_gpu is not a known key" in refusal(hub, "labels", "a", options={"use_gpu": True})
