"""A made-up use that is registered before anything else is imported: is it there everywhere?

Run by test_uses.py in a process of its own, since `Bert` is made of the registry once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import InferencePass, Steps
from bertsmith.tasks import use as use_module
from bertsmith.tasks.use import Askable, Call, RequestBody, Use, form, listed


@EncoderTask
def count(bert: LoadedModel, texts: Sequence[str], letter: str) -> Steps[list[dict[str, Any]]]:
    """The share of a letter."""
    windows = bert.windows(texts)
    yield InferencePass(windows, lambda model, hidden, batch, group: [0] * len(group), "count")
    return [{"letter": letter, "share": text.count(letter) / len(text)} for text in texts]


class CountRequest(RequestBody):
    """Texts and a letter."""

    inputs: Annotated[str | list[str], form("Text", "A banana.")]
    letter: Annotated[str, form("Letter", "a", rows=0)] = "e"


class CountMethods(Askable):
    """`count_letters`."""

    def count_letters(self, texts: list[str], letter: str = "e") -> Any:
        """The share of a letter in each text."""
        return self.ask(USE, CountRequest.model_construct(inputs=texts, letter=letter))


class Count(Use):
    """How often a letter occurs."""

    verb, order = "count-letters", 7
    title, question = "Count", "How often does a letter occur?"
    Request, Answer, Methods = CountRequest, list[dict[str, str | float]], CountMethods
    lists = ("inputs",)

    def call(self, bert: LoadedModel, request: CountRequest) -> Call:
        """All texts at once."""
        texts = listed(request.inputs)
        return Call(count, (texts, request.letter), texts)


USE, known = Count(), use_module.uses
FRUITS = ["banana", "cherry"]
SHARES = [{"letter": "a", "share": 0.5}, {"letter": "a", "share": 0.0}]


def asked(http: Any, bert: Any) -> None:
    """The route, its schema, and the methods of `Bert` and of the client."""
    import bertsmith as bs

    body = {"inputs": FRUITS, "letter": "a"}
    assert http.post("/count-letters", json=body).json()["results"] == SHARES
    assert bert.count_letters(FRUITS, "a") == SHARES
    far: Any = bs.connect(str(http.base_url))
    assert far.count_letters(FRUITS, "a") == SHARES
    assert len(far.count_letters(["banana"] * 70)) == 70  # in two requests
    wrong = http.post("/count-letters", json={"inputs": "a", "letters": "a"})
    assert "letters is not a known key" in wrong.json()["error"]
    schema = http.get("/openapi.json").json()
    assert schema["paths"]["/count-letters"]["post"]["description"] == Count.__doc__
    parts = schema["components"]["schemas"]
    expected = {"inputs", "letter", "model", "long", "read"}
    assert {*parts["CountLettersBody"]["properties"]} == expected
    assert parts["CountLettersAnswer"]["properties"]["results"]["items"]["additionalProperties"]
    assert http.get("/models").json()["models"][0]["can"][1] == "count-letters"
    assert "How often does a letter occur?" in http.get("/").text


def tried(http: Any) -> None:
    """Its form in the playground, where there is a browser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return
    with sync_playwright() as driver:
        try:
            options = {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox"]}
            browser = driver.chromium.launch(**options)
        except Error:
            return
        page = browser.new_page()
        page.goto(f"{http.base_url}/#count-letters")
        page.wait_for_selector(".panel:not([hidden]) .result .bar")
        page.fill("#count-letters-inputs", "banana")
        page.wait_for_selector("text=50.0%")
        code = page.text_content(".panel:not([hidden]) .request")
        assert 'bert.count_letters("banana", letter="a")' in code
        page.fill("#count-letters-inputs", "")
        page.wait_for_selector("text=Write a text.")
        browser.close()


if __name__ == "__main__":
    use_module.uses = lambda: iter([*known(), USE])
    from serve.live import serving, tiny

    model = tiny(("masked_lm",))
    with serving({"tiny": model}) as client:
        asked(client, model)
        tried(client)
