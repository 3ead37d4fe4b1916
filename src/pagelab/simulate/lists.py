"""Lists of numbers as users write them."""

from __future__ import annotations

from ..errors import BadInputError


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


def coloring(text: str, where: str) -> tuple[str, list[int]]:
    """``modulo``, ``pid-hashed`` or ``xor:0x1041,0x2082``: the name and the masks. Raises :class:`BadInputError`."""
    name, _, rest = text.partition(":")
    try:
        return name, [int(mask, 0) for mask in rest.split(",")] if rest else []
    except ValueError as error:
        raise BadInputError(f"{where} {text}: masks are numbers, such as xor:0x1041,0x2082") from error
