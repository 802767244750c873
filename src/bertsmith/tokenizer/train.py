"""Train a vocabulary on text files.

Words are counted first, in a stream; the `tokenizers` trainers then see each word as often as
it was counted, in one fixed order. That makes the result a function of the text alone: left to
itself, the library numbers the inner letters of WordPiece in the order of a random hash.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from encodings.utf_8_sig import IncrementalDecoder
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers
from tokenizers.models import Model
from tokenizers.trainers import Trainer

from bertsmith.errors import BertsmithError
from bertsmith.files import not_utf8, open_bytes, reading, suffix_of
from bertsmith.numbers import whole_number
from bertsmith.tokenizer.families import (
    KINDS,
    Kind,
    Pipeline,
    PipelineSettings,
    TokenizerFamily,
    assemble,
    named,
    of_kind,
    special_tokens,
)
from bertsmith.tokenizer.guard import guarded
from bertsmith.tokenizer.read import Parts
from bertsmith.tokenizer.tokenizer import Tokenizer

CHUNK = re.compile(r"\s*\S+")  # no pipeline makes one word of what this parts
MANY_CHUNKS = 2_000_000  # different ones, before they are made into words
LARGEST_SIZE = 5_000_000  # tokens; the trainers reserve memory for all of them
REPEATS = 200  # of a word in one line that a trainer reads
LONGEST_LINE = 1 << 20  # bytes; a longer line is read in pieces


@dataclass(frozen=True)
class VocabularyPlan:
    """The settings of a vocabulary to learn."""

    family: TokenizerFamily
    size: int  # with special tokens
    min_frequency: int
    progress: bool

    @property
    def opening(self) -> list[str]:
        """The special tokens at the beginning of the vocabulary."""
        return [self.family.tokens[role] for role in self.family.first]

    @property
    def learned(self) -> int:
        """The size without the special tokens at its end, which are appended later."""
        return self.size - len(self.family.last)

    @property
    def trainer_settings(self) -> dict[str, Any]:
        """The arguments of every trainer."""
        settings = {"vocab_size": self.learned, "show_progress": self.progress}
        return settings | {"special_tokens": self.opening}


def train(
    files: Iterable[str | Path],
    kind: Kind,
    *,
    size: int,
    family: str | None = None,
    lowercase: bool | None = None,
    min_frequency: int = 2,
    alphabet: int = 1000,
    max_length: int | None = None,
    progress: bool = False,
    lines: Iterable[str] | None = None,
) -> Tokenizer:
    """Train a vocabulary of `size` tokens on text files (plain, .gz, .xz or .zst), line by line.

    Pass `lines` to read these instead of files; `bertsmith.corpus.text_lines` yields the lines of
    jsonl and parquet files.

    Special tokens and their positions are those of the `family`; by default BERT's for wordpiece,
    RoBERTa's for bpe, ALBERT's for unigram. `lowercase` defaults to what the family does. The
    `alphabet` most frequent characters are kept (bpe works on bytes and knows all). A
    `min_frequency` of 2 leaves out pairs (for unigram: words) that occur once. The vocabulary is
    smaller than `size` if there is too little text.

    The same text always results in the same vocabulary. The library trains wordpiece vocabularies
    by merging the most frequent pairs, like bpe, and not by likelihood as Google's trainer does.
    """
    if kind not in KINDS:
        raise BertsmithError(f"unknown kind {kind!r} of vocabulary; known: {', '.join(KINDS)}")
    whole_number(size, "the size of the vocabulary", 1, LARGEST_SIZE)
    whole_number(min_frequency, "min_frequency", 1)
    whole_number(alphabet, "alphabet", 1)
    chosen = _family(kind, named(family) if family else of_kind(kind))
    lowercase = chosen.lowercase if lowercase is None else lowercase
    settings = PipelineSettings(lowercase=lowercase, keep_accents=not lowercase)
    plan = VocabularyPlan(chosen, size, min_frequency, progress)
    text = read_lines(files) if lines is None else lines
    counted = count_words(text, chosen.pipeline(settings))
    words = _learnable(counted, None if kind == "bpe" else alphabet, chosen)
    if not words:
        raise BertsmithError("no text to train a vocabulary on")
    with guarded(f"no {kind} vocabulary of {size} tokens can be learned"):
        backend = assemble(LEARNERS[kind](words, plan), chosen, settings, special_tokens(chosen))
    return Tokenizer(Parts(backend, dict(chosen.tokens), chosen.name, chosen.segments, max_length))


def _family(kind: Kind, family: TokenizerFamily) -> TokenizerFamily:
    """Return a family, where it is usually of another kind with the layout of that kind."""
    if family.kind == kind:
        return family
    kept = ("name", "tokens", "finish", "segments", "lowercase")
    return replace(of_kind(kind), **{name: getattr(family, name) for name in kept})


def read_lines(files: Iterable[str | Path]) -> Iterator[str]:
    """Yield the lines of UTF-8 files, plain or compressed, without their ends."""
    for path in map(Path, files):
        if suffix_of(path) in (".jsonl", ".ndjson", ".parquet"):
            advice = "read it with bertsmith.corpus.text_lines"
            raise BertsmithError(f"{path}: not plain text; {advice}")
        decode, number = IncrementalDecoder().decode, 1
        try:
            with reading(path), open_bytes(path) as (stream, _):
                while raw := stream.readline(LONGEST_LINE):
                    yield decode(raw).rstrip("\r\n")
                    number += raw.endswith(b"\n")
                decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error.object[error.start]) from None


def count_words(lines: Iterable[str], pipeline: Pipeline) -> Counter[str]:
    """Count the words that a pipeline makes of lines."""
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()  # most repeat, so that few go through the slower pipeline
    for line in lines:
        chunks.update(CHUNK.findall(line))
        if len(chunks) > MANY_CHUNKS:
            _split(chunks, pipeline, words)
            chunks.clear()
    _split(chunks, pipeline, words)
    return words


def _split(chunks: Mapping[str, int], pipeline: Pipeline, words: Counter[str]) -> None:
    normalize = pipeline.normalizer.normalize_str if pipeline.normalizer else str
    for chunk, count in chunks.items():
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(normalize(chunk)):
            words[word] += count


def _learnable(
    words: Counter[str], alphabet: int | None, family: TokenizerFamily
) -> dict[str, int]:
    """Return the words, sorted, without those that hold rare characters or special tokens."""
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    frequent = sorted(letters, key=lambda letter: (-letters[letter], letter))
    kept = set(frequent[:alphabet])
    special = re.compile("|".join(map(re.escape, family.tokens.values())))
    plain = (word for word in sorted(words) if kept.issuperset(word) and not special.search(word))
    return {word: words[word] for word in plain}


def _replay(model: Model, trainer: Trainer, words: Mapping[str, int]) -> Backend:
    def lines() -> Iterator[str]:
        for word, count in words.items():
            line = "\n".join([word] * REPEATS)
            for _ in range(count // REPEATS):
                yield line
            yield "\n".join([word] * (count % REPEATS))

    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    backend.train_from_iterator(lines(), trainer)
    return backend


def _demand(plan: VocabularyPlan, letters: int, what: str) -> None:
    special = len(plan.family.first) + len(plan.family.last)
    if plan.size < special + letters:
        needed = f"{special} special tokens and {letters} {what} need {special + letters}"
        raise BertsmithError(f"a vocabulary of {plan.size} tokens is too small: {needed}")


def _learn_wordpiece(words: Mapping[str, int], plan: VocabularyPlan) -> Model:
    letters = sorted({letter for word in words for letter in word})
    inner = sorted({f"##{letter}" for word in words for letter in word[1:]})
    _demand(plan, len(letters) + len(inner), "letters at the start of and within words")
    settings = plan.trainer_settings | {"min_frequency": plan.min_frequency}
    # Named beforehand, inner letters have fixed ids, by which the trainer breaks ties.
    settings["special_tokens"] = [*plan.opening, *inner]
    trainer = trainers.WordPieceTrainer(**settings)
    unknown = plan.family.tokens["unk"]
    vocabulary = _replay(models.WordPiece(unk_token=unknown), trainer, words).get_vocab()
    merged = sorted(vocabulary, key=vocabulary.__getitem__)
    ordered = dict.fromkeys([*plan.opening, *letters, *inner, *merged])
    return models.WordPiece({t: i for i, t in enumerate(ordered)}, unk_token=unknown)


def _learn_bpe(words: Mapping[str, int], plan: VocabularyPlan) -> Model:
    letters = pre_tokenizers.ByteLevel.alphabet()
    _demand(plan, len(letters), "bytes")
    settings = plan.trainer_settings | {"min_frequency": plan.min_frequency}
    trainer = trainers.BpeTrainer(initial_alphabet=letters, **settings)
    empty = models.BPE(continuing_subword_prefix="", end_of_word_suffix="")
    learned = json.loads(_replay(empty, trainer, words).to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    return models.BPE(learned["vocab"], merges, continuing_subword_prefix="", end_of_word_suffix="")


def _learn_unigram(words: Mapping[str, int], plan: VocabularyPlan) -> Model:
    words = {word: count for word, count in words.items() if count >= plan.min_frequency}
    letters = {letter for word in words for letter in word}
    _demand(plan, len(letters), "letters")
    unknown = plan.family.tokens["unk"]
    trainer = trainers.UnigramTrainer(unk_token=unknown, **plan.trainer_settings)
    learned = json.loads(_replay(models.Unigram(), trainer, words).to_str())["model"]["vocab"]
    settled = _settled([(text, score) for text, score in learned if text not in plan.opening])
    # Where letters alone fill the vocabulary, the trainer adds longer pieces beyond its size.
    longer = [piece for piece in settled if len(piece[0]) > 1]
    too_many = set(longer[plan.learned - len(plan.opening) - (len(settled) - len(longer)) :])
    pieces = [(token, 0.0) for token in plan.opening]
    pieces += [piece for piece in settled if piece not in too_many]
    return models.Unigram(pieces, unk_id=plan.opening.index(unknown))


def _settled(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return pieces in order of score, without what the trainer leaves to chance.

    Sums in a random order differ in their last digits; and letters that were pruned and had to
    come back get scores 0.0001 apart, also in a random order: here they get the lowest of them.
    """
    lowest = min((score for _, score in pieces), default=0.0)
    settled = []
    for text, score in pieces:
        steps = (score - lowest) * 10_000
        came_back = len(text) == 1 and steps < len(pieces) and abs(steps - round(steps)) < 1e-5
        settled.append((text, round(lowest if came_back else score, 5)))
    return sorted(settled, key=lambda piece: (-piece[1], piece[0]))


LEARNERS: dict[Kind, Callable[[Mapping[str, int], VocabularyPlan], Model]] = {
    "wordpiece": _learn_wordpiece,
    "bpe": _learn_bpe,
    "unigram": _learn_unigram,
}
