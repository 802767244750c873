"""Models and files as parts of a few megabytes, for machines that take small files only.

    python benchmarks/embed/parts.py split SOURCE... --out PARTS [--int8] [--size 13] [--group 52]
    python benchmarks/embed/parts.py join PARTS --out FOLDER

A folder of a model is stored in float16, or with `--int8` with its matrices in eight bits and a
scale for each row; `join` writes float16 in both cases. Text is compressed. Parts that may be
copied together are in one folder: PARTS/1, PARTS/2, ... `join` names those that are missing or
damaged, and writes nothing before all are there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import shutil
import tarfile
import tempfile
from pathlib import Path

MANIFEST, WEIGHTS, SCALE = "parts.json", "model.safetensors", "#scale"
LARGE = 1 << 16  # numbers of a matrix that is rounded
PRESET = 6  # of xz


def rounded(path: Path) -> None:
    """Replace the large matrices of a file by int8 and a scale for each row."""
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, weight in load_file(path).items():
        if weight.ndim != 2 or weight.numel() < LARGE:
            tensors[name] = weight
            continue
        scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        tensors[name] = (weight.float() / scale).round().char()
        tensors[name + SCALE] = scale
    save_file(tensors, path)


def restored(path: Path) -> None:
    """Replace int8 by float16, where there is any."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(SCALE)]:
        scale, matrix = tensors.pop(name), name.removesuffix(SCALE)
        tensors[matrix] = (tensors[matrix].float() * scale).half()
    save_file(tensors, path, {"format": "pt"})


def prepared(source: Path, place: Path, int8: bool) -> None:
    """A folder of a model, a file or a folder of files as it is stored."""
    if (source / WEIGHTS).exists():
        from bertsmith.infer.opening import open_model

        open_model(source, device="cpu", progress=False).save(place, "float16")
        if int8:
            rounded(place / WEIGHTS)
    elif source.is_dir():
        shutil.copytree(source, place)
    elif source.suffix in (".xz", ".safetensors"):
        shutil.copy(source, place)
    else:
        with lzma.open(f"{place}.xz", "wb", preset=PRESET) as packed, source.open("rb") as plain:
            shutil.copyfileobj(plain, packed, 1 << 20)


def split(
    sources: list[Path], out: Path, size: float = 13, group: float = 52, int8: bool = False
) -> list[Path]:
    """Write folders and files to parts of `size` MiB, in folders of `group` MiB; their paths."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive, tempfile.TemporaryDirectory() as name:
        for source in sources:
            prepared(source, Path(name) / source.name, int8)
        for place in sorted(Path(name).iterdir()):
            archive.add(place, place.name)
    data, sums, paths, most = content.getbuffer(), {}, [], int(size * (1 << 20))
    for number, start in enumerate(range(0, len(data), most)):
        path = out / str(1 + number // max(1, int(group / size))) / f"part-{number:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[start : start + most])
        sums[str(path.relative_to(out))] = hashlib.sha256(data[start : start + most]).hexdigest()
        paths.append(path)
    manifest = paths[-1].parent / MANIFEST  # arrives with the last of them
    manifest.write_text(json.dumps(sums, indent=1) + "\n")
    return [*paths, manifest]


def join(parts: Path, out: Path) -> None:
    """Write the folders and files that were split."""
    manifests = list(parts.rglob(MANIFEST))
    if len(manifests) != 1:
        raise SystemExit(f"{parts}: has {len(manifests)} files {MANIFEST}; the last folder has it")
    sums = json.loads(manifests[0].read_text())
    content, wrong = io.BytesIO(), []
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
        names = [out / name for name in archive.getnames()]
        archive.extractall(out, filter="data")
    for path in names:
        if path.name == WEIGHTS:
            restored(path)
        elif path.suffixes[-2:] == [".jsonl", ".xz"] and path.parent == out:
            with lzma.open(path) as packed, path.with_suffix("").open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
            path.unlink()


def main() -> None:
    """Split or join."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("split", "join"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=float, default=13, help="MiB of a part")
    parser.add_argument("--group", type=float, default=52, help="MiB of a folder of parts")
    parser.add_argument("--int8", action="store_true", help="round the matrices of models")
    given = parser.parse_args()
    if given.what == "join":
        join(given.paths[0], given.out)
        return
    for path in split(given.paths, given.out, given.size, given.group, given.int8):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
