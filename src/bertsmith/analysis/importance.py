"""Word importance: the change of the prediction when a word is masked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch.nn.functional import logsigmoid

from bertsmith.analysis.maps import encoded
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import Compute
from bertsmith.infer.spans import words
from bertsmith.infer.states import tokens_inside
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model
from bertsmith.tasks.answering.task import Answer, find_answers
from bertsmith.tasks.classifying import Classification, classify
from bertsmith.tasks.registry import USES, task_of
from bertsmith.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True)
class WordImportance:
    """A word, text[start:end], and the decrease of the score when it is masked."""

    text: str
    start: int
    end: int
    source: int  # 0 the first text, 1 the second
    importance: float  # of log probability; negative where the word makes the answer less likely
    tokens: tuple[int, ...]  # its places in the input


@dataclass(frozen=True)
class Explained:
    """The prediction for a text, its score, and the importance of each word."""

    kind: str  # label, answer or number
    said: str
    score: float  # a probability; of a number its value
    words: list[WordImportance]


def explained(
    bert: LoadedModel, text: str, pair: str | None = None, label: str | None = None
) -> Explained:
    """Explain the prediction for a text: a label, a number, or an answer in `pair`."""
    if "classify" in bert.model.heads:
        scores = classified(bert, text, pair).scores
        chosen = max(scores, key=scores.__getitem__) if label is None else label
        words = for_label(bert, text, pair, chosen)
        kind = "number" if task_of(bert).numeric else "label"
        return Explained(kind, chosen, scores[chosen], words)
    if "answer" not in bert.model.heads:
        has = ", ".join(bert.checkpoint.entries) or "none"
        raise BertsmithError(
            f"word importance is for models that classify or answer questions (heads: {has})"
        )
    if pair is None or label is not None:
        raise BertsmithError("this model answers questions: give a question and a passage")
    best = _best(bert, text, pair)
    return Explained("answer", best.text, best.score, for_answer(bert, text, pair))


def for_label(
    bert: LoadedModel, text: str, pair: str | None = None, label: str | None = None
) -> list[WordImportance]:
    """Return the importance of each word for a label (by default the predicted one)."""
    USES["classify"].demand(bert)
    names, task = bert.checkpoint.labels, task_of(bert)
    if label is not None and label not in names:
        raise BertsmithError(f"the model has no label {label!r}; it has: {', '.join(names)}")
    column = names.index(classified(bert, text, pair).label if label is None else label)

    def score(model: Model, hidden: Hidden, batch: Batch, _: Sequence[Window]) -> list[float]:
        logits = model.heads["classify"](hidden, batch).float()
        if task.exclusive:
            logits = logits.log_softmax(-1)
        elif task.several:
            logits = logsigmoid(logits)
        scores: list[float] = logits[:, column].tolist()
        return scores

    return _masked_one_by_one(bert, (text, pair), score)


def classified(bert: LoadedModel, text: str, pair: str | None) -> Classification:
    """Return the label of a text, or of a pair."""
    USES["classify"].demand(bert)
    return classify(bert, [text], None if pair is None else [pair])[0]


def for_answer(bert: LoadedModel, question: str, passage: str) -> list[WordImportance]:
    """Return the importance of each word of question and passage for the predicted answer."""
    best = _best(bert, question, passage)
    encoding = bert.tokenizer.encode(question, passage)
    inside = [
        row
        for row, (start, end) in enumerate(encoding.offsets)
        if encoding.sources[row] == 1 and start < best.end and best.start < end
    ]

    def score(model: Model, hidden: Hidden, batch: Batch, _: Sequence[Window]) -> list[float]:
        logits = model.heads["answer"](hidden, batch).float()
        logs = [rows.log_softmax(0) for rows in batch.layout.split(logits)]
        return [float(rows[inside[0], 0] + rows[inside[-1], 1]) for rows in logs]

    return _masked_one_by_one(bert, (question, passage), score)


def _best(bert: LoadedModel, question: str, passage: str) -> Answer:
    USES["answer"].demand(bert)
    answers = find_answers(bert, [question], [passage])[0].answers(1, empty=False)
    if not answers:
        raise BertsmithError("the model finds no answer in this passage")
    return answers[0]


def _masked_one_by_one(
    bert: LoadedModel, texts: tuple[str, str | None], score: Compute[float]
) -> list[WordImportance]:
    """The score with every word in place, less the score with each of them masked."""
    tokenizer = bert.tokenizer
    mask = tokenizer.mask_id if tokenizer.mask_id is not None else tokenizer.unk_id
    if mask is None:
        raise BertsmithError("this tokenizer has neither a mask nor an unknown token")
    encoding = encoded(bert, *texts)
    words = _words(tokenizer, encoding, texts)
    windows = [Window(0, encoding.ids, encoding.segments, range(len(encoding)), 0)]
    for word in words:
        ids = [mask if row in word.tokens else id_ for row, id_ in enumerate(encoding.ids)]
        windows.append(replace(windows[0], ids=ids))
    unmasked, *masked = bert.run(windows, score)
    pairs = zip(words, masked, strict=True)
    return [replace(word, importance=unmasked - score_without) for word, score_without in pairs]


def _words(
    tokenizer: Tokenizer, encoding: Encoding, texts: tuple[str, str | None]
) -> list[WordImportance]:
    unmeasured = []
    for source, text in enumerate(text for text in texts if text is not None):
        rows = [row for row, owner in enumerate(encoding.sources) if owner == source]
        alone = tokenizer.encode(text, special=False)
        spans = [(start, end) for _, start, end in words(text, alone)]
        for (start, end), inside in zip(spans, tokens_inside(alone, spans), strict=True):
            tokens = tuple(rows[token] for token in inside)
            unmeasured.append(WordImportance(text[start:end], start, end, source, 0.0, tokens))
    return unmeasured
