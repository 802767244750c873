"""Models and text as parts of a few megabytes, for machines that take small files only.

    python benchmarks/embed/parts.py split FOLDER... --out PARTS [--size 15]
    python benchmarks/embed/parts.py join PARTS --out FOLDER

A folder of a model is stored in float16, a file of text compressed. The parts may be copied in
several turns: `join` names those that are missing or damaged, and writes nothing before all are
there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path

MANIFEST = "parts.json"


def split(sources: list[Path], out: Path, size: int) -> list[Path]:
    """Write folders and files to parts of `size` bytes at most; the paths of the parts."""
    from bertsmith.infer.opening import open_model

    out.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive, tempfile.TemporaryDirectory() as name:
        for source in sources:
            place = Path(name) / source.name
            if source.is_dir():
                open_model(source, device="cpu", progress=False).save(place, "float16")
                archive.add(place, source.name)
            else:
                place.write_bytes(lzma.compress(source.read_bytes(), preset=4))
                archive.add(place, f"{source.name}.xz")
    data, sums, paths = content.getbuffer(), {}, []
    for number, start in enumerate(range(0, len(data), size)):
        path = out / f"part-{number:03}"
        path.write_bytes(data[start : start + size])
        sums[path.name] = hashlib.sha256(data[start : start + size]).hexdigest()
        paths.append(path)
    (out / MANIFEST).write_text(json.dumps(sums, indent=1) + "\n")
    return paths


def join(parts: Path, out: Path) -> None:
    """Write the folders and files that were split."""
    sums = json.loads((parts / MANIFEST).read_text())
    content = io.BytesIO()
    wrong = []
    for name, expected in sums.items():
        data = (parts / name).read_bytes() if (parts / name).exists() else b""
        if hashlib.sha256(data).hexdigest() != expected:
            wrong.append(name)
        content.write(data)
    if wrong:
        raise SystemExit(f"{parts}: missing or damaged: {', '.join(wrong)}")
    content.seek(0)
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(out, filter="data")
    for packed in out.glob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()


def main() -> None:
    """Split or join."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("split", "join"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=float, default=15, help="MiB of a part")
    given = parser.parse_args()
    if given.what == "join":
        join(given.paths[0], given.out)
        return
    for path in split(given.paths, given.out, int(given.size * (1 << 20))):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
