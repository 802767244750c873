"""Word senses as a picture, and as files for TensorBoard's projector."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from bertsmith.analysis.heatmap import page, section
from bertsmith.analysis.senses import Senses
from bertsmith.files import atomic, write_text, writing

COLOURS = ("#1f6fd0", "#d2691e", "#2a9d4a", "#b03a8c", "#8a7a00", "#0f9aa8")
SIZE, EDGE, EXAMPLES = 640, 16, 8


def senses_page(found: Senses, title: str, scores: list[float] | None = None) -> str:
    """A page: the occurrences as points, the groups with their words and sentences."""
    about = f"{len(found.places):,} occurrences, depth {found.layer}"
    parts = [
        section("where they lie", f"{about}; point at one to read it", _points(found), wide=True)
    ]
    for group in range(max(found.groups) + 1):
        members = found.members(group)
        lines = "".join(
            f"<li>{escape(found.places[number].around(70))}</li>" for number in members[:EXAMPLES]
        )
        words = ", ".join(found.words(group))
        mark = f'<svg viewBox="0 0 12 12" class="mark">{_dot(6, 6, group, "")}</svg>'
        name = f"group {group + 1}: {len(members):,} occurrences"
        parts.append(section(name, words, f"{mark}<ul>{lines}</ul>"))
    parts.append(section("depth by depth", DEPTHS, _depths(found, scores)))
    return page(f"“{found.word}” in {title}", about, parts)


DEPTHS = (
    "mean cosine between two occurrences; in the input table the word has one vector, and it is 1"
)


def _points(found: Senses) -> str:
    plane = found.plane
    low, high = plane.min(0), plane.max(0)
    scale = (SIZE - 2 * EDGE) / max(float((high - low).max()), 1e-9)
    tall = round(float((high - low)[1]) * scale) + 2 * EDGE
    dots = []
    for number, (place, group) in enumerate(zip(found.places, found.groups, strict=True)):
        x, y = EDGE + (plane[number] - low) * scale
        dots.append(_dot(float(x), tall - float(y), group, place.around(70)))
    label = f"{len(dots)} occurrences of {found.word} in a plane"
    return (
        f'<svg viewBox="0 0 {SIZE} {tall}" class="points" role="img" aria-label="{escape(label)}">'
        + "".join(dots)
        + "</svg>"
    )


def _dot(x: float, y: float, group: int, text: str) -> str:
    colour = COLOURS[group % len(COLOURS)]
    title = f"<title>{escape(text)}</title>" if text else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}" fill-opacity="0.75">{title}'
        "</circle>"
    )


def _depths(found: Senses, scores: list[float] | None) -> str:
    told = "" if scores is None else "<th>same sense told</th>"
    rows = []
    for depth, alike in enumerate(found.alike):
        more = "" if scores is None else f"<td>{scores[depth]:.1%}</td>"
        name = "embeddings" if depth == 0 else f"layer {depth - 1}"
        rows.append(f"<tr><td>{name}</td><td>{alike:.3f}</td>{more}</tr>")
    head = f"<thead><tr><th>after</th><th>alike</th>{told}</tr></thead>"
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"


def projector(found: Senses, folder: Path) -> None:
    """Write what `tensorboard --logdir FOLDER` shows as a cloud of points."""
    clean = [" ".join(place.around(70).split()) for place in found.places]
    rows = [f"{group + 1}\t{text}" for group, text in zip(found.groups, clean, strict=True)]
    config = (
        'embeddings {\n  tensor_name: "senses"\n  tensor_path: "vectors.tsv"\n'
        '  metadata_path: "metadata.tsv"\n}\n'
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / "vectors.tsv") as stream:
        np.savetxt(stream, found.vectors, fmt="%.6g", delimiter="\t")
    write_text(folder / "metadata.tsv", "\n".join(["group\ttext", *rows]) + "\n")
    write_text(folder / "projector_config.pbtxt", config)
