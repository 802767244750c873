"""The files of folders to index: which are read, which are left out, which cannot be read."""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, reading
from bertsmith.ledger import Ledger
from bertsmith.search.database import is_index

IGNORE = ".gitignore"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # other errors do not show that a file is gone
SECRETS = "*.env .env.* *.pem *.key *.p12 *.pfx *.ppk *.jks *.keystore *.kdbx *.gpg .netrc .pgpass"
SECRETS += " id_rsa id_dsa id_ecdsa id_ed25519 .htpasswd credentials credentials.json"
SECRETS += " secrets.json secrets.toml secrets.yaml secrets.yml secrets.ini secrets.txt"
# Left out of every folder, unless `--exclude '!PATTERN'` names it.
DEFAULTS = {
    "hidden files and folders": [".*"],
    "folders of installed packages and caches": ["node_modules/", "__pycache__/", "site-packages/"],
    "minified files and source maps": ["*.min.js", "*.min.mjs", "*.min.css", "*.[jc]s*.map"],
    "files that may hold passwords or keys": SECRETS.split(),
}
Patterns = Mapping[str, Mapping[str, list[str]]]  # of each root: `exclude` and `include`
Rule = tuple[str, str, GitIgnoreSpec]  # what it leaves out, the folder that it applies to, patterns


@dataclass(frozen=True)
class SourceFile:
    """A file on the disk."""

    path: Path
    key: str  # its path as text, also where its name is not UTF-8
    size: int
    modified: int  # nanoseconds since 1970


def resolved_roots(folders: Sequence[str | Path]) -> list[Path]:
    """Return the full paths of folders and files to index; a missing one is an error."""
    roots: dict[Path, None] = {}
    for folder in folders:
        path = Path(folder).expanduser()
        with reading(folder):  # a name that is too long
            if not path.exists() or "\0" in str(folder):
                raise BertsmithError(f"{folder}: no such file or folder")
        roots[path.resolve()] = None
    return list(roots)


def text_key(path: Path) -> str:
    """Return a path as text that SQLite can store."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def under(key: str, root: Path | str) -> bool:
    """Whether a file is a root, or in it."""
    base = text_key(Path(root))
    return key == base or key.startswith(base.rstrip(os.sep) + os.sep)


def scan(
    roots: Sequence[Path], ledger: Ledger, patterns: Patterns
) -> tuple[list[SourceFile], dict[str, str]]:
    """List every regular file of the roots once, in order, and why others could not be read."""
    files: dict[str, SourceFile] = {}
    unread: dict[str, str] = {}
    for root in roots:
        own = patterns.get(str(root), {})
        for path in [root] if root.is_file() else _walk(root, own, ledger, unread):
            key = text_key(path)
            try:
                state = path.stat()
            except OSError as error:
                if error.errno in GONE:
                    ledger.note("links that lead nowhere, left out")
                else:
                    unread[key] = f"cannot be read ({cause(error)})"
                continue
            if not path.is_file():
                ledger.note("devices and pipes, left out")
            else:
                files.setdefault(key, SourceFile(path, key, state.st_size, state.st_mtime_ns))
    return list(files.values()), unread


def _walk(
    root: Path, own: Mapping[str, list[str]], ledger: Ledger, unread: dict[str, str]
) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        if error.errno not in GONE:
            unread[text_key(Path(error.filename))] = f"cannot be read ({cause(error)})"

    last = [(what, str(root), patterns(lines)) for what, lines in DEFAULTS.items()]
    last += [("files and folders of `exclude`", str(root), patterns(own.get("exclude", [])))]
    include = patterns(own.get("include", []))
    rules = {str(root): _rules_above(root)}
    empty = True
    for folder, folders, names in os.walk(root, onerror=unreadable):
        if is_index(Path(folder)):
            folders.clear()
            continue
        inherited = rules.pop(folder)
        if IGNORE in names:
            inherited = [*inherited, _ignore_file(Path(folder))]
        kept = []
        for name in sorted(f"{name}{os.sep}" for name in folders) + sorted(names):
            path = f"{folder.rstrip(os.sep)}{os.sep}{name}"
            reason = left_out(path, [*inherited, *last])
            if reason is None and include and not name.endswith(os.sep):
                if not include.match_file(_below(path, str(root))):
                    reason = "files that `include` does not name"
            if reason is None:
                kept.append(name)
            else:
                ledger.note(f"{reason}, left out")
        empty = empty and not names and len(kept) == len(folders)
        folders[:] = [name.rstrip(os.sep) for name in kept if name.endswith(os.sep)]
        rules |= {str(Path(folder, name)): inherited for name in folders}
        yield from (Path(folder, name) for name in kept if not name.endswith(os.sep))
    if empty and text_key(root) not in unread:
        unread[text_key(root)] = "holds no files (is its disk mounted?)"


def left_out(path: str, rules: Sequence[Rule]) -> str | None:
    """Return what the last rule that matches a path calls it; None if it is to be read."""
    for what, base, spec in reversed(rules):
        excluded = spec.check_file(_below(path, base)).include
        if excluded is not None:
            return what if excluded else None
    return None


def _below(path: str, base: str) -> str:
    return path[len(base.rstrip(os.sep)) + 1 :]


def patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Compile patterns as .gitignore writes them."""
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise BertsmithError(f"a pattern is not one of .gitignore: {error}") from None


def _rules_above(root: Path) -> list[Rule]:
    """The rules of the .gitignore files above a folder of a git repository."""
    above = [root, *root.parents]
    top = next((depth for depth, folder in enumerate(above) if (folder / ".git").exists()), 0)
    folders = [folder for folder in reversed(above[1 : top + 1]) if (folder / IGNORE).is_file()]
    rules = [_ignore_file(folder) for folder in folders]
    ignored = left_out(f"{root}{os.sep}", rules) is not None
    return [] if ignored else rules  # a folder that is named is read, though git ignores it


def _ignore_file(folder: Path) -> Rule:
    """The rules of a .gitignore file; lines that git does not understand are skipped."""
    valid, lines = [], list[str]()
    with suppress(OSError):
        lines = (folder / IGNORE).read_text("utf-8", "replace").splitlines()
    for line in lines:
        with suppress(BertsmithError):
            patterns([line])
            valid.append(line)
    return "files and folders of .gitignore", str(folder), patterns(valid)
