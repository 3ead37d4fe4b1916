"""Two functions that tomllib lacks: the line of a key, and the text of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Location = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\"' -]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_-]+|\"[^\"]+\")(\s*\.\s*[A-Za-z0-9_-]+)*\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class LineIndex:
    """Finds the line of a key in TOML text.

    A line scanner, not a parser: it knows headers, arrays of tables, and keys at the start of a line, which is the
    usual form of a study. For a key that it does not find (inside an inline table) it gives the line of the nearest
    enclosing key or header.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Location, int] = {}
        counts: dict[tuple[str, ...], int] = {}
        table: Location = ()
        for number, line in enumerate(text.splitlines(), start=1):
            header = _HEADER.match(line)
            if header and "=" not in line.split("#")[0]:
                names = tuple(part.strip().strip("\"'") for part in header[2].split("."))
                table = self._table(names, header[1] == "[[", counts)
                self._lines.setdefault(table, number)
                continue
            key = _KEY.match(line)
            if key:
                self._lines.setdefault((*table, key[1].strip('"')), number)

    @staticmethod
    def _table(names: tuple[str, ...], is_array: bool, counts: dict[tuple[str, ...], int]) -> Location:
        if is_array:
            counts[names] = counts.get(names, -1) + 1
            for deeper in [other for other in counts if len(other) > len(names) and other[: len(names)] == names]:
                del counts[deeper]
        location: list[str | int] = []
        for depth in range(1, len(names) + 1):
            location.append(names[depth - 1])
            if names[:depth] in counts:
                location.append(counts[names[:depth]])
        return tuple(location)

    def line(self, location: Location) -> int | None:
        """The line of the key at ``location`` (names and array indices, as in pydantic's errors), or of its table."""
        for end in range(len(location), 0, -1):
            found = self._lines.get(location[:end])
            if found is not None:
                return found
        return None


def dotted(location: Location) -> str:
    """A location as text: ``("workload", 1, "command")`` is ``workload[1].command``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def dumps(table: Mapping[str, object]) -> str:
    """``table`` as TOML: lists of tables directly in it as ``[[key]]`` at the end, everything deeper inline."""
    lines: list[str] = []
    arrays: list[str] = []
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            arrays.extend(f"\n[[{_key(key)}]]\n{_lines(item)}" for item in value)
        else:
            lines.append(f"{_key(key)} = {_value(value)}\n")
    return "".join(lines + arrays)


def _lines(table: Mapping[str, object]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04X}", escaped) + '"'


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"cannot write a {type(value).__name__} as TOML")
