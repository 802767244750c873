"""The probability that one text follows another: next-sentence and sentence-order heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import Steps
from bertsmith.infer.texts import listed_strings
from bertsmith.tasks.classifying import softmax
from bertsmith.tasks.read import open_data
from bertsmith.tasks.use import Askable, Call, RequestBody, Several, Texts, Use, listed

HEADS = ("next_sentence", "sentence_order")
FOLLOWS = 0  # the output that stands for "follows", or "in order"


@EncoderTask
def follows(bert: LoadedModel, firsts: Sequence[str], seconds: Sequence[str]) -> Steps[list[float]]:
    """The probability that each second text follows the first, the mean over their windows."""
    TASK.demand(bert)
    head = next(name for name in HEADS if name in bert.model.heads)
    windows = bert.windows(firsts, seconds)
    probabilities: list[list[float]] = [[] for _ in firsts]
    outputs = yield bert.head_pass(head, windows, softmax)
    for window, output in zip(windows, outputs, strict=True):
        probabilities[window.number].append(float(output[FOLLOWS]))
    return [sum(row) / len(row) for row in probabilities]


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """The pairs of texts in a file; labels that it may have are not read."""
    pairs = []
    for portion in open_data(file, "classification").portions():
        for example in portion.examples:
            if example is None or example.pair is None:
                why = "there must be two texts in each row; name them text and pair"
                raise BertsmithError(f"{file}: {why}")
            pairs.append((example.text, example.pair))
    return pairs


class FollowsRequest(RequestBody):
    """Pairs of texts for next-sentence prediction."""

    first: Texts
    second: Texts


class FollowsMethods(Askable):
    """`follows`."""

    @overload
    def follows(self, first: str, second: str) -> float: ...
    @overload
    def follows(self, first: Several, second: Several) -> list[float]: ...
    def follows(self, first: Any, second: Any) -> Any:
        """Return the probability that the second text follows the first, for one pair or several.

        The model needs a next-sentence head (BERT) or a sentence-order head (ALBERT).
        """
        single = isinstance(first, str) and isinstance(second, str)
        request = FollowsRequest.model_construct(
            first=[first] if single else listed_strings(first, "first"),
            second=[second] if single else listed_strings(second, "second"),
        )
        probabilities = self.ask(TASK, request)
        return probabilities[0] if single else probabilities


class Follows(Use):
    """The probability that the second text follows the first."""

    verb, order, ability = "follows", 65, "tell what follows"
    title, question = "Follows", "The probability that the second text follows the first."
    heads = HEADS
    Request, Answer, Methods = FollowsRequest, list[float], FollowsMethods
    lists = ("first", "second")

    def demand(self, bert: LoadedModel) -> None:
        """Such heads are part of pre-training."""
        if not self.can(bert):
            has = ", ".join(bert.checkpoint.entries) or "none"
            raise BertsmithError(
                "this model has no next-sentence or sentence-order head (it has: "
                f"{has}); models that were pre-trained with pairs of texts have one"
            )

    def call(self, bert: LoadedModel, request: FollowsRequest) -> Call:
        """Pairs at once."""
        first, second = listed(request.first), listed(request.second)
        return Call(follows, (first, second), first, second)


TASK = Follows()
