"""Results as short tables: what ``print`` and a notebook show of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from pagelab.terminal import plain


class Shown:
    """For results that say what they are in a title and a few rows of (name, value)."""

    def _title(self) -> str:
        raise NotImplementedError

    def _rows(self) -> Sequence[tuple[str, str]]:
        raise NotImplementedError

    def __str__(self) -> str:
        rows = [(plain(name), plain(value)) for name, value in self._rows()]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([plain(self._title()), *(f"  {name:<{width}}  {value}" for name, value in rows)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython in a terminal."""
        printer.text("…" if cycle else str(self))

    def _repr_html_(self) -> str:
        """Jupyter."""
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(plain(name))}</th>"
            f"<td style='text-align:left'>{escape(plain(value))}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>{escape(plain(self._title()))}</caption>{cells}</table>"
