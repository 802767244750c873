"""The settings of labelling: what is asked next, what is held out, and what people see."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.settings import setting


@dataclass(frozen=True)
class LabellingSettings:
    """Settings of labelling."""

    batch: int = setting(
        20, "Texts that are chosen together; the model is trained after each.", ge=1
    )
    held_out: float = setting(
        0.2, "Share of texts, drawn at random, whose labels are for evaluation only.", ge=0, le=0.9
    )
    overlap: float = setting(
        0.2, "Share of texts that every annotator labels; others are labelled by one.", ge=0, le=1
    )
    blind: bool = setting(False, "Show the model's suggestion only after a choice.")
    order: str = setting(
        "active", "Texts that the model doubts and that differ (active), or any (random)."
    )
    seed: int = setting(0, "Seed of the random draws.", ge=0)
