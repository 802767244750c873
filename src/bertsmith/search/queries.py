"""Vectors of queries by the model of an index; by bertsmith-embed in NumPy, without PyTorch."""

import math
import threading
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.folders import files_hash
from bertsmith.foreign import read_json
from bertsmith.ledger import Ledger
from bertsmith.search.encoder import DEFAULT_MODEL, TextEncoder, Vectors, another_model, encoder_of

DIRECTORY = Path(__file__).resolve().parent.parent / "models" / DEFAULT_MODEL
POINTS = np.linspace(-4, 4, 1 << 13)  # between them, the error function is a line to 1.2e-7
ERF = [math.erf(x) for x in POINTS]


class IndexModel:
    """The model of an index, loaded when it is first needed; often, queries need no PyTorch."""

    def __init__(
        self,
        path: Path,
        model: str | Path | TextEncoder | None,
        device: str | None,
        dtype: str | None,
        ledger: Ledger,
    ) -> None:
        """`model` is the encoder, or its new location."""
        self.path, self.device, self.dtype, self.ledger = path, device, dtype, ledger
        self.encoder = model if isinstance(model, TextEncoder) else None
        self.place = None if isinstance(model, TextEncoder) else model
        self.lock = threading.Lock()  # readers share the encoder
        self._queries: QueryEncoder | None = None

    def load(self, stamp: Mapping[str, Any]) -> TextEncoder:
        """The encoder that an index with this stamp was embedded with."""
        if self.encoder is None:
            name = str(self.place or stamp.get("name"))
            try:
                encoder = encoder_of(stamp, name, self.device, self.dtype, self.ledger)
            except BertsmithError as error:
                keywords = setting_name("mode", "keywords", "--keywords")
                fault = f"its model cannot be opened ({error.message})"
                advice = f"say where it is with {setting_name('model')}, or search with {keywords}"
                raise BertsmithError(f"{self.path}: {fault}; {advice}") from error
            self.check(stamp, encoder, name)
            self.encoder = encoder
        return self.encoder

    def shared(self) -> Self:
        """The same model for another reader, which uses it in turn."""
        other = copy(self)
        other._queries = None
        return other

    def check(self, stamp: Mapping[str, Any], encoder: TextEncoder, name: str) -> None:
        """Refuse a model that did not embed the index."""
        if stamp and stamp["hash"] != encoder.hash:
            raise another_model(self.path, stamp, name)

    def follow(self, stamp: Mapping[str, Any]) -> None:
        """Drop the encoder if another process has embedded the index with another one."""
        own = (stamp.get("hash"), stamp.get("long", "window"), stamp.get("width"))
        if self.encoder and (self.encoder.hash, self.encoder.long, self.encoder.width) != own:
            self.encoder = None

    def embed(self, stamp: Mapping[str, Any], query: str) -> Vectors:
        """The unit vector (D,) of a query."""
        quick = self.embed_quickly(stamp, query) if self.encoder is None else None
        if quick is not None:
            return quick
        with self.lock:
            return self.load(stamp).embed_query(query)

    def embed_quickly(self, stamp: Mapping[str, Any], query: str) -> Vectors | None:
        """The vector of a query by the default model in NumPy; None if that is not possible."""
        default = stamp.get("name") == DEFAULT_MODEL and not stamp.get("width") and not self.place
        if not default or self.device not in (None, "cpu") or self.dtype not in (None, "float32"):
            return None
        if self._queries is None:
            self._queries = QueryEncoder()
        if self._queries.hash != stamp["hash"]:
            return None
        return self._queries.embed((stamp.get("query_prompt") or "") + query)


class QueryEncoder:
    """A ModernBERT without local layers, for texts that fit into it: what bertsmith-embed is."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        from safetensors import safe_open

        from bertsmith.tokenizer import Tokenizer

        self.hash = files_hash({directory})
        self.settings = read_json(directory / "config.json")
        self.tokenizer = Tokenizer.load(directory, family=self.settings["model_type"])
        self.file: Any = safe_open(directory / "model.safetensors", framework="np")
        self.weights: dict[str, Vectors] = {}  # all but the table of tokens, when first used

    def embed(self, text: str) -> Vectors | None:
        """Return the unit vector (D,) of a text; None for one that needs several windows."""
        ids = self.tokenizer.build(self.tokenizer.encode_ids([text])[0])[0]
        if len(ids) > self.settings["max_position_embeddings"]:
            return None
        table = self.file.get_slice("embeddings.tok_embeddings.weight")
        rows = np.concatenate([table[number : number + 1] for number in ids]).astype(np.float32)
        x = self._normed(rows, "embeddings.norm")
        for number in range(self.settings["num_hidden_layers"]):
            at = f"layers.{number}."
            x = x + self._attended(self._normed(x, at + "attn_norm") if number else x, at)
            projected = self._linear(self._normed(x, at + "mlp_norm"), at + "mlp.Wi")
            up, gate = np.split(projected, 2, axis=1)
            erf = np.interp(up / math.sqrt(2), POINTS, ERF).astype(np.float32)
            x = x + self._linear(up * (1 + erf) / 2 * gate, at + "mlp.Wo")  # GeGLU
        mean = self._normed(x, "final_norm").mean(0)
        return mean / np.maximum(np.linalg.norm(mean), np.float32(1e-12))

    def _attended(self, x: Vectors, at: str) -> Vectors:
        """(T, D) → (T, D): softmax attention with rotary positions."""
        heads = self.settings["num_attention_heads"]
        width = x.shape[1] // heads
        projected = self._linear(x, at + "attn.Wqkv").reshape(len(x), 3, heads, width)
        q, k, v = projected.transpose(1, 2, 0, 3)  # (H, T, d) each
        speeds = self.settings["global_rope_theta"] ** (-np.arange(0, width, 2) / width)
        angles = np.tile(np.outer(np.arange(len(x)), speeds), 2)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        q, k = (
            x * cos + np.concatenate([-x[..., width // 2 :], x[..., : width // 2]], -1) * sin
            for x in (q, k)
        )
        scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(width))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        return self._linear(mixed.transpose(1, 0, 2).reshape(x.shape), at + "attn.Wo")

    def _linear(self, x: Vectors, name: str) -> Vectors:
        return x @ self._weight(name).T

    def _normed(self, x: Vectors, name: str) -> Vectors:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
        return centred / scale * self._weight(name)

    def _weight(self, name: str) -> Vectors:
        if name not in self.weights:
            self.weights[name] = self.file.get_tensor(f"{name}.weight").astype(np.float32)
        return self.weights[name]
