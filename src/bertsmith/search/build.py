"""Writing an index: create it, bring it up to date, embed it again with another model."""

import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import locked, sweep, sync, whole_characters, write_json, writing
from bertsmith.ledger import Ledger
from bertsmith.search.database import (
    DATABASE,
    FORMAT,
    POINTER,
    connect,
    current,
    damage_named,
    is_index,
    is_leftover,
    is_state,
    pointed,
)
from bertsmith.search.encoder import (
    DEFAULT_MODEL,
    TextEncoder,
    another_model,
    encoder_of,
    search_prompts,
)
from bertsmith.search.formats import ParsedDocument
from bertsmith.search.passages import Chunking
from bertsmith.search.scan import resolved_roots, text_key, under
from bertsmith.search.segments import DTYPES
from bertsmith.search.store import Store, StoredFile
from bertsmith.search.update import ADDED, IndexUpdate, Report, Updater, silent
from bertsmith.settings.search import IndexSettings


@dataclass(frozen=True)
class BuildSettings(IndexSettings):
    """Settings of an index, and its model."""

    encoder: TextEncoder | None = None  # the model, if it is already loaded

    def chunking(self, stamped: Mapping[str, int] | None = None) -> Chunking:
        """The size and overlap of passages."""
        base = Chunking(**stamped) if stamped else Chunking()
        size = base.size if self.passage_size is None else self.passage_size
        overlap = min(base.overlap, size // 4) if self.overlap is None else self.overlap
        return Chunking(size, overlap)


def update_folders(
    root: Path,
    folders: Sequence[str | Path],
    settings: BuildSettings,
    ledger: Ledger | None = None,
    report: Report = silent,
    re_embed: bool = False,
) -> IndexUpdate:
    """Create or update an index of folders; without folders, those stored in the index.

    `re_embed` recomputes all vectors, with another model or passage size; the old ones stay
    in use until the new ones are complete.
    """
    if not folders and not is_index(root):
        raise BertsmithError(f"{root}: there is no index yet: name the folders to index")
    roots = resolved_roots(folders)
    with updating(root, settings, ledger, report, re_embed) as updater:
        meta, missing = updater.store.meta(), list[Path]()
        if not roots:
            stored = [Path(folder) for folder in meta.get("roots", [])]
            missing = [folder for folder in stored if not folder.exists()]
            roots = [folder for folder in stored if folder not in missing]
            if missing and not roots:
                gone = str(missing[0])
                command = f"bertsmith index --out {root} --move {gone} NEW"
                move = setting_name(f"Index.move({gone!r}, NEW)", option=command)
                drop = setting_name(f"Index.drop({gone!r})", option=f"--drop {gone}")
                advice = f"if it was moved: {move}, and {drop} removes its files"
                raise BertsmithError(f"{gone}: no such file or folder; {advice}")
        # The patterns of each folder: those of the settings, or those that the index has.
        changes = {"exclude": settings.exclude, "include": settings.include}
        changed = {key: [*filter(None, value)] for key, value in changes.items() if value}
        patterns = {str(root): meta.get("patterns", {}).get(str(root), {}) for root in roots}
        patterns = {folder: {**former, **changed} for folder, former in patterns.items()}
        update = updater.folders(roots, patterns, missing)
        if updater.encoder is not None:
            updater.encoder.note_windows(updater.ledger)
        return update


def move_folder(root: Path, old: str | Path, new: str | Path) -> IndexUpdate:
    """Record that a folder, or one above some folders, has another path now; no file is read."""
    [target] = resolved_roots([new])
    with stored_settings(root) as store:
        source, update = _full_path(store, old), IndexUpdate()

        def moved(path: str) -> str:
            return text_key(target) + path[len(text_key(source)) :] if under(path, source) else path

        meta = store.meta()
        roots = [moved(path) for path in meta.get("roots", [])]
        if not any(under(text_key(target), path) for path in roots):
            roots.append(text_key(target))
        for file in _files_below(store, source):
            if store.file(moved(file.path)):
                store.remove_file(file.id)  # the new folder was indexed too
                update.removed += 1
            else:
                values = (moved(file.path), file.id)
                store.database.execute("UPDATE files SET path = ? WHERE id = ?", values)
                update.moved += 1
        patterns = {moved(path): value for path, value in meta.get("patterns", {}).items()}
        store.set_meta(roots=list(dict.fromkeys(roots)), patterns=patterns)
    return update


def drop_folder(root: Path, folder: str | Path) -> IndexUpdate:
    """Remove a folder from an index, with its files."""
    with stored_settings(root) as store:
        path, update = _full_path(store, folder), IndexUpdate()
        for file in _files_below(store, path):
            store.remove_file(file.id)
            update.removed += 1
        roots = store.meta().get("roots", [])
        store.set_meta(roots=[root for root in roots if not under(root, path)])
    return update


def _files_below(store: Store, folder: Path) -> list[StoredFile]:
    """The files of a folder; an error if the index has none and was not built from it."""
    below = [file for file in store.files("kind != ?", ADDED) if under(file.path, folder)]
    roots = store.meta().get("roots", [])
    if not below and not any(under(root, folder) for root in roots):
        known = ", ".join(roots)
        raise BertsmithError(f"{folder}: not in the index {store.root}; its folders: {known}")
    return below


@contextmanager
def stored_settings(root: Path) -> Iterator[Store]:
    """A store whose settings or files are changed, in a transaction, without reading any file."""
    with writer(root), closing(Store.open(root, write=True)) as store:
        with store.transaction():
            yield store
        store.seal()


def _full_path(store: Store, folder: str | Path) -> Path:
    """The full path of a folder that may be gone: as in the index, or with links resolved."""
    path = Path.cwd() / Path(folder).expanduser()
    return path if str(path) in store.meta().get("roots", []) else path.resolve()


def add_documents(
    root: Path, documents: Iterable[str | Mapping[str, Any]], settings: BuildSettings
) -> IndexUpdate:
    """Add documents that are not files."""
    with updating(root, settings) as updater:
        return updater.documents(map(_document, documents))


def re_embed(root: Path, settings: BuildSettings, report: Report = silent) -> IndexUpdate:
    """Embed all passages again, without reading the folders that they are from."""
    with updating(root, settings, report=report, re_embed=True) as updater:
        return updater.documents(())


def remove_documents(root: Path, names: Sequence[str], settings: BuildSettings) -> IndexUpdate:
    """Remove documents and files from the index."""
    with updating(root, settings) as updater:
        return updater.remove(names)


def _document(value: str | Mapping[str, Any]) -> tuple[str, ParsedDocument]:
    if isinstance(value, str):
        value = {"id": value[:200], "text": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        raise BertsmithError('a document is a text, or {"id": ..., "text": ..., "title": ...}')
    text, title = value["text"], str(value.get("title") or "")
    name = str(value.get("id") or value.get("_id") or text[:200])
    name, text, title = (whole_characters(cell) for cell in (name, text, title))
    return name, ParsedDocument(text, name, title)


@contextmanager
def writer(root: Path) -> Iterator[None]:
    """Hold the writer's lock of an index; remove leftovers of killed writers."""
    with writing(root):
        if root.exists() and not root.is_dir():
            raise BertsmithError(f"{root}: a file of this name exists; name a folder")
        strange = root.is_dir() and any(entry.name != ".lock" for entry in root.iterdir())
    if strange and not is_index(root) and not is_leftover(root):
        raise BertsmithError(f"{root}: holds other files; name a new folder for the index")
    with locked(root):
        with writing(root):
            sweep(root)
            kept = pointed(root) if is_index(root) else _found_again(root)
            for entry in root.iterdir():
                if entry.is_dir() and entry.name != kept and is_state(entry):
                    rmtree(entry, ignore_errors=True)  # files in use elsewhere may stay
        yield


def _found_again(root: Path) -> str:
    """Restore the missing pointer to the only state in a folder; "" if there is none."""
    names = [entry.name for entry in root.iterdir() if is_state(entry)]
    if len(names) != 1:
        return ""
    write_json(root / POINTER, {"format": FORMAT, "current": names[0]})
    try:
        Store.open(root).close()
    except BertsmithError:  # a first run was killed before it wrote anything
        (root / POINTER).unlink()
        return ""
    return names[0]


@contextmanager
def updating(
    root: Path,
    settings: BuildSettings,
    ledger: Ledger | None = None,
    report: Report = silent,
    re_embed: bool = False,
) -> Iterator[Updater]:
    """Hold the writer's lock and yield an updater; a copied store becomes current at the end."""
    with writer(root):
        store, encoder = _opened(root, settings, re_embed)
        try:
            yield Updater(store, encoder, ledger or Ledger(), report)
            if store.folder != current(root):
                store.switch()
        finally:
            store.close()


def _opened(
    root: Path, settings: BuildSettings, re_embed: bool
) -> tuple[Store, TextEncoder | None]:
    """The store to write and its model: a new one, the current one, or a copy without vectors."""
    if settings.dtype is not None and settings.dtype not in DTYPES:
        raise BertsmithError(f"unknown dtype {settings.dtype!r}; known: {', '.join(DTYPES)}")
    if not is_index(root):
        encoder = _new_encoder(settings, {})
        stamp = _stamp(encoder, settings.chunking(), settings.dtype or "float32")
        store = Store.create(root, stamp)
        store.switch()  # now, so that a first run that is killed can be resumed
        return store, encoder
    store = Store.open(root, write=True)
    try:
        return _copied(store, settings) if re_embed else (store, _stored_encoder(store, settings))
    except BaseException:
        store.close()
        raise


def _stamp(encoder: TextEncoder | None, chunking: Chunking, dtype: str) -> dict[str, Any]:
    model = encoder.stamp if encoder else None
    return {"model": model, "chunking": asdict(chunking), "dtype": dtype}


def _new_encoder(settings: BuildSettings, stamp: Mapping[str, Any]) -> TextEncoder | None:
    """The model for new vectors, if there are to be any; `stamp` describes that of the old ones."""
    if settings.encoder is not None or settings.keywords_only:
        return settings.encoder
    name = settings.model or stamp.get("name") or DEFAULT_MODEL
    long = settings.long or stamp.get("long", "window")
    prompts = search_prompts(name)
    # The same model: prompts and a width that were set by hand are kept.
    former = stamp if settings.model is None else {}

    def chosen(setting: str, default: Any) -> Any:
        values = (getattr(settings, setting), former.get(setting), default)
        return next((value for value in values if value is not None), None)

    prompts = chosen("query_prompt", prompts[0]), chosen("document_prompt", prompts[1])
    width = chosen("width", None)
    return TextEncoder(name, settings.device, settings.precision, long, prompts, width)


def _stored_encoder(store: Store, settings: BuildSettings) -> TextEncoder | None:
    """Return the model of an index; settings that differ from its own are an error."""
    root, meta, again = store.root, store.meta(), setting_name("re_embed", True)
    chunking, stamp = meta["chunking"], meta["model"]
    if asdict(settings.chunking(chunking)) != chunking:
        how = "its passages have {size} characters, {overlap} of them shared".format(**chunking)
        raise BertsmithError(f"{root}: {how}; use {again} to change that")
    if settings.dtype not in (None, meta["dtype"]):
        raise BertsmithError(f"{root}: its vectors are {meta['dtype']}; {again} changes that")
    if stamp is None:
        if settings.model is not None:
            raise BertsmithError(f"{root}: was built without vectors; {again} computes them")
        return None
    if settings.keywords_only:
        raise BertsmithError(f"{root}: was built with vectors; choose another folder for the index")
    own = settings.model, settings.device, settings.precision
    encoder = settings.encoder or encoder_of(stamp, *own)
    if encoder.hash != stamp["hash"]:
        raise another_model(root, stamp, encoder.name)
    width = encoder.width or stamp["dimension"]
    stored = {"long": encoder.long, "document_prompt": encoder.prompts[1] or "", "width": width}
    for name, value in stored.items():
        if getattr(settings, name) not in (None, value):
            option = f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
            how = f"its passages were embedded with {setting_name(name, value, option)}"
            raise BertsmithError(f"{root}: {how}; use {again} to change that")
    if settings.query_prompt is not None:
        with store.transaction():
            store.set_meta(model={**stamp, "query_prompt": settings.query_prompt})
    return encoder


def _copied(store: Store, settings: BuildSettings) -> tuple[Store, TextEncoder | None]:
    """Copy the database without vectors into a new folder; the old one is kept."""
    meta = store.meta()
    encoder = _new_encoder(settings, meta["model"] or {})
    chunking = settings.chunking(meta["chunking"])
    folder = store.root / os.urandom(4).hex()
    with writing(store.root):
        folder.mkdir()
        sync(store.root)
    with damage_named(folder / DATABASE):
        database = connect(folder / DATABASE)
        store.database.backup(database)
        store.close()
        database.execute("PRAGMA journal_mode = WAL")
    copy = Store(store.root, folder, database)
    changed = asdict(chunking) != meta["chunking"]
    with copy.transaction():
        for table in ("vectors", "pending", "segments"):
            copy.database.execute(f"DELETE FROM {table}")
        stamp = _stamp(encoder, chunking, settings.dtype or meta["dtype"])
        copy.set_meta(**stamp, roots=meta.get("roots", []))
        if changed:  # files are read again; added documents are rebuilt from their passages
            copy.database.execute("UPDATE files SET sha256 = ''")
            copy.database.execute("UPDATE files SET modified = -1 WHERE kind != ?", (ADDED,))
    if changed:
        files = copy.files("kind = ?", ADDED)
        documents = ((file.path, _rebuilt(copy.database, file)) for file in files)
        # Passages of files have no vectors yet; they get theirs when the files are split again.
        Updater(copy, encoder, Ledger()).documents(documents, finish=False)
    return copy, encoder


def _rebuilt(database: sqlite3.Connection, file: StoredFile) -> ParsedDocument:
    """Rebuild a document from its passages, which are separated by white space only."""
    sql = "SELECT first, last, title, text FROM passages WHERE file = ? ORDER BY first"
    rows = database.execute(sql, (file.id,)).fetchall()
    text = ""
    for first, last, _, passage in rows:
        if last >= len(text):
            text = text.ljust(first)[:first] + passage
    return ParsedDocument(text, file.path, rows[0][2] if rows else "")
