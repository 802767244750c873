"""The files of sentence-transformers: pooling, Dense modules, normalisation and prompts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import Tensor

from bertsmith.checkpoint.dense import Dense, read_dense, write_dense
from bertsmith.errors import BertsmithError
from bertsmith.files import write_json, writing
from bertsmith.foreign import read_json
from bertsmith.numbers import whole_number

# The older keys of 1_Pooling/config.json, which every reader understands, and the newer names.
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLS = {"cls": "first", "mean": "mean"}  # those that we have, by our own names
LARGEST = 1 << 20  # bytes of a JSON file
MOST_MODULES = 16
LONGEST_PROMPT = 10_000  # characters: it is put before every text
PACKAGE = "sentence_transformers.models."
# The names of prompts for both sides of a search, as models call them; the first one counts.
QUERY = ("query", "search_query", "retrieval.query")
DOCUMENT = ("document", "passage", "corpus", "search_document", "retrieval.passage")
# Prompts of models whose files do not name them, by the end of a directory's name or hub id.
_TO_PASSAGES = "Represent this sentence for searching relevant passages: "
KNOWN_PROMPTS = {
    r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?": ("query: ", "passage: "),
    r"bge-(small|base|large)-en(-v1\.5)?": (_TO_PASSAGES, ""),
    r"bge-(small|base|large)-zh(-v1\.5)?": ("为这个句子生成表示以用于检索相关文章：", ""),
    r"(nomic|modernbert)-embed-(text-v1(\.5)?|base|large)": ("search_query: ", "search_document: "),
}


@dataclass(frozen=True)
class Sentence:
    """How the vector of a text is computed: pooling, normalisation and prompts."""

    pool: str = "mean"  # or "first"
    normalise: bool = False
    max_length: int | None = None
    lowercase: bool = False  # whatever the tokenizer does
    more: Mapping[str, Any] = field(default_factory=dict)  # prompts, and what is not used here
    dense: tuple[Dense, ...] = field(default=(), compare=False)  # after the pooling

    @property
    def prompts(self) -> dict[str, str]:
        """The model's prompts by their names."""
        return self.more.get("prompts") or {}

    @property
    def prompt(self) -> str:
        """The default prompt, which is put before every text."""
        return self.prompts.get(self.more.get("default_prompt_name") or "", "")

    def named_prompt(self, name: str) -> str:
        """The prompt of this name; an unknown one is an error."""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise BertsmithError(f"the model has no prompt {name[:100]!r}; it has: {known}")
        return self.prompts[name]

    @property
    def search_prompts(self) -> tuple[str, str]:
        """The prompts of queries and of documents; the default prompt if the model has neither."""
        prompts = self.prompts
        sides = [[prompts[n] for n in names if prompts.get(n)] for names in (QUERY, DOCUMENT)]
        if not any(sides):
            return self.prompt, self.prompt
        query, document = (side[0] if side else "" for side in sides)
        return query, document

    def prepared(self, text: str, prompt: str | None = None) -> str:
        """Return a text with a prompt (None: the default one), as the encoder reads it."""
        text = (self.prompt if prompt is None else prompt) + text
        return text.lower() if self.lowercase else text

    def project(self, vectors: Tensor) -> Tensor:
        """Pooled vectors (N, D) through the Dense modules."""
        for dense in self.dense:
            vectors = dense(vectors)
        return vectors


def read_sentence(directory: Path) -> tuple[Path, Sentence] | None:
    """Return the encoder's directory and its pooling, for sentence-transformers directories."""
    if not (directory / "modules.json").is_file():
        return None
    encoder, pool, normalise, dense = directory, "mean", False, list[Dense]()
    where = directory / "modules.json"
    modules = read_json(where, list, LARGEST)
    if len(modules) > MOST_MODULES or not all(isinstance(module, dict) for module in modules):
        raise BertsmithError(f"{where}: not a list of up to {MOST_MODULES} modules")
    for module in modules:
        kind = str(module.get("type"))[-200:].split(".")[-1]
        if kind in ("Transformer", "StaticEmbedding"):
            encoder = _inside(directory, module.get("path", ""))
        elif kind == "Pooling":
            pool = _pool(_inside(directory, module.get("path", "")) / "config.json")
        elif kind == "Dense" and not normalise:
            dense.append(read_dense(_inside(directory, module.get("path", ""))))
        elif kind == "Normalize":
            normalise = True
        else:
            raise BertsmithError(f"{where}: the module {kind[:80]!r} is not supported")
    path = min(encoder.glob("sentence_*_config.json"), default=None)
    settings = read_json(path, limit=LARGEST) if path else {}
    limit = settings.get("max_seq_length")
    if limit is not None:
        limit = whole_number(limit, f"{path}: max_seq_length", low=1)
    lowercase = settings.get("do_lower_case") is True
    for former, latter in pairwise(dense):
        if former.weight.shape[0] != latter.weight.shape[1]:
            raise BertsmithError(f"{where}: the widths of its Dense modules do not fit together")
    return encoder, Sentence(pool, normalise, limit, lowercase, _more(directory), tuple(dense))


