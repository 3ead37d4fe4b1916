"""A figure of a report: specification, caption, and a description for readers who cannot see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pagelab.charts import theme
from pagelab.terminal import plain_values


@dataclass(frozen=True)
class Figure:
    id: str
    """The figure's name, also of its files."""
    number: int
    section: str
    title: str
    caption: str
    alternative: str
    """The figure in words, for readers who cannot see it."""
    draw: Callable[[theme.Width], dict[str, Any]]

    def for_page(self) -> dict[str, Any]:
        """The specification for the page: as wide as its place there, in the page's colours."""
        return _plain(self.draw("container"))

    def for_paper(self) -> dict[str, Any]:
        """The specification for paper: with a fixed width and light colours."""
        return _plain(theme.on_paper(self.draw(theme.PAPER_WIDTH)))


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification without control characters: names come from outside, and XML allows no such characters."""
    shown: dict[str, Any] = plain_values(spec)
    return shown


def slug(text: str, used: set[str]) -> str:
    """*text* as a file name that is not in *used*; imported names can contain anything."""
    base = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip("-.")[:60] or "x"
    name, number = base, 2
    while name in used:
        name, number = f"{base}-{number}", number + 1
    used.add(name)
    return name
