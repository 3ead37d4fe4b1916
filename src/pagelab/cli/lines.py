"""Lines and tables of the summary of a run, for standard error: as rich draws them, without importing rich.

A cell is a text, or a (text, style) pair; a style is a word of :data:`_CODES` or several.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence

from pagelab import terminal

Cell = str | tuple[str, str]
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_NOT_COLOURS = {"bold", "dim"}


def styles() -> frozenset[str]:
    """The styles that standard error can show: none if it is no terminal (and ``FORCE_COLOR`` is not set) or ``TERM``
    is ``dumb`` or ``unknown``; no colours if ``NO_COLOR`` is set.
    """
    shown = bool(os.environ.get("FORCE_COLOR")) or sys.stderr.isatty()
    if not shown or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return frozenset()
    return frozenset(_NOT_COLOURS if os.environ.get("NO_COLOR") else _CODES)


def width() -> int:
    """Number of columns: ``COLUMNS``, or the terminal's, or 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def line(*cells: Cell) -> str:
    """The cells, one after the other."""
    return "".join(_styled(cell, 0, 0) for cell in cells).rstrip() + "\n"


def paragraph(text: str, style: str) -> str:
    """Lines of at most the terminal's width, broken between words."""
    import textwrap

    parts = textwrap.wrap(terminal.plain_lines(text), width(), break_on_hyphens=False, replace_whitespace=False)
    return "".join(line((part, style)) for part in parts)


def table(rows: Sequence[Sequence[Cell]], justify: str, title: str | None = None) -> str:
    """Rows of one length, two spaces apart; ``justify`` has ``<`` or ``>`` for each column. The first row is dim.

    A line may be longer than the terminal is wide.
    """
    widths = [max(columns_of(_text(cell)) for cell in column) for column in zip(*rows, strict=True)]
    found = [] if title is None else [line(title)]
    for number, row in enumerate(rows):
        cells = [
            _styled(_with(cell, "dim") if number == 0 else cell, wide if side == ">" else 0, wide)
            for cell, wide, side in zip(row, widths, justify, strict=True)
        ]
        found.append("  ".join(cells).rstrip() + "\n")
    return "".join(found)


def _text(cell: Cell) -> str:
    return terminal.plain(cell if isinstance(cell, str) else cell[0])


def _with(cell: Cell, style: str) -> Cell:
    return (cell, style) if isinstance(cell, str) else cell


def _styled(cell: Cell, before: int, wide: int) -> str:
    """The cell, padded to ``wide`` columns: on the left if ``before`` is above 0, else on the right."""
    text = _text(cell)
    pad = " " * (wide - columns_of(text))
    allowed = styles() if not isinstance(cell, str) else frozenset()
    codes = [] if isinstance(cell, str) else [_CODES[word] for word in cell[1].split() if word in allowed]
    shown = f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text else text
    return pad + shown if before else shown + pad


def columns_of(text: str) -> int:
    """Number of columns that the text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
