"""Roles of columns: found by the names that a person gave, and by known names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from bertsmith.data.tables import Table, sample, shown
from bertsmith.errors import BertsmithError, setting_name

YES_NO = {"true", "false", "yes", "no", "0", "1", "t", "f", "y", "n"}


def plain(name: str) -> str:
    """A column's name as known names are spelled: small letters, no spaces."""
    return re.sub(r"[\s-]+", "_", name[:200].strip().lower())


class Finder:
    """Finds columns of one table, by what a person named and by the names that are known."""

    def __init__(
        self, table: Table, given: Mapping[str, str], roles: Mapping[str, Sequence[str]]
    ) -> None:
        self.table, self.given, self.roles = table, given, roles
        self.by_plain: dict[str, str] = {}
        for name in table.names:
            self.by_plain.setdefault(plain(name), name)
        self.columns: dict[str, str] = {}  # role → column, as it is reported
        self.used: set[str] = set()

    def named(self, role: str) -> str | None:
        """The column that a person named for this role."""
        name = self.given.get(role)
        if name is None:
            return None
        column = name if name in self.table.names else self.by_plain.get(plain(name))
        if column is not None:
            return self.note(role, column)
        near = get_close_matches(name[:100], self.table.names[:1000], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        fault = f"{self.table.path}: no column {name[:60]!r} for the {role}"
        raise BertsmithError(f"{fault}; it has {shown(self.table.names)}{hint}")

    def known(self, role: str) -> str | None:
        """The column that was named, or the first known one, or None."""
        name = self.named(role) or next(iter(self.candidates(role)), None)
        return name and self.note(role, name)

    def candidates(self, role: str) -> list[str]:
        """The columns that are not used yet whose names fit a role, the likeliest first."""
        columns = (self.by_plain.get(name) for name in self.roles[role])
        return [column for column in columns if column and column not in self.used]

    def needed(self, role: str) -> str:
        """The column for a role, or an error that says how to name it."""
        name = self.known(role)
        if name is None:
            what = f"its columns are {shown(self.table.names)}"
            if not self.table.header:
                count = len(self.table.names)
                what = f"the first line is no header that is known, so they are 1 to {count}"
            option = setting_name("columns", {role: "NAME"}, f"--column {role}=NAME")
            fault = f"{self.table.path}: cannot tell which column holds the {role}"
            raise BertsmithError(f"{fault}: {what}; name it with {option}")
        return name

    def peek(self, role: str) -> str | None:
        """The column that a role would have if no other had one yet; it stays free."""
        return self.fresh().known(role)

    def fresh(self) -> "Finder":
        """A finder of the same table that has found nothing yet."""
        return Finder(self.table, self.given, self.roles)

    def numbered(self, words: Iterable[str]) -> list[str]:
        """Columns such as ending0, ending1, ... of the first such word, in numeric order."""
        for word in words:
            pattern = re.compile(rf"{word}_?([0-9]{{1,3}})")
            matches = ((pattern.fullmatch(key), name) for key, name in self.by_plain.items())
            columns = sorted((int(match[1]), name) for match, name in matches if match)
            if len(columns) > 1:
                return [name for _, name in columns]
        return []

    def several(self, role: str) -> list[str]:
        """The columns of a role: its own, and numbered ones such as negative_1, negative_2."""
        first = self.known(role)
        columns = [first] if first else []
        if role not in self.given:
            pattern = re.compile(rf"({'|'.join(map(re.escape, self.roles[role]))})_?[0-9]{{1,4}}")
            free = {key: name for key, name in self.by_plain.items() if name not in self.used}
            columns += [name for key, name in free.items() if pattern.fullmatch(key)]
        if columns and columns != [first]:
            self.note(role, ", ".join(columns), *columns)
        return columns

    def note(self, role: str, shown: str, *columns: str) -> str:
        """Remember which column (or which columns, by what they are shown as) a role has."""
        self.columns[role] = shown
        self.used.update(columns or (shown,))
        return shown

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns that no role has."""
        return tuple(name for name in self.table.names if name not in self.used)


def is_list(table: Table, name: str) -> bool:
    """Does a column hold lists?"""
    values = sample(table, name, 20)
    return bool(values) and all(
        isinstance(value, list | tuple)
        or (isinstance(value, str) and re.fullmatch(r"\[.*\]", value.strip(), re.DOTALL))
        for value in values
    )


def says_yes_or_no(table: Table, column: str) -> bool:
    """Does a column hold only true and false, or yes and no?"""
    values = {str(value).strip().lower() for value in sample(table, column)}
    return bool(values) and values <= YES_NO
