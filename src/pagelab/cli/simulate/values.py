"""Values of options that several simulators share: sizes and lists of them."""

from __future__ import annotations

import re

from pagelab.errors import BadInputError

_SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size_bytes(text: str, flag: str) -> int:
    """``64M``, ``4K``, ``1GiB`` in bytes; raises :class:`BadInputError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{flag} {text}: not a size; allowed: a number of bytes, or with K, M, G or T")
    return int(match[1]) << _SHIFT[match[2].upper()]


def sizes_bytes(text: str, flag: str) -> list[int]:
    """A list of sizes with commas between."""
    return [size_bytes(part, flag) for part in text.split(",")]
