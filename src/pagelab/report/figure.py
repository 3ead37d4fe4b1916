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
    """Also the name of its files."""
    number: int
    section: str
    title: str
    caption: str
    alternative: str
    """The figure in words."""
    draw: Callable[[theme.Width], dict[str, Any]]

    def for_page(self) -> dict[str, Any]:
        """As wide as its place on the page, in the page's colours."""
        return _plain(self.draw("container"))

    def for_paper(self) -> dict[str, Any]:
        """Fixed width, light colours."""
        return _plain(theme.on_paper(self.draw(theme.PAPER_WIDTH)))


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    """Names are other people's words, and a drawing with control characters in it is no XML."""
    shown: dict[str, Any] = plain_values(spec)
    return shown


def slug(text: str, used: set[str]) -> str:
    """*text* as a file name, unique among *used*; imported names can be anything."""
    base = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip("-.")[:60] or "x"
    name, number = base, 2
    while name in used:
        name, number = f"{base}-{number}", number + 1
    used.add(name)
    return name
