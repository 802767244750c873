"""Output paths: checked before the work starts; only bertsmith's own files are replaced."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from bertsmith import __version__
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import (
    check_writable,
    digest,
    locked_file,
    make_folder,
    one_line,
    reading,
    sync,
    write_json,
    writing,
)
from bertsmith.foreign import read_table

MARKER = "bertsmith.json"  # in every directory that bertsmith writes; lists the files it wrote
LARGEST_MARKER = 4 << 20
IGNORED = {MARKER, ".lock"}
# The files of a model that determine its results.
HASHED = ["*.safetensors", "config.json", "tokenizer.json", "vocab.txt", "*.model", "modules.json"]
HASHED += ["1_Pooling/config.json", "sentence_*_config.json", "config_sentence_transformers.json"]
HASHED += ["*_Dense/*"]
SUMMED = 1 << 20  # bytes of a file of which a SHA-256 sum is kept


def check_output(folder: str | Path) -> None:
    """Raise if a folder of this name cannot be written, before the work starts."""
    check_writable(folder, folder=True)


def check_replaceable(folder: str | Path, overwrite: bool = False) -> None:
    """Refuse an output folder that holds anything, unless it may be overwritten.

    With `overwrite`, a directory is replaceable if bertsmith wrote every file in it: those that
    its bertsmith.json lists. Also checks that the folder can be written at all.
    """
    place = Path(folder)
    with writing(folder):
        with suppress(FileNotFoundError, NotADirectoryError):
            place.lstat()  # unlike Path.exists, it raises for a name that is too long
            if not place.is_dir():
                raise BertsmithError(f"{folder}: a file of this name exists; name a folder")
        held = sorted(place.iterdir()) if place.is_dir() else []
    if held and not overwrite:
        use = setting_name("overwrite", True)
        raise BertsmithError(f"{folder}: not empty; name another folder, or use {use}")
    if held and (foreign := _foreign(place)) is not None:
        raise BertsmithError(
            f"{folder}: {setting_name('overwrite', True)} replaces only what bertsmith wrote, but"
            f" {foreign}; name another folder, or remove it"
        )
    check_output(place)


def _foreign(folder: Path) -> str | None:
    """Why a folder is not one that bertsmith wrote, or None."""
    listed = _listed(folder)
    if not listed:
        return f"it has no {MARKER} with a list of its files"
    for name in sorted(_names(folder) - IGNORED):
        if name not in listed:
            return f"{one_line(name)} is another file"
        if listed[name] != _state(folder / name):
            return f"{one_line(name)} was changed since"
    return None


def _listed(folder: Path) -> dict[str, Any]:
    """The files that a directory's bertsmith.json says bertsmith wrote, each with its state."""
    files = (read_table(folder / MARKER, LARGEST_MARKER) or {}).get("files")
    return files if isinstance(files, dict) else {}


def _state(path: Path) -> str:
    """By which a file is known to be unchanged: its sum, or only its size if it is large."""
    if path.is_symlink() or not path.is_file():
        return ""
    size = path.stat().st_size
    return f"sha256 {digest(path)}" if size <= SUMMED else f"{size} bytes"


def _names(folder: Path) -> set[str]:
    """All files below a folder, and links, by their path in it."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths}


def replace_directory(
    folder: str | Path, write: Callable[[Path], None], overwrite: bool = False
) -> None:
    """Let `write` fill a directory that then replaces another, as `check_replaceable` allows."""
    check_replaceable(folder, overwrite)

    def fill(part: Path) -> None:
        with marking(part):
            write(part)
        check_replaceable(folder, overwrite)  # something may have appeared there meanwhile

    write_directory(folder, fill)


@contextmanager
def marking(folder: Path) -> Iterator[None]:
    """Record in bertsmith.json the files that are added to a directory within."""
    with writing(folder):
        others = _names(folder) - _listed(folder).keys()
    yield
    marker = folder / MARKER
    content: dict[str, Any] = {"version": __version__}
    with writing(marker):
        if marker.exists():
            content |= json.loads(marker.read_bytes())
        names = sorted(_names(folder) - others - IGNORED)
        content["files"] = {name: _state(folder / name) for name in names}
    write_json(marker, dict(sorted(content.items())))


@contextmanager
def reserved(folder: str | Path) -> Iterator[None]:
    """Keep other bertsmith processes from writing a folder of this name; it need not exist.

    Unlike `files.locked`, nothing is created inside it, so that it can be replaced meanwhile.
    """
    place = Path(os.path.realpath(folder))
    number = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:12]
    name = f".{place.name[:40]}-{number}.lock"
    created = []
    with writing(folder):
        for parent in (place.parent, *place.parent.parents):
            if parent.exists():
                break
            created.append(parent)
        place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locked_file(place.parent / name, folder):
            yield
    finally:
        with suppress(OSError):  # folders that are still empty were made for the lock alone
            for parent in created:
                parent.rmdir()


def write_directory(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder, which then appears under its name all at once.

    A folder that is there already is replaced as a whole. Of one that cannot be renamed (a mount
    point, the current directory) the entries are replaced one after the other.
    """
    place = Path(os.path.realpath(path))
    with writing(path):
        if place.is_dir() and (place.is_mount() or Path.cwd().is_relative_to(place)):
            former = list(place.iterdir())
            names = write_into(path, write)
            for entry in former:
                if entry.name not in names:
                    rmtree(entry) if _is_folder(entry) else entry.unlink()
            return
        place.parent.mkdir(parents=True, exist_ok=True)
    with _staged(path, place.parent, place.name) as (part, aside):
        write(part)
        _sync_all(part)
        _swap(part, place, aside)
        sync(place.parent)


def write_into(folder: str | Path, write: Callable[[Path], None]) -> set[str]:
    """Let `write` make entries that replace those of a folder once all are on disk; the names."""
    place = Path(os.path.realpath(folder))
    make_folder(folder)
    with _staged(folder, place, place.name) as (part, aside):
        write(part)
        _sync_all(part)
        entries = sorted(part.iterdir())
        for entry in entries:
            _swap(entry, place / entry.name, aside)
        sync(place)
    return {entry.name for entry in entries}


@contextmanager
def _staged(path: str | Path, home: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """A folder of this name to fill, and one for what it replaces; errors name `path` instead."""
    with (
        writing(path),
        TemporaryDirectory(".part", f".{name[:40]}-", home, ignore_cleanup_errors=True) as folder,
    ):
        part, aside = Path(folder, "new", name), Path(folder, "old")
        part.mkdir(parents=True)
        aside.mkdir()
        try:
            yield part, aside
        except BertsmithError as error:
            raise BertsmithError(error.message.replace(str(part), str(path))) from error


def _swap(part: Path, place: Path, aside: Path) -> None:
    """Rename an entry into its place; a folder there is moved aside, or back after a failure."""
    old = aside / place.name
    try:
        if _is_folder(part) and _is_folder(place):  # a file is replaced in one step
            place.replace(old)
        part.replace(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.replace(place)
        raise


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _sync_all(folder: Path) -> None:
    for entry in (*folder.rglob("*"), folder):
        sync(entry)


def files_hash(folders: set[Path]) -> str:
    """Return the SHA-256 sum of the files in a model's folders that determine its results."""
    total = hashlib.sha256()
    for folder in sorted(folders):
        for path in sorted({path for pattern in HASHED for path in folder.glob(pattern)}):
            with reading(path), path.open("rb") as stream:
                total.update(f"{path.name}\0".encode())
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()