def write_sentence(
    directory: Path, sentence: Sentence, width: int, *, static: bool = False
) -> None:
    """Write the files of sentence-transformers; static vectors have a module of their own."""
    kinds = ["StaticEmbedding"] if static else ["Transformer", "Pooling"]
    kinds += ["Dense"] * len(sentence.dense) + ["Normalize"] * sentence.normalise
    paths = (f"{number}_{kind}" if number else "" for number, kind in enumerate(kinds))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": PACKAGE + kind}
        for number, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    write_json(directory / "config_sentence_transformers.json", dict(sentence.more))
    write_json(directory / "modules.json", modules)
    for number, dense in enumerate(sentence.dense, kinds.index("Dense") if sentence.dense else 0):
        write_dense(directory / f"{number}_Dense", dense)
    if static:
        return
    modes = {key: POOLS.get(mode) == sentence.pool for key, mode in MODES.items()}
    pooling = {"word_embedding_dimension": width, **modes}
    with writing(directory):
        (directory / "1_Pooling").mkdir(exist_ok=True)
    write_json(directory / "1_Pooling" / "config.json", pooling)
    settings = {"max_seq_length": sentence.max_length, "do_lower_case": sentence.lowercase}
    write_json(directory / "sentence_bert_config.json", settings)


def _inside(directory: Path, path: Any) -> Path:
    """The folder of a module; an error if it is outside the model's."""
    valid = isinstance(path, str) and "\0" not in path
    if not valid or not (directory / path).resolve().is_relative_to(directory.resolve()):
        raise BertsmithError(f"{directory}: modules.json names a folder outside it: {path!r:.80}")
    return directory / path


def _pool(path: Path) -> str:
    """The pooling mode of a config; the newer key takes precedence."""
    settings = read_json(path, limit=LARGEST)
    asked = settings.get("pooling_mode") or [MODES[key] for key in MODES if settings.get(key)]
    modes = asked if isinstance(asked, list) else [asked]
    if len(modes) > 1 or not all(isinstance(mode, str) and mode in POOLS for mode in modes):
        raise BertsmithError(f"{path}: only mean pooling or [CLS] pooling is supported")
    if settings.get("include_prompt") is False:
        raise BertsmithError(f"{path}: pooling without the prompt's tokens is not supported")
    return POOLS[modes[0]] if modes else "mean"


def _more(directory: Path) -> dict[str, Any]:
    """What config_sentence_transformers.json says, its prompts checked."""
    path = directory / "config_sentence_transformers.json"
    more: dict[str, Any] = read_json(path, limit=LARGEST) if path.is_file() else {}
    prompts, name = more.get("prompts") or {}, more.get("default_prompt_name")
    texts = isinstance(prompts, dict) and all(isinstance(p, str) for p in prompts.values())
    if not texts or not (name is None or (isinstance(name, str) and name in prompts)):
        raise BertsmithError(f"{path}: its prompts are not names with texts")
    if any(len(prompt) > LONGEST_PROMPT for prompt in prompts.values()):
        raise BertsmithError(f"{path}: a prompt has more than {LONGEST_PROMPT:,} characters")
    if not any(prompts.values()) and (known := _known_prompts(directory)):
        more["prompts"] = {"query": known[0], "document": known[1]}
    return more


def _known_prompts(directory: Path) -> tuple[str, str] | None:
    """The prompts of a published model, by the name of its directory or in the hub's cache."""
    path = re.sub(r"/snapshots/[^/]+$", "", directory.resolve().as_posix())
    for pattern, prompts in KNOWN_PROMPTS.items():
        if re.search(rf"(/|--|_)({pattern})$", path, re.IGNORECASE):
            return prompts
    return None
