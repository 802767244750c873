"""Vectors of queries by bertsmith-embed in NumPy, so that a search need not wait for PyTorch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from bertsmith.folders import files_hash
from bertsmith.foreign import read_json
from bertsmith.search.encoder import DEFAULT_MODEL, Vectors
from bertsmith.tokenizer import Tokenizer

DIRECTORY = Path(__file__).resolve().parent.parent / "models" / DEFAULT_MODEL
ERF = np.vectorize(math.erf, otypes=[np.float32])


class QueryEncoder:
    """The one ModernBERT layer of bertsmith-embed, for texts that fit into it."""

    def __init__(self) -> None:
        self.hash = files_hash({DIRECTORY})
        self.settings = read_json(DIRECTORY / "config.json")
        self.tokenizer = Tokenizer.load(DIRECTORY, family=self.settings["model_type"])
        self.file: Any = safe_open(DIRECTORY / "model.safetensors", framework="np")
        self.weights: dict[str, Vectors] = {}  # all but the table of tokens, when first used

    def embed(self, text: str) -> Vectors | None:
        """Return the unit vector (D,) of a text; None for one that needs several windows."""
        ids = self.tokenizer.build(self.tokenizer.encode_ids([text])[0])[0]
        if len(ids) > self.settings["max_position_embeddings"]:
            return None
        table = self.file.get_slice("embeddings.tok_embeddings.weight")
        rows = np.concatenate([table[number : number + 1] for number in ids]).astype(np.float32)
        x = self._normed(rows, "embeddings.norm")
        x = x + self._attended(x)
        up, gate = np.split(self._linear(self._normed(x, "layers.0.mlp_norm"), "mlp.Wi"), 2, axis=1)
        x = x + self._linear(up * (1 + ERF(up / math.sqrt(2))) / 2 * gate, "mlp.Wo")
        mean: Vectors = self._normed(x, "final_norm").mean(0)
        return mean / np.maximum(np.linalg.norm(mean), np.float32(1e-12))

    def _attended(self, x: Vectors) -> Vectors:
        """(T, D) → (T, D): softmax attention with rotary positions."""
        heads = self.settings["num_attention_heads"]
        width = x.shape[1] // heads
        parts = self._linear(x, "attn.Wqkv").reshape(len(x), 3, heads, width)
        q, k, v = parts.transpose(1, 2, 0, 3)  # (H, T, d) each
        speeds = self.settings["global_rope_theta"] ** (-np.arange(0, width, 2) / width)
        angles = np.tile(np.outer(np.arange(len(x)), speeds), 2)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        q, k = (
            one * cos + np.concatenate([-one[..., width // 2 :], one[..., : width // 2]], -1) * sin
            for one in (q, k)
        )
        scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(width))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        return self._linear(mixed.transpose(1, 0, 2).reshape(x.shape), "attn.Wo")

    def _linear(self, x: Vectors, name: str) -> Vectors:
        result: Vectors = x @ self._weight(f"layers.0.{name}").T
        return result

    def _normed(self, x: Vectors, name: str) -> Vectors:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
        result: Vectors = centred / scale * self._weight(name)
        return result

    def _weight(self, name: str) -> Vectors:
        if name not in self.weights:
            stored = self.file.get_tensor(f"{name}.weight")
            self.weights[name] = stored.astype(np.float32)
        return self.weights[name]
