"""Suggestions for misspelt words: a command, an option, a key, a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 3
_NEAR, _AS_NEAR = 0.6, 0.2
"""The least similarity of a name, and how much less than the nearest name's it may be."""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known names that begin with the word, or differ from it in a few letters."""
    names = list(known)
    bare = word.lstrip("-")
    begins = [name for name in names if len(bare) > 1 and name.lstrip("-").startswith(bare)]
    by_bare = {name.lstrip("-"): name for name in names}
    near = [by_bare[found] for found in _as_near(bare, difflib.get_close_matches(bare, by_bare, _MOST, _NEAR))]
    return list(dict.fromkeys(begins + near))[:_MOST]


def _as_near(word: str, found: list[str]) -> list[str]:
    """Those of the names, the nearest first, that are almost as near as the first."""
    alike = [difflib.SequenceMatcher(None, name, word).ratio() for name in found]
    return [name for name, share in zip(found, alike, strict=True) if share >= alike[0] - _AS_NEAR]


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?``, or an empty text if no name is near."""
    found = nearest(word, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def meant_of(word: str, known: Iterable[str]) -> str:
    """``; did you mean NAME? Allowed: …``, or only the allowed names."""
    names = sorted(known)
    found = meant(word, names)
    return f"{found} Allowed: {', '.join(names)}" if found else f"; allowed: {', '.join(names)}"
