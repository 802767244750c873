"""The result of a distillation: the student, measured beside its teacher."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import save
from bertsmith.files import finite, write_json, write_text
from bertsmith.folders import replace_directory
from bertsmith.infer.loaded import LoadedModel
from bertsmith.pages.page import markdown
from bertsmith.pages.results import score_table


@dataclass(frozen=True, repr=False)
class DistillationResult:
    """A student with the content of its distill.json."""

    student: LoadedModel
    content: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    training_notes: list[str] = field(default_factory=list)  # as in report.json

    @property
    def notes(self) -> list[str]:
        """Notes on how to read the numbers."""
        return [*self.content.get("notes", ()), *self.training_notes]

    def to_dict(self) -> dict[str, Any]:
        """The content of distill.json as plain values."""
        return finite(self.content)

    def _repr_html_(self) -> str:
        return score_table("", ["", "teacher", "student"], rows(self.content))

    def __repr__(self) -> str:
        place = f", in {self.out}" if self.out else ""
        return f"<distilled by {self.content.get('kind')}: {self.student!r}{place}>"


def write_distilled(
    student: LoadedModel, content: dict[str, Any], out: Path, overwrite: bool
) -> None:
    """Write the student's directory with its model card and distill.json, all at once."""

    def write(folder: Path) -> None:
        teacher = Path(content["teacher"]["model"]).name
        card = markdown("distilled_card.md", name=folder.name, teacher=teacher, content=content)
        write_text(folder / "README.md", card)
        save(folder, student.checkpoint, student.tokenizer, student.sentence)
        write_json(folder / "distill.json", finite(content))
        write_json(folder / "ledger.json", dict(student.ledger.counts))

    replace_directory(out, write, overwrite)


def rows(content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Teacher and student side by side: size, speed and scores, as text."""
    teacher, student = content["teacher"], content["student"]
    yield "layers", str(teacher["layers"]), str(student["layers"])
    yield "width", str(teacher["width"]), str(student["width"])
    yield "parameters", f"{teacher['parameters']:,}", f"{student['parameters']:,}"
    for one in content.get("speed", ()):
        count, place = one["threads"], one["device"]
        if count is not None:
            place += f", {count} thread{'s' * (count != 1)}"
        faster = f"{one['student_per_second']:,.0f} ({one['ratio']:g} ×)"
        yield f"texts per second ({place})", f"{one['teacher_per_second']:,.0f}", faster
    for split, sides in (content.get("scores") or {}).items():
        for name in sides["student"]:
            if name != "count":
                first, second = (sides[side].get(name) for side in ("teacher", "student"))
                yield f"{split} {name}", _number(first), _number(second)


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
