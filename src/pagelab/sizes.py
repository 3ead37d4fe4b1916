"""Parses sizes (binary units), times and lists of numbers: ``64K``, ``1 GiB``, ``90s``, ``1..64``."""

from __future__ import annotations

import re

from pagelab.errors import BadInputError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h)\s*")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float | None:
    """Seconds of ``90s``, ``500ms``, ``2min`` or ``1h``; None if the text is no number with a unit."""
    found = _TIME.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]


def size_bytes(value: object, where: str) -> int:
    """Bytes of ``65536``, ``"64K"``, ``"1.5 MiB"``; errors name ``where``, a flag or a key.

    Raises :class:`BadInputError` if the value is no size, or no whole number of bytes.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadInputError(f"{where} {value}: not a size; allowed: a number of bytes, or with K, M, G or T")
    whole, _, part = str(match[1]).partition(".")
    scaled = int(whole + part) << _SHIFT[match[2].upper()]
    parts: int = 10 ** len(part)
    bytes_, rest = divmod(scaled, parts)
    if rest:
        raise BadInputError(f"{where} {value}: not a whole number of bytes; allowed: such as 1536K or 1.5M")
    return bytes_


def numbers(text: str, where: str) -> list[int]:
    """``1,2,4`` or ``1..256`` (doubling from the first to the last), or both. Raises :class:`BadInputError`."""
    found = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise BadInputError(
                f"{where} {text}: {part.strip()!r} is not a number; allowed: 1,2,4 or 1..256 (doubling)"
            )
        found.append(int(first))
        while dots and 0 < found[-1] * 2 <= int(last):
            found.append(found[-1] * 2)
    return found
