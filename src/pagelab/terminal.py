"""Prints pagelab's output for people; no other module writes to a terminal or a log.

Names of processes, files, measurements and conditions are untrusted: a measured program or the author of an imported
file chooses them. :func:`plain` makes characters visible that would move the cursor, change a title or reverse text.
:func:`console` also prints square brackets unchanged, which rich would read as markup. The launcher has the same rules
(``crates/launch/src/words.rs``).
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
from collections.abc import Sequence


def _shown(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


_CONTROLS = [
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xD800, 0xE000),
]
_PLAIN = {code: _shown(code) for code in _CONTROLS}
_PLAIN_LINES = {code: shown for code, shown in _PLAIN.items() if chr(code) not in "\n\t"}


def plain(text: str) -> str:
    """*text* with every control character, line ends included, as an escape (``\\x1b``, ``\\u202e``)."""
    return text.translate(_PLAIN)


def plain_lines(text: str) -> str:
    """As :func:`plain`, but line ends and tabs stay. JSON text stays equivalent."""
    return text.translate(_PLAIN_LINES)


def plain_values(data: Any) -> Any:
    """JSON-like data with every text in it as :func:`plain_lines` shows it."""
    if isinstance(data, str):
        return plain_lines(data)
    if isinstance(data, dict):
        return {plain_values(key): plain_values(value) for key, value in data.items()}
    return [plain_values(value) for value in data] if isinstance(data, list | tuple) else data


_TYPED = str.maketrans(
    {"–": "-", "−": "-", "×": "x", "·": ".", "…": "...", "→": "->", "µ": "u", "±": "+-", "≥": ">=", "≤": "<=", "’": "'"}
    | {"“": '"', "”": '"', "│": "|", "┊": ":", "─": "-", "━": "-", "●": "o", "τ": "tau"}
)
"""Signs that a locale may lack → the characters to type instead."""
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def spoken(text: str, encoding: str | None) -> str:
    """*text* in the characters of ``encoding``: other signs as one types them (``10^-5``), the rest as ``?``."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: "^" + found[0].translate(_RAISED), text).translate(_TYPED)
        return text.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8")
    return text


def tolerate() -> None:
    """Keeps output of libraries (help texts, progress bars) from failing on a sign that the locale lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write a message (standard output, or with ``err`` standard error)."""
    stream = sys.stderr if err else sys.stdout
    stream.write(spoken(plain_lines(text), stream.encoding) + ("\n" if nl else ""))
    stream.flush()


def say(text: str) -> None:
    """Write to standard error, without an end of line."""
    sys.stderr.write(spoken(plain_lines(text), sys.stderr.encoding))


def only_json() -> None:
    """Reserves standard output for this process's own text from now on. Libraries, and programs that it starts, which
    inherit the descriptor, write to standard error instead.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.set_inheritable(kept, False)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(kept, "w", encoding="utf-8")


def console(**options: Any) -> Console:
    """A console that prints all text literally: no markup, and no control characters but its own."""
    from rich.console import Console, ConsoleOptions, RenderableType, RenderHook, RenderResult

    class Shown:
        def __init__(self, renderable: RenderableType) -> None:
            self.renderable = renderable

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for segment in console.render(self.renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield segment._replace(text=plain_lines(segment.text))

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            from rich.control import Control

            return [one if isinstance(one, Control) else Shown(one) for one in renderables]

    made = Console(**{"markup": False, **options})
    made.push_render_hook(Hook())
    return made


class Shown:
    """Base class of results that are shown as a title and a few rows of (name, value)."""

    def _title(self) -> str:
        raise NotImplementedError

    def _rows(self) -> Sequence[tuple[str, str]]:
        raise NotImplementedError

    def __str__(self) -> str:
        rows = [(plain(name), plain(value)) for name, value in self._rows()]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([plain(self._title()), *(f"  {name:<{width}}  {value}" for name, value in rows)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the result in a terminal's IPython."""
        printer.text("…" if cycle else str(self))

    def _repr_html_(self) -> str:
        """Shows the result in Jupyter."""
        from html import escape

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(plain(name))}</th>"
            f"<td style='text-align:left'>{escape(plain(value))}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>{escape(plain(self._title()))}</caption>{cells}</table>"
