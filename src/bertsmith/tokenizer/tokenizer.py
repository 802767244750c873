"""Tokenizer: text to ids with offsets, segments and special tokens; ids to text."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

from tokenizers import Encoding as BackendEncoding
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer, Lowercase
from tokenizers.normalizers import Sequence as Sequenced

from bertsmith.errors import BertsmithError
from bertsmith.files import write_json, write_text
from bertsmith.numbers import counted
from bertsmith.tokenizer.families import STATIC, Kind, Marks, PipelineSettings, Role
from bertsmith.tokenizer.guard import guarded
from bertsmith.tokenizer.read import Parts, read

# How special tokens spelled in a text, such as "[MASK]", are read: as text; only the mask as a
# token; or all as tokens, as transformers does without split_special_tokens.
Spelled = Literal["text", "mask", "tokens"]
HIDDEN = " \0"  # the end of a piece that no text holds, since ▁ stands for its spaces
SPELLED = "special tokens spelled in a text, read as text"  # the ledger's words


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text, or a pair of texts, as T tokens; neither padded nor truncated."""

    ids: list[int]
    segments: list[int]  # what the family feeds its segment table
    offsets: list[tuple[int, int]]  # characters of the token's text; (0, 0) for special tokens
    sources: list[int | None]  # 0 first text, 1 second text, None special token
    words: list[int | None]  # which word of its text a token is part of, from 0

    def __len__(self) -> int:
        return len(self.ids)


class TextToken(NamedTuple):
    """A token of a text, with its characters."""

    token: str
    id: int
    start: int
    end: int
    text: str


class TokenSplit(NamedTuple):
    """The tokens of a text, and how many of them are the unknown token."""

    pieces: list[TextToken]
    unknown: int
    unknown_id: int | None = None

    def _repr_html_(self) -> str:
        from bertsmith.pages.results import token_row

        return token_row((p.token, p.id, p.id == self.unknown_id) for p in self.pieces)


class Slot(NamedTuple):
    """A place in the template around texts: a special token, or a whole text (0 or 1)."""

    source: int | None
    id: int
    segment: int


