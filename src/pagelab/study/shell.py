"""Tells whether a command line is only words, or needs a shell."""

from __future__ import annotations

import re

_SHELL = re.compile(r"[|&;<>$`*?~\n]|\{[^}]*,[^}]*\}|(?:^|\s)#")
"""What means more than its letters to a shell, where no quotes stand around it."""
_IN_DOUBLE = "$`"
"""What means more inside double quotes too; there shlex keeps a backslash before it, which a shell removes."""


def needs_shell(command: str) -> bool:
    """Whether only a shell can run ``command``: pipes, redirections, variables, patterns, comments, several lines.

    What is quoted is literal, but for ``$`` and the backquote in double quotes. An open quote is left to
    :func:`shlex.split`, which refuses it.
    """
    return _SHELL.search(_without_quoted(command.strip())) is not None


def _without_quoted(command: str) -> str:
    """``command`` with a ``_`` for each character that is literal, as it is quoted."""
    shown, quote, escaped = [], "", False
    for char in command:
        if escaped:
            shown.append("\n" if char == "\n" else char if quote and char in _IN_DOUBLE else "_")
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char == quote or (char in "'\"" and not quote):
            quote = "" if quote else char
            shown.append("_")
        elif quote:
            shown.append(char if quote == '"' and char in _IN_DOUBLE else "_")
        else:
            shown.append(char)
    return "".join(shown)
