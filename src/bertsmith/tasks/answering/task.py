"""Answering: the span of a passage that answers a question, or no answer."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.explain import Explanation
from bertsmith.infer.loaded import EncoderTask, LoadedModel, positive
from bertsmith.infer.run import Steps
from bertsmith.infer.spans import trimmed
from bertsmith.infer.windows import Window
from bertsmith.metrics.answers import answer_overlap, best_threshold, question_scores
from bertsmith.numbers import parse_number
from bertsmith.objectives.distilled import soft_cross_entropy
from bertsmith.pages.results import marked_text, score_table
from bertsmith.tasks.answering.reading import READING, QuestionExample, Span
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.task import Display, DisplayText, Mark, Prediction, Rows, Scorer, Task, Values
from bertsmith.tasks.training import ABSENT, Sample, Targets, Training, TrainingItem, class_loss
from bertsmith.tasks.use import Askable, Call, RequestBody, TaskResult, form

THRESHOLD = "no_answer_threshold"  # in config.json: the probability above which there is no answer
NO_ANSWER = (0, 0)  # the first token stands for "no answer"


@dataclass(frozen=True)
class Answer(TaskResult):
    """An answer, passage[start:end]; the empty answer means that the passage has none."""

    text: str
    start: int
    end: int
    score: float  # probability among all spans of the passage


class Answers(list[Answer]):
    """The answers to a question, best first; notebooks highlight the best one in the passage."""

    def __init__(self, answers: Iterable[Answer], passage: str) -> None:
        super().__init__(answers)
        self.passage = passage

    def _repr_html_(self) -> str:
        if not self or not self[0].text:
            return score_table("no answer", [], [])
        best = self[0]
        return marked_text(self.passage, [(best.start, best.end, f"{best.score:.1%}")])


@dataclass(frozen=True)
class RankedAnswers:
    """The spans that the windows of a passage predict, best first, and the score of no answer."""

    passage: str
    ranked: list[tuple[int, int, float]]  # start, end, score
    nothing: float  # the score of "no answer"
    total: float  # the logarithm of the sum over all spans

    @property
    def no_answer(self) -> float:
        """The probability of "no answer" against the best answer."""
        margin = self.ranked[0][2] - self.nothing if self.ranked else -math.inf
        return 1 / (1 + math.exp(min(700.0, margin)))

    def answers(self, top: int, empty: bool) -> list[Answer]:
        """Return the best answers; with `empty`, "no answer" is one of the candidates."""
        total, ranked = self.total, self.ranked
        if empty:
            smaller, larger = sorted((total, self.nothing))
            total = larger + math.log1p(math.exp(smaller - larger))
            ranked = sorted([*ranked, (0, 0, self.nothing)], key=lambda one: -one[2])
        best = [(start, end, math.exp(value - total)) for start, end, value in ranked[:top]]
        return [Answer(self.passage[start:end], start, end, score) for start, end, score in best]


@EncoderTask
def answer(
    bert: LoadedModel, question: str, passage: str, top: int, longest: int, empty: bool | None
) -> Steps[list[Answer]]:
    """The `top` best parts of at most `longest` tokens, from all windows of the passage.

    With `empty` "no answer" competes with them; None: as the threshold stored in the model says.
    """
    ranked = (yield from find_answers.steps(bert, [question], [passage], top, longest))[0]
    threshold = stored_threshold(bert)
    if empty is None and threshold is not None and ranked.no_answer > threshold:
        return [Answer("", 0, 0, ranked.no_answer), *ranked.answers(top, False)][:top]
    return ranked.answers(top, bool(empty))


@EncoderTask
def find_answers(
    bert: LoadedModel,
    questions: Sequence[str],
    passages: Sequence[str],
    top: int = 1,
    longest: int = 30,
) -> Steps[list[RankedAnswers]]:
    """Many questions at once, each about its own passage."""
    texts = [*questions, *passages]
    # The tokenizer reports inputs that are not strings.
    unique = list(dict.fromkeys(texts)) if all(isinstance(one, str) for one in texts) else texts
    encoded = dict(zip(unique, bert.encode(unique), strict=True))
    windower = bert.windower()
    grouped = [
        windower.pair(number, encoded[question].ids, encoded[passage].ids)
        for number, (question, passage) in enumerate(zip(questions, passages, strict=True))
    ]
    windows = [window for group in grouped for window in group]
    scores = iter((yield bert.head_pass("answer", windows, tokens=True)))
    results = []
    for passage, group in zip(passages, grouped, strict=True):
        encoding = encoded[passage]
        spans, nothing = _spans(group, scores, len(encoding), longest)
        results.append(_ranked(passage, encoding.offsets, spans, nothing, top))
    return results


def _ranked(
    passage: str, offsets: Sequence[tuple[int, int]], spans: torch.Tensor, nothing: float, top: int
) -> RankedAnswers:
    best: dict[tuple[int, int], float] = {}
    width = spans.shape[1]
    # Spans that differ in spaces only are one answer, so more than `top` are read.
    values, places = spans.flatten().topk(min(20 + 4 * top, spans.numel()))
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        first, more = divmod(place, width)
        if value > -math.inf:
            start, end = trimmed(passage, offsets[first][0], offsets[first + more][1])
            if start < end:
                best.setdefault((start, end), value)  # the best comes first
    total = float(spans.flatten().double().logsumexp(0)) if spans.numel() else -math.inf
    ranked = sorted(((*place, value) for place, value in best.items()), key=lambda one: -one[2])
    return RankedAnswers(passage, ranked[:top], nothing, total)


def _spans(
    windows: Sequence[Window], outputs: Iterator[torch.Tensor], length: int, longest: int
) -> tuple[torch.Tensor, float]:
    """Return the score of every span of the passage (first token, length), and of no answer."""
    longest = max(1, min(longest, length))
    spans = torch.full((length, longest), -math.inf)
    nothing = math.inf
    for window in windows:
        scores = next(outputs)
        nothing = min(nothing, float(scores[0].sum()))  # every window must say "no answer"
        if window.tokens:
            begins, stops = scores[window.first : window.first + len(window.tokens)].unbind(1)
            ends = pad(stops, (0, longest - 1), value=-math.inf).unfold(0, longest, 1)
            part = spans[window.tokens.start : window.tokens.stop]
            part.copy_(part.maximum(begins[:, None] + ends))
    return spans, nothing


class AnsweringTraining(Training):
    """A window that holds the answer learns its first and last token; others learn "none"."""

    head = "answer"
    each_token = True

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """A sample for each window, so that a batch size counts windows, as is usual."""
        windower, samples = bert.windower(), list[Sample]()
        unique = list(dict.fromkeys(text for example in examples for text in example.texts))
        encoded = dict(zip(unique, bert.encode(unique), strict=True))
        for number, example in enumerate(examples):
            question, passage = encoded[example.question], encoded[example.passage]
            span = token_span(example, passage.offsets)
            if span is None and not example.impossible:
                bert.ledger.note("answers that are not in the passage, not trained on")
                continue
            windows = windower.pair(number, question.ids, passage.ids)
            samples += [(TrainingItem((window,), _inside(window, span)),) for window in windows]
        return samples

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The mean of two cross entropies over all tokens of a window: of starts and of ends."""
        grid = _padded(outputs, batch, float("-inf"))
        sides = zip(grid.unbind(2), targets["labels"].unbind(1), strict=True)
        starts, ends = (class_loss(*side, focal=self.options.focal) for side in sides)
        return ((starts + ends) / 2 * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        student, teacher = (_padded(x, batch, ABSENT) for x in (outputs, targets["teacher"]))
        sides = zip(student.unbind(2), teacher.unbind(2), strict=True)
        losses = [soft_cross_entropy(*side, temperature) for side in sides]
        return (torch.stack(losses).mean(0) * targets["weights"]).sum()


def _padded(outputs: Tensor, batch: Batch, absent: float) -> Tensor:
    """The outputs of all tokens (T, 2) as rows of one length (N, longest, 2)."""
    layout = batch.layout
    empty = outputs.new_full((len(layout.lengths), layout.longest, 2), absent)
    return empty.index_put((layout.owner, layout.positions), outputs)


def token_span(
    example: QuestionExample, offsets: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """The first and last token of the first gold answer that stands in the passage."""
    answers = (answer for answer in example.answers or () if answer.start >= 0)
    spans = (tokens_of(offsets, answer.start, answer.end) for answer in answers)
    return next((span for span in spans if span is not None), None)


def tokens_of(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """The first and last token that share a character with text[start:end]."""
    pairs = enumerate(offsets)
    tokens = [n for n, (left, right) in pairs if right > max(left, start) and left < end]
    return (tokens[0], tokens[-1]) if tokens else None


def _inside(window: Window, span: tuple[int, int] | None) -> tuple[int, int]:
    """The rows of an answer in a window if all of it is there, else those of no answer."""
    if span is None or not (span[0] in window.tokens and span[1] in window.tokens):
        return NO_ANSWER
    return window.row(span[0]), window.row(span[1])


PASSAGE = (
    "The Analytical Engine was designed by Charles Babbage. Ada Lovelace wrote the first program "
    "for it in 1843."
)


class AnswerRequest(RequestBody):
    """A question and a passage of any length."""

    question: Annotated[str, form("Question", "Who designed the engine?", rows=0)]
    passage: Annotated[str, form("Passage", PASSAGE, rows=6)]
    top: Annotated[int, Field(ge=1, le=100), form("", 5)] = 1
    longest: Annotated[int, Field(ge=1, le=128)] = 30
    empty: bool | None = None


class AnswerMethods(Askable):
    """`answer`."""

    def answer(
        self,
        question: str,
        passage: str,
        *,
        top: int = 1,
        longest: int = 30,
        empty: bool | None = None,
    ) -> Answers:
        """Find the `top` answers to a question in a passage of any length.

        With `empty=True`, "no answer" is one of the candidates. By default it is one if the model
        was fine-tuned on unanswerable questions, with the threshold that was stored then.
        """
        request = AnswerRequest.model_construct(
            question=question,
            passage=passage,
            top=positive(top, "top"),
            longest=positive(longest, "longest"),
            empty=empty,
        )
        return Answers(self.ask(TASK, request), passage)


class AnsweringTask(Task):
    """An answer that stands in a passage."""

    reading, head = READING, "answer"
    hub_tag, opens_as = "question-answering", "QuestionAnswering"
    usage = 'answer("A question?", "A passage.")'
    defaults: ClassVar = {"batch_size": 16, "epochs": 2}
    options = frozenset({"focal"})
    kinds = (QuestionExample,)
    learner, measures = AnsweringTraining, ("f1", "exact")
    fits_static = False
    row_columns, needs_pair = ("question", "context"), True

    verb, ability, heads = "answer", "answer questions", ("answer",)
    title, question = "Answer", "The part of a passage that answers a question."
    Request, Answer, Methods = AnswerRequest, list[Answer], AnswerMethods
    ranked = True

    def call(self, bert: LoadedModel, request: AnswerRequest) -> Call:
        question, passage = request.question, request.passage
        args = (question, passage, request.top, request.longest, request.empty)
        return Call(answer, args, [question], [passage])

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        best = prediction.output["answers"][:1] if prediction.value else []
        return replace(example, answers=tuple(Span(one["text"], one["start"]) for one in best))

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        return _predictions(bert, examples, top, stored_threshold(bert))

    def tuned(
        self, bert: LoadedModel, dataset: Dataset[Any], train: Dataset[Any]
    ) -> tuple[list[Prediction], dict[str, Any]]:
        """Answers under the threshold with the best F1, if training had unanswerable questions."""
        if not any(one.impossible for one in train.examples):
            return super().tuned(bert, dataset, train)
        always = _predictions(bert, dataset.examples, 1, 1.0)
        gold = _gold(dataset.examples)  # in the order of the examples
        chances = {name: one.output["no_answer"] for name, one in zip(gold, always, strict=True)}
        values = {name: one.value for name, one in zip(gold, always, strict=True)}
        limit = best_threshold(gold, values, chances).value
        predictions = [
            replace(one, value="", confidence=chance, output=one.output | {"answer": ""})
            if (chance := one.output["no_answer"]) > limit
            else one
            for one in always
        ]
        return predictions, {THRESHOLD: limit}

    def explain(self, bert: LoadedModel, example: Any, prediction: Prediction) -> Rows:
        """Contributions to an answer, or to there being none, in the window that decided on it."""
        explanation = Explanation(bert, [example.question, example.passage])
        windows = explanation.windows
        span = None
        if prediction.value:
            best = prediction.output["answers"][0]
            span = tokens_of(explanation.encodings[1].offsets, best["start"], best["end"])
        spans = {number: _inside(window, span) for number, window in enumerate(windows)}
        if span is not None:
            spans = {number: rows for number, rows in spans.items() if rows != NO_ANSWER}
        scores = bert.run(windows, bert.head_pass("answer", windows, tokens=True).compute)
        # An answer has the score of its best window; "no answer" has its lowest score.
        pick = max if prediction.value else min
        number = pick(spans, key=lambda n: float(scores[n][spans[n], (0, 1)].sum()))
        first, last = spans[number]
        explanation.add(windows[number], "answer", [(first, 0), (last, 1)])
        return explanation.words([windows[number]])

    def label_of(self, example: Any) -> Any:
        return [span.text for span in example.answers or ()]

    def correctness(self, example: Any, value: Any) -> float:
        return answer_overlap(self.label_of(example), value)

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        return question_scores(list(_gold(dataset.examples).values()), values)

    def display(self, example: Any, prediction: Prediction) -> Display:
        marks = []
        best = next(iter(prediction.output.get("answers", ())), None)
        places = {(span.start, span.end) for span in example.answers or () if span.start >= 0}
        if best is not None and prediction.value:
            place = best["start"], best["end"]
            marks.append(Mark(*place, "correct" if place in places else "wrong", "predicted"))
            places.discard(place)
        marks += [Mark(start, end, "missed", "label") for start, end in places]
        marks.sort(key=lambda mark: (mark.start, mark.end))
        question, passage = DisplayText(example.question, title=True), example.passage
        label, value = self.spoken(self.label_of(example)), self.spoken([prediction.value])
        passages = (question, DisplayText(passage, tuple(marks)))
        return Display(passages, label, value, prediction.confidence)

    def spoken(self, value: Any) -> str:
        return " | ".join(dict.fromkeys(filter(None, value))) or "no answer"


def stored_threshold(bert: LoadedModel) -> float | None:
    """The probability of "no answer" above which a model gives none, if it was tuned."""
    value = bert.checkpoint.settings.get(THRESHOLD)
    if value is None:
        return None
    number = parse_number(value)
    if number is None:
        raise BertsmithError(f"config.json: {THRESHOLD} is {value!r}, not a number")
    return number


def _predictions(
    bert: LoadedModel, examples: Sequence[Any], top: int, threshold: float | None
) -> list[Prediction]:
    questions, passages = ([getattr(e, n) for e in examples] for n in ("question", "passage"))
    predictions = []
    for ranked in find_answers(bert, questions, passages, top):
        answers = ranked.answers(top, empty=False)
        value = answers[0].text if answers else ""
        confidence = answers[0].score if answers else 0.0
        output: dict[str, Any] = {"answer": value, "answers": [asdict(one) for one in answers]}
        if threshold is not None:
            output["no_answer"] = ranked.no_answer
            if ranked.no_answer > threshold:
                value = output["answer"] = ""
            if not value:
                confidence = ranked.no_answer
        predictions.append(Prediction(value, confidence, output))
    return predictions


def _gold(examples: Sequence[Any]) -> dict[str, list[str]]:
    gold = {one.id: [span.text for span in one.answers or ()] for one in examples}
    if len(gold) != len(examples):
        raise BertsmithError("two questions have the same id")
    return gold


TASK = AnsweringTask()