class Tokenizer:
    """A tokenizer with the same interface for every family."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.backend = parts, parts.backend
        self.family, self.max_length = parts.family, parts.max_length
        self.pad_token, self.pad_id = self._role("pad")
        self.unk_token, self.unk_id = self._role("unk")
        self.cls_token, self.cls_id = self._role("cls")
        self.sep_token, self.sep_id = self._role("sep")
        self.mask_token, self.mask_id = self._role("mask")
        self._templates: dict[bool, list[Slot]] = {}
        self._backends: dict[Spelled, Backend] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.parts,)

    def _role(self, role: Role) -> tuple[str | None, int | None]:
        token = self.parts.tokens.get(role)
        return token, None if token is None else self.id(token)

    @classmethod
    def load(cls, path: str | Path, *, family: str | None = None) -> Self:
        """Read a tokenizer from a directory or a file in any of the published formats."""
        loaded = cls(read(Path(path), family))
        try:
            loaded.template()
        except BertsmithError as error:
            raise BertsmithError(f"{path}: {error.message}") from error
        return loaded

    def unmarked(self, lowercase: bool = False) -> "Tokenizer":
        """Return a tokenizer that adds no special tokens to texts, for static vectors."""
        backend = Backend.from_str(self.backend.to_str())
        backend.post_processor = STATIC.finish(Marks(("", 0), ("", 0)), PipelineSettings())
        if lowercase and not self.lowercase:
            steps = [Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
            backend.normalizer = Sequenced(steps)
        changes: Any = {"family": STATIC.name, "segments": False, "max_length": None}
        return Tokenizer(self.parts._replace(backend=backend, **changes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the tokenizer differs from its files, one line each."""
        return self.parts.notes

    @property
    def kind(self) -> Kind:
        """The kind of vocabulary: wordpiece, bpe or unigram."""
        return cast(Kind, type(self.backend.model).__name__.lower())

    @cached_property
    def size(self) -> int:
        """The rows that an embedding table needs: the highest id and one more."""
        return max(self.vocabulary().values()) + 1

    @cached_property
    def lowercase(self) -> bool:
        """Whether it makes upper case into lower case."""
        normalizer = self.backend.normalizer
        return normalizer is not None and "A" not in normalizer.normalize_str("A")

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens, also of those that have no role."""
        added = self.backend.get_added_tokens_decoder()
        roles = (self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id)
        special = {number for number, token in added.items() if token.special}
        return frozenset(special.union(number for number in roles if number is not None))

    def vocabulary(self) -> dict[str, int]:
        """Return the id of every token, including added tokens."""
        return self.backend.get_vocab(with_added_tokens=True)

    def id(self, token: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""
        with guarded(f"{token!r} cannot be a token"):
            return self.backend.token_to_id(token)

    def token(self, id: int) -> str:
        """Return the token with an id."""
        token = self.backend.id_to_token(id) if 0 <= id < self.size else None
        if token is None:
            raise self._no_token(id)
        return token

    def _no_token(self, id: int) -> BertsmithError:
        return BertsmithError(f"no token has the id {id}; this vocabulary has {self.size:,}")

    def encode(
        self, text: str, pair: str | None = None, *, special: bool = True, spelled: Spelled = "text"
    ) -> Encoding:
        """Encode one text, or a pair of texts."""
        pairs = None if pair is None else [pair]
        return self.encode_many([text], pairs, special=special, spelled=spelled)[0]

    def encode_many(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special: bool = True,
        spelled: Spelled = "text",
    ) -> list[Encoding]:
        """Encode texts, or pairs of texts, on all cores; `special` adds special tokens around."""
        inputs = _inputs(texts, pairs)
        with guarded("a text cannot be encoded"):
            encoded = self.reader(spelled).encode_batch(inputs, add_special_tokens=special)
        return list(map(self._encoding, encoded))

    def encode_ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Encode texts to ids only, which is about twice as fast as full encodings."""
        inputs = _inputs(texts, None)
        with guarded("a text cannot be encoded"):
            encoded = self.reader("text").encode_batch_fast(inputs, add_special_tokens=special)
        return [encoding.ids for encoding in encoded]

    def reader(self, spelled: Spelled) -> Backend:
        """Return the library's tokenizer that reads special tokens spelled in a text this way.

        Special tokens without a role, such as the `[E1]` that somebody added to mark entities, are
        meant to be spelled, and always read as tokens.
        """
        if spelled not in self._backends:
            text = set() if spelled == "tokens" else set(self.parts.tokens.values())
            if spelled == "mask":
                text.discard(self.mask_token or "")
            added = self.backend.get_added_tokens_decoder().values()
            as_needed = all(token.special == (token.content in text) for token in added)
            usable = as_needed and self.kind != "unigram"
            backend = self.backend if usable else _reading_as_text(self.backend, text)
            backend.encode_special_tokens = True  # that is: those marked special are text
            self._backends[spelled] = backend
        return self._backends[spelled]

    @cached_property
    def _spellings(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.parts.tokens.values())) or r"(?!)")

    def spelled(self, texts: Iterable[str]) -> int:
        """Return how many special tokens are spelled in texts, where they are read as text."""
        return sum(len(self._spellings.findall(text)) for text in texts)

    def _encoding(self, encoded: BackendEncoding) -> Encoding:
        segments = encoded.type_ids if self.parts.segments else [0] * len(encoded)
        sources, words = encoded.sequence_ids, encoded.word_ids
        return Encoding(encoded.ids, segments, encoded.offsets, sources, words)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text, without special tokens."""
        return [self.token(number) for number in self.encode_ids([text])[0]]

    def explain(self, text: str) -> TokenSplit:
        """Return each token of a text with its characters."""
        encoding = self.encode(text, special=False)
        pieces = [
            TextToken(self.token(number), number, start, end, text[start:end])
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]
        unknown = sum(number == self.unk_id for number in encoding.ids)
        return TokenSplit(pieces, unknown, self.unk_id)

    def special_count(self, pair: bool = False) -> int:
        """Return the number of special tokens that are added to a text, or to a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    def build(
        self, ids_a: Sequence[int], ids_b: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Add special tokens to encoded ids; return ids and segments."""
        ids: list[int] = []
        segments: list[int] = []
        for source, special_id, segment in self.template(ids_b is not None):
            part = [special_id] if source is None else (ids_b if source else ids_a)
            ids.extend(part or ())
            segments.extend([segment] * len(part or ()))
        return ids, segments

    def template(self, pair: bool = False) -> list[Slot]:
        """Return the order of special tokens and texts in a sequence, as a list of slots."""
        if pair in self._templates:
            return self._templates[pair]
        # What the post-processor adds to a token of another tokenizer: no letter is in all.
        probe = Backend(WordLevel({"x": 0}, unk_token="x"))
        if self.backend.post_processor is not None:
            probe.post_processor = self.backend.post_processor
        with guarded("the tokenizer's template cannot be used"):
            probed = probe.encode("x", "x" if pair else None)
        encoding, texts = self._encoding(probed), probed.special_tokens_mask.count(0)
        slots = list(map(Slot, encoding.sources, encoding.ids, encoding.segments))
        sources = sorted(slot.source for slot in slots if slot.source is not None)
        if sources != [0, 1][: 1 + pair] or texts != len(sources):
            raise BertsmithError("the tokenizer's template does not hold each text exactly once")
        if any(slot.segment > 1 for slot in slots):
            raise BertsmithError("the tokenizer's template numbers segments beyond 1")
        self._templates[pair] = slots
        return slots

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ids; special tokens are left out by default."""
        numbers = [index(number) for number in ids]
        for number in numbers:
            if not 0 <= number < self.size:
                raise self._no_token(number)
        with guarded("these ids cannot be decoded"):
            return self.backend.decode(numbers, skip_special_tokens=skip_special)

    def save(
        self, directory: str | Path, segments: bool = True, longest: int | None = None
    ) -> None:
        """Write files from which transformers' AutoTokenizer builds the same tokenizer.

        Pass `segments=False` for a model without segment embeddings. `longest` is the number of
        tokens that the model reads, an upper limit for model_max_length. The stored class is
        PreTrainedTokenizerFast, which uses tokenizer.json as it is; the classes of single families
        in transformers 5 rebuild the pipeline and may differ from the file.
        """
        tokens = {f"{role}_token": token for role, token in self.parts.tokens.items()}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        config: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "do_lower_case": self.lowercase,
            "clean_up_tokenization_spaces": False,
            "model_input_names": inputs if self.parts.segments and segments else inputs[::2],
            **tokens,
        }
        if lengths := [length for length in (self.max_length, longest) if length is not None]:
            config["model_max_length"] = min(lengths)
        if isinstance(self.backend.normalizer, BertNormalizer):
            config["strip_accents"] = self.backend.normalizer.strip_accents
            config["tokenize_chinese_chars"] = self.backend.normalizer.handle_chinese_chars
        folder = Path(directory)
        with guarded(f"the tokenizer cannot be saved in {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True))
            write_json(folder / "tokenizer_config.json", config)
            write_json(folder / "special_tokens_map.json", tokens)


def _reading_as_text(backend: Backend, tokens: Collection[str]) -> Backend:
    """Return a copy in which these tokens are marked special, and no others."""
    definition = json.loads(backend.to_str())
    for token in definition["added_tokens"]:
        token["special"] = token["content"] in tokens
    if definition["model"]["type"] == "Unigram":
        # The model would choose them as pieces of a text, which SentencePiece never does.
        for token in definition["added_tokens"]:
            token["content"] += HIDDEN * token["special"]
        for piece in definition["model"]["vocab"]:
            piece[0] += HIDDEN * (piece[0] in tokens)
    return Backend.from_str(json.dumps(definition))


def _inputs(texts: Sequence[str], pairs: Sequence[str] | None) -> list[str] | list[tuple[str, str]]:
    """Return texts as the library takes them; refuse what it would misread or fail on."""
    _check_texts(texts, "text")
    if pairs is None:
        return list(texts)
    _check_texts(pairs, "second text")
    if len(texts) != len(pairs):
        second = counted(len(pairs), "second text")
        raise BertsmithError(f"{counted(len(texts), 'text')} but {second}")
    return list(zip(texts, pairs, strict=True))


def _check_texts(texts: Sequence[str], name: str) -> None:
    if isinstance(texts, str):
        raise BertsmithError(f"expected a list of {name}s, not a single one")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise BertsmithError(f"{name} {number} is a {type(text).__name__}, not a string")
        if text.isascii():  # a fast check that most texts pass
            continue
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise BertsmithError(
                f"{name} {number} has half of a surrogate pair (U+{code:04X}) at character"
                f" {error.start}, which is not a character: decode the text again, or leave it out"
            ) from None
