"""`distill`: a teacher, and text if there is any → the directory of a student."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bertsmith.distill.result import Distilled, write_distilled
from bertsmith.distill.speed import compare_speed, random_texts, size_of
from bertsmith.distill.static import SMOOTHING, WIDTH, to_static
from bertsmith.errors import BertsmithError
from bertsmith.finetune.setup import open_model
from bertsmith.folders import check_replaceable, reserved
from bertsmith.tasks.embedding import embed


def distill(
    teacher: str | Path,
    data: Any = None,
    out: str | Path | None = None,
    *,
    to: str = "static",
    width: int = WIDTH,
    smoothing: float = SMOOTHING,
    device: str | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Distilled:
    """Make a student of a teacher."""
    if to != "static":
        raise BertsmithError(f"to is static, not {to!r}")
    if out is not None:
        check_replaceable(out, overwrite)
    opened = open_model(teacher, device, dtype)
    began = time.perf_counter()
    student, projection = to_static(opened, width=width, smoothing=smoothing)
    seconds = time.perf_counter() - began
    content = {
        "kind": "static",
        "about": "static vectors, one for each token, of which a text's vector is the mean",
        "teacher": size_of(opened, str(teacher)),
        "student": size_of(student),
        "settings": {"width": width, "smoothing": smoothing},
        "explained_variance": projection.explained,
        "seconds": round(seconds, 1),
        "speed": compare_speed(opened, student, embed, random_texts(opened)),
        "notes": ["speed was measured on texts of 24 random tokens"],
    }
    result = Distilled(student, content)
    if out is not None:
        with reserved(out):
            write_distilled(result, Path(out), overwrite)
    return result
