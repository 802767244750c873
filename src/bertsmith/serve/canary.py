"""The canary of an int8 model: some requests are also computed in float32, to measure the drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from bertsmith.batch import Batch
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import encode
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden


class Canary:
    """Encodes one request in `every` with the float32 original, and reports the difference."""

    def __init__(self, original: LoadedModel, every: int, report: Callable[[float], Any]) -> None:
        self.original, self.every, self.report = original, every, report
        self.requests = 0

    def watch(
        self, windows: Sequence[Window], first: Sequence[bool], hidden: Hidden, batch: Batch
    ) -> None:
        """Look at a batch; `first` says which windows are the first ones of a request."""
        for row, (window, begins) in enumerate(zip(windows, first, strict=True)):
            self.requests += begins
            if begins and self.requests % self.every == 0:
                states = batch.layout.split(hidden.last)[row]
                self.report(self.drift(window, states.mean(0)))

    def drift(self, window: Window, vector: torch.Tensor) -> float:
        """1 - the cosine of a window's mean state and that of the float32 model."""
        with torch.inference_mode():
            exact, _ = encode(self.original.model, [window], self.original.device)
            return float(1 - F.cosine_similarity(vector, exact.last.mean(0), dim=0))
