"""Bodies that do not fit: every dialect names the key, what is expected and what was sent."""

from typing import Any

import httpx
import pytest

CASES: list[tuple[str, Any, str]] = [
    ("/embed", {}, "inputs is missing (keys of this route: "),
    ("/embed", [], "the body must be an object, not a list of 0"),
    ("/embed", {"inputs": 5}, "inputs must be a string or a list, not 5"),
    ("/embed", {"inputs": ["a", 1]}, "inputs[1] must be a string or a list, not 1"),
    ("/embed", {"inputs": [1, "a"]}, "inputs[1] must be an integer, not 'a'"),
    ("/embed", {"inputs": "a", "truncate": "yes"}, "truncate must be true or false, not 'yes'"),
    ("/embed", {"inputs": "a", "pooling": "max"}, "pooling must be 'mean' or 'cls', not 'max'"),
    ("/embed", {"inputs": []}, "inputs is empty"),
    ("/classify", {"inputs": "a", "str": 3}, "str is not a known key (keys of this route: "),
    ("/classify", {"text": "a"}, "inputs is missing; text is not a known key"),
    ("/classify", {"input": None}, "input must be a string or a list, not null"),
    ("/predict", {"inputs": [["a", "b", "c"]]}, "a list of at most 2 items, not a list of 3"),
    ("/rerank", {"query": "a"}, "texts is missing"),
    ("/rerank", {"query": "a", "documents": [{"text": 1}]}, "documents[0].text must be a string"),
    ("/v1/rerank", {"query": "a", "documents": [{}]}, "documents[0].text is missing"),
    ("/similarity", {"inputs": {"source_sentence": "a"}}, "inputs.sentences is missing"),
    ("/similarity", {"first": "a"}, "second is missing"),
    ("/v1/embeddings", {"input": [[1], ["a"]], "model": "tiny"}, "input[1][0] must be an integer"),
    ("/v1/embeddings", {"input": "a", "model": 5}, "model must be a string, not 5"),
    ("/score", {"text_1": 1, "text_2": ["a", 2]}, "not 1; text_2[1] must be a string, not 2"),
    ("/fill-mask", {"inputs": "[MASK]", "top": 0}, "top must be at least 1, not 0"),
    ("/fill-mask", {"inputs": "[MASK]", "top": "5"}, "top must be an integer, not '5'"),
    ("/", {"inputs": 5}, "inputs must be a string or a list, not 5"),
]


@pytest.mark.parametrize(("path", "body", "message"), CASES)
def test_the_wrong_key_is_named(http: httpx.Client, path: str, body: Any, message: str) -> None:
    response = http.post(path, json=body)
    assert response.status_code in (400, 422)
    answer = response.json()
    error = answer.get("error", answer.get("message"))
    text = error["message"] if isinstance(error, dict) else error
    assert message in text
    assert "\n" not in text
    if isinstance(error, dict):  # OpenAI's clients read the key from `param`
        assert text.startswith(error["param"])


def test_a_body_that_is_no_json(http: httpx.Client) -> None:
    for content in (b"", b"{", b'{"inputs": "\\ud800"}'):
        error = http.post("/embed", content=content).json()["error"]
        assert error.startswith("the body is not valid JSON: ")
