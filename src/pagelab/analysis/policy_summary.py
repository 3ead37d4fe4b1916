"""Describes a policy in a few words, for readers who do not know its name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from pagelab.contract.strategies import STRATEGIES

_FETCH = {
    "demand": "pages come when they are touched, none ahead",
    "prefault": "all of a mapping’s pages come when it is made",
    "willneed": "files are read in the background as soon as they are mapped",
}
_FRAMES = {one.name: one.summary for one in STRATEGIES}


def policy_summary(policy_toml: str) -> str | None:
    """A description such as ``pages come when they are touched, none ahead``; None for a policy with page sizes only,
    without settings, or that cannot be read.
    """
    try:
        document = tomllib.loads(policy_toml)
    except tomllib.TOMLDecodeError:
        return None
    rules = document.get("rule", [])
    parts = [document, *(rule for rule in rules if isinstance(rule, dict))] if isinstance(rules, list) else [document]
    phrases = [*_known(_FRAMES, (_frames(part.get("frames")) for part in parts))]
    phrases += _known(_FETCH, (part.get("fetch") for part in parts))
    return "; ".join(phrases) or None


def _frames(value: Any) -> Any:
    """The strategy's name, from a word, a table with ``kind``, or a table of one key."""
    if not isinstance(value, dict):
        return value
    return value.get("kind") or next((key for key in value if key in _FRAMES), None)


def _known(words: dict[str, str], values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(words[value] for value in values if isinstance(value, str) and value in words))
