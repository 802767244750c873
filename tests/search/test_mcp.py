"""Tools for assistants, called by the client of the `mcp` package."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith import Bert
from bertsmith.search import Index
from serve.live import tiny

mcp = pytest.importorskip("mcp")
LONG = "\n\n".join(f"Paragraph {number} is about number {number}. " * 30 for number in range(8))


@pytest.fixture(scope="module")
def models() -> dict[str, Bert]:
    """One that does everything, and a second one for some."""
    return {"tiny": tiny(), "labels": tiny(("classify",), seed=1)}


@pytest.fixture
def server(index: Index, folder: Path, models: dict[str, Bert]) -> Any:
    from bertsmith.search.mcp import create_server

    (folder / "long.md").write_text(LONG, "utf-8")
    index.update()
    return create_server({"notes": index}, models)


def talk(server: Any, steps: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with mcp.Client(server) as client:
            return await steps(client)

    return asyncio.run(run())


def call(server: Any, name: str, **arguments: Any) -> Any:
    answer = talk(server, lambda client: client.call_tool(name, arguments))
    assert not answer.is_error, answer.content[0].text
    assert json.loads(answer.content[0].text) == answer.structured_content["results"]
    return answer.structured_content["results"]


def test_every_tool_is_listed_and_answers(server: Any, models: dict[str, Bert]) -> None:
    async def each(client: Any) -> dict[str, Any]:
        tools = (await client.list_tools()).tools
        assert len({tool.name for tool in tools}) == len(tools)
        found = {}
        for tool in tools:
            schema = tool.input_schema
            assert tool.description.endswith(".")
            assert tool.annotations.read_only_hint is True
            assert "form" not in json.dumps(schema["properties"])
            values = {"string": "cats", "integer": 1, "array": ["a [MASK]", "b"]}
            known = {"query": "cats purr", "labels": ["old", "new"], "inputs": "a [MASK]"}
            given = {
                name: known.get(name) or values[schema["properties"][name].get("type", "string")]
                for name in schema["required"]
            }
            answer = await client.call_tool(tool.name, given)
            assert not answer.is_error, (tool.name, answer.content[0].text)
            found[tool.name] = tool
        return found

    tools = talk(server, each)
    assert {"search", "read", "find_answer", "classify", "tag", "fill_mask"} <= {*tools}
    assert "embed" not in tools  # vectors tell an assistant nothing
    assert "tiny (labels: O, B-PER, I-PER); labels (" in tools["classify"].description
    assert tools["classify"].input_schema["properties"]["model"]["enum"] == ["tiny", "labels"]
    assert "model" not in tools["tag"].input_schema["properties"]
    assert "mask: [MASK]" in tools["fill_mask"].description


def test_search_and_read_on(server: Any) -> None:
    hits = call(server, "search", query="cats eat fish", top=3)
    assert hits[0]["file"].endswith("cats.md")
    assert hits[0]["line"]
    assert all(
        hit["file"].endswith(".py") for hit in call(server, "search", query="purr", files=["*.py"])
    )
    middle = call(server, "search", query='"Paragraph 4"', top=1)[0]
    around = call(server, "read", passage=middle["passage"], before=1, after=1)
    assert [one["passage"] for one in around][1] == middle["passage"]
    assert "Paragraph 3" in around[0]["text"] + around[1]["text"]
    assert {one["file"] for one in around} == {middle["file"]}
    record = call(server, "search", query="red fruit", files=["*.jsonl"], top=1)[0]
    alone = call(server, "read", passage=record["passage"], before=20, after=20)
    assert len(alone) == 1  # other records of the file are other documents


def test_models_answer_as_in_python(server: Any, models: dict[str, Bert]) -> None:
    found = call(server, "classify", inputs=["Anna"], model="labels")[0]
    ours = models["labels"].classify("Anna")
    assert (found["label"], found["score"]) == (ours.label, pytest.approx(ours.score, abs=1e-5))
    answers = call(server, "find_answer", question="What do cats eat?")
    assert {"text", "file", "line"} <= answers[0].keys()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("remove", {}, "there is no tool 'remove'; the tools: search"),
        ("../search", {"query": "a"}, "there is no tool"),
        ("search", {}, "query: Field required"),
        ("search", {"query": ""}, "query: String should have at least 1"),
        ("search", {"query": "a", "top": 10**30}, "top: "),
        ("search", {"query": "a", "top": "5"}, "top: Input should be a valid integer"),
        ("search", {"query": "a", "index": "/etc"}, "index: Extra inputs are not permitted"),
        ("search", {"query": "a" * 300_000}, "characters, at most 200,000"),
        ("search", {"query": "a", "__class__": 1}, "__class__: Extra inputs"),
        ("search", {"query": "\ud800"}, ""),
        ("search", {"query": "' OR 1=1; DROP TABLE passages; --"}, None),
        ("search", {"query": 'text:"x" NEAR(a b) * ^ ('}, None),
        ("read", {"passage": 10**9}, "has no passage 1000000000: search again"),
        ("read", {"passage": -1}, "passage: "),
        ("read", {"passage": 10**30}, "passage: "),
        ("read", {"passage": 1, "before": 10_000}, "before: "),
        ("classify", {"inputs": "a", "model": "../../etc/passwd"}, "model: Input should be 'tiny'"),
        ("classify", {"inputs": {"a": 1}}, "inputs"),
        ("classify", {"inputs": "a", "model": ["tiny"]}, "model: "),
        ("fill_mask", {"inputs": "nothing to fill"}, "mask"),
        ("fill_mask", {"inputs": "[MASK]", "top": 0}, "top: "),
    ],
)
def test_hostile_arguments(
    server: Any, name: str, arguments: dict[str, Any], message: str | None
) -> None:
    async def ask(client: Any) -> Any:
        try:
            answer = await client.call_tool(name, arguments)
        except UnicodeEncodeError:  # the client cannot send it
            return None
        after = await client.call_tool("search", {"query": "cats"})
        assert after.structured_content["results"]  # nothing is broken
        return answer

    answer = talk(server, ask)
    if answer is None:
        return
    text = answer.content[0].text
    if message is None:
        assert not answer.is_error
    else:
        assert answer.is_error, text
        assert message in text
        assert "\n" not in text
        assert "Traceback" not in text
