"""Objectives of tiny runs, and their logs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.train import Recipe

Make = Callable[..., Recipe]


OBJECTIVES: dict[str, dict[str, Any]] = {
    "masked": {"objectives": {"masked_lm": 1}},
    "words": {"objectives": {"masked_lm": 1}, "masking": {"unit": "word"}},
    "next": {"objectives": {"masked_lm": 1, "next_sentence": 1}, "data": {"format": "next"}},
    "order": {"objectives": {"masked_lm": 1, "sentence_order": 0.5}, "data": {"format": "order"}},
    "replaced": {"objectives": {"replaced": 50}, "generator": {"width": 0.5}},
    "both": {
        "objectives": {"replaced": 50, "masked_lm": 1},
        "generator": {"width": 1.0, "depth": 0.5, "sharing": "disentangled"},
    },
    "both in one pass": {
        "objectives": {"masked_lm": 1, "replaced": 20},
        "generator": {"depth": 0.5, "fills": 0.5},
    },
    "left to right": {"objectives": {"following_lm": 1}},
    "crops": {
        "objectives": {"contrastive": 1, "masked_lm": 0.1},
        "data": {"format": "crops"},
        "contrastive": {"temperature": 0.5},  # a sharp softmax magnifies the rounding of cosines
    },
}


def log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
