"""Descriptions of processors: caches and translation hardware, from TOML files or bundled presets.

A description is a TOML file with the tables ``[cache]`` and ``[tlb]``, either of which may be absent; sizes are
written as
everywhere in pagelab (``32K``, ``1.5M``). ``docs/simulate-cache.md`` and ``docs/simulate-tlb.md`` have every key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import BadInputError
from ..sizes import size_bytes

_SIZES = {"size", "bytes", "line", "line_bytes", "spans", "page", "page_bytes"}
"""Keys whose values may be written as sizes, besides the lists ``pages`` and ``parts``."""
_RENAMED = {"size": "bytes", "line": "line_bytes", "page": "page_bytes", "level": "levels"}
"""Words of TOML files, and the native part's names for them."""


@dataclass(frozen=True)
class Source:
    """Sources of a preset's numbers; ``verified`` is False without a document.

    ``second_hand``: neither from the vendor nor from the processor itself (CPUID), but from encyclopedias, the press,
    measurements of others. ``calibrated``: cycles to read a table entry, fitted to walks that were timed.
    """

    what: str
    where: str
    verified: bool
    second_hand: bool = False
    calibrated: bool = False


@dataclass(frozen=True)
class Processor:
    """A description, checked for its shape only; ``caches`` and ``tlb`` go to the native part as they are."""

    name: str
    caches: Mapping[str, Any] | None
    tlb: Mapping[str, Any] | None
    sources: tuple[Source, ...] = field(default=())

    @property
    def calibrated(self) -> bool:
        """Whether its cycles to read a table entry were fitted to walks of a machine."""
        return any(one.calibrated for one in self.sources)

    def needed(self, part: str) -> Mapping[str, Any]:
        """``caches`` or ``tlb``. Raises :class:`BadInputError` where the description has none."""
        found: Mapping[str, Any] | None = getattr(self, part)
        if found is None:
            table = {"caches": "cache", "tlb": "tlb"}[part]
            raise BadInputError(f"{self.name}: the description has no table [{table}]")
        return found


def presets() -> list[str]:
    """Names of the processors that come with pagelab."""
    folder = resources.files(__package__) / "processors"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str | Path | Processor | Mapping[str, Any]) -> Processor:
    """A processor by its preset's name, the path of a TOML file, or as such a file's contents.

    Raises :class:`BadInputError` with the file and what is allowed.
    """
    if isinstance(name, Processor):
        return name
    if isinstance(name, Mapping):
        return _processor(name, str(name.get("name", "description")))
    if str(name) in presets():
        file = resources.files(__package__) / "processors" / f"{name}.toml"
        return _processor(tomllib.loads(file.read_text(encoding="utf-8")), str(name))
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise BadInputError(f"no processor is called {name}; allowed: {', '.join(presets())}, or a TOML file")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror} (errno {error.errno})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: {error}") from error
    return _processor(document, str(path))


def needs_references(described: Processor) -> bool:
    """Whether the trace must have references: page runs do not suffice if loads and stores have separate entries."""
    tables = described.needed("tlb")
    arrays = [*tables.get("first", []), *tables.get("second", [])]
    return any(array.get("serves", "data") in ("load", "store") for array in arrays)


def _processor(document: Mapping[str, Any], where: str) -> Processor:
    unknown = set(document) - {"name", "cache", "tlb", "source"}
    if unknown:
        raise BadInputError(f"{where}: unknown {', '.join(sorted(unknown))}; allowed: name, cache, tlb, source")
    name = str(document.get("name", Path(where).stem))
    parts: dict[str, dict[str, Any] | None] = {}
    for part in ("cache", "tlb"):
        table = document.get(part)
        if table is not None and not isinstance(table, Mapping):
            raise BadInputError(f"{where}: {part} is a table")
        parts[part] = None if table is None else {"name": name, **_native(table, f"{where}: {part}")}
    sources = tuple(
        Source(
            str(one.get("what", "")),
            str(one.get("where", "")),
            bool(one.get("verified", False)),
            bool(one.get("second_hand", False)),
            bool(one.get("calibrated", False)),
        )
        for one in document.get("source", [])
    )
    return Processor(name, parts["cache"], parts["tlb"], sources)


def _native(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table with sizes as numbers and the native part's names."""
    return {_RENAMED.get(key, key): _value(key, value, f"{where}.{key}") for key, value in table.items()}


def _value(key: str, value: Any, where: str) -> Any:
    if key == "level" and not isinstance(value, list):
        raise BadInputError(f"{where}: write each level as a table [[cache.level]]")
    if key == "pages" and isinstance(value, list):
        return [size_bytes(one, where) for one in value]
    if key == "parts" and isinstance(value, list):
        return [[size_bytes(one, where) for one in part] for part in value]
    if key == "hash" and isinstance(value, list):
        return [int(one, 0) if isinstance(one, str) else one for one in value]
    if key in _SIZES:
        return size_bytes(value, where)
    if isinstance(value, Mapping):
        return _native(value, where)
    if isinstance(value, list):
        return [_native(one, f"{where}[{at}]") if isinstance(one, Mapping) else one for at, one in enumerate(value)]
    return value


def colours(caches: Mapping[str, Any]) -> int:
    """Page colours of the last level whose sets are chosen by plain address bits above the page offset; at least 1."""
    line = int(caches.get("line_bytes", 64))
    for level in reversed(caches["levels"]):
        if not level.get("hash"):
            return max(1, int(level["bytes"]) // int(level["ways"]) // 4096) if line else 1
    return 1
