"""What a strategy that places frames is, for texts. The strategies are listed in :mod:`pagelab.contract.strategies`,
which is generated from ``crates/abi``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """One strategy."""

    name: str
    """Its word in policies and records."""
    summary: str
    """What it does, as part of a sentence."""
    example: str
    """How help texts show it."""
    parameters: tuple[tuple[str, str], ...]
    """What it can be told, beside what every strategy takes: word, and its values with what holds without it."""
