"""Reads TOML into a pydantic model; every error names file, line, key and the allowed values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..spelling import meant_of
from .errors import Problem, SpecError
from .toml_text import LineIndex, Location, dotted

Model = TypeVar("Model", bound=BaseModel)
Tables = Mapping[tuple[str, ...], type[BaseModel]]
"""Names on a table's path → the table's model, whose keys an error lists as allowed where a key is unknown."""


def read_text(path: Path, instead: str) -> str:
    """The text of ``path``. Raises :class:`SpecError`, which names ``instead`` as the next command."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SpecError(path, [Problem("", f"cannot read: {reason}; {instead}")]) from None


def parse(text: str, path: Path | str, model: type[Model], tables: Tables) -> Model:
    """The model of ``text``; ``path`` is only named in errors. Raises :class:`SpecError` with every problem found."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        raise SpecError(path, [Problem("", f"not TOML: {error}", int(found[1]) if found else None)]) from None
    return validate(data, path, model, tables, LineIndex(text))


def validate(
    data: Mapping[str, Any], path: Path | str, model: type[Model], tables: Tables, lines: LineIndex | None = None
) -> Model:
    """The model of a parsed value, or of one that was never TOML; otherwise like :func:`parse`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise SpecError(path, [_problem(item, lines or LineIndex(""), tables) for item in error.errors()]) from None


def _problem(item: Any, lines: LineIndex, tables: Tables) -> Problem:
    location: Location = tuple(part for part in item["loc"] if not _is_noise(part))
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        table = tuple(part for part in location[:-1] if isinstance(part, str))
        model = tables.get(table)
        message = "unknown key"
        if model:
            # Keys are written as in study.toml: a field with another name in Python has an alias.
            keys = [field.alias or name for name, field in model.model_fields.items()]
            message += meant_of(str(item["loc"][-1]), keys)
    elif item["type"] == "missing":
        message = "missing"
    elif item["type"] not in ("value_error", "literal_error"):
        message = f"{message}, not {item['input']!r}"
    return Problem(dotted(location), message, lines.line(location))


def _is_noise(part: str | int) -> bool:
    """Whether a part of an error's location is pydantic's own (a branch of a union, the kind of a key), not a key."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool") or "[" in part or "(" in part)
