"""Prints pagelab's output for users; all output to a terminal or a log goes through this module.

Names of processes, files, measurements and conditions are untrusted: a measured program chooses them, or the author of
an imported file. :func:`plain` makes characters visible that would move a cursor, change a title or reverse text.
:func:`console` also prints square brackets unchanged (rich would read them as its own markup). The launcher does the
same (``crates/launch/src/words.rs``).
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
from contextlib import suppress

from pagelab.errors import MachineError


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
    """*text* with every control character, including line ends, as an escape (``\\x1b``, ``\\u202e``)."""
    return text.translate(_PLAIN)


def plain_lines(text: str) -> str:
    """As :func:`plain`, but line ends and tabs stay. JSON stays the same JSON."""
    return text.translate(_PLAIN_LINES)


def plain_values(data: Any) -> Any:
    """JSON-like data with :func:`plain_lines` applied to every text in it."""
    if isinstance(data, str):
        return plain_lines(data)
    if isinstance(data, dict):
        return {plain_values(key): plain_values(value) for key, value in data.items()}
    return [plain_values(value) for value in data] if isinstance(data, list | tuple) else data


_TYPED = str.maketrans(
    {"–": "-", "−": "-", "×": "x", "·": ".", "…": "...", "→": "->", "µ": "u", "±": "+-", "≥": ">=", "≤": "<=", "’": "'"}
    | {"“": '"', "”": '"', "│": "|", "┊": ":", "─": "-", "━": "-", "●": "o", "τ": "tau"}
)
"""Signs that a locale may lack → their form in ASCII."""
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def spoken(text: str, encoding: str | None) -> str:
    """*text* in the characters of ``encoding``: other signs in ASCII (``10^-5``), and the rest as ``?``."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: "^" + found[0].translate(_RAISED), text).translate(_TYPED)
        return text.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8")
    return text


_CLOSED: set[int] = set()
"""Standard streams that the caller had closed."""


def open_streams() -> None:
    """Opens each standard stream that the caller closed on /dev/null, so that no file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        with suppress(OSError):
            os.fstat(number)
            continue
        _CLOSED.add(number)
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def tolerate() -> None:
    """Lets libraries (help texts, progress bars) print signs that the locale lacks, without an error."""
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
    """Reserves standard output for this process's own text, from now on.

    Libraries, and programs that this process starts and that inherit the descriptor, write to standard error instead.
    Raises :class:`MachineError` where nobody would get the text.
    """
    if 1 in _CLOSED:
        raise MachineError("standard output is closed, and --json writes to it; name a file: > FILE")
    sys.stdout.flush()
    kept = os.dup(1)
    os.set_inheritable(kept, False)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(kept, "w", encoding="utf-8")


def console(**options: Any) -> Console:
    """A rich console that prints text unchanged: it reads no markup, and the only control characters are its own."""
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
    """Base class of results that print as a title and a few rows of (name, value)."""

    def _title(self) -> str:
        raise NotImplementedError

    def _rows(self) -> Sequence[tuple[str, str]]:
        raise NotImplementedError

    def __str__(self) -> str:
        rows = [(plain(name), plain(value)) for name, value in self._rows()]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([plain(self._title()), *(f"  {name:<{width}}  {value}" for name, value in rows)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The form in IPython in a terminal."""
        printer.text("…" if cycle else str(self))

    def _repr_html_(self) -> str:
        """The form in Jupyter."""
        from html import escape

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(plain(name))}</th>"
            f"<td style='text-align:left'>{escape(plain(value))}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>{escape(plain(self._title()))}</caption>{cells}</table>"
