"""What a shell makes of a text: whether a command line is only words or needs a shell, and which quotes are open."""

from __future__ import annotations

import re
import shlex

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


def open_quotes(text: str) -> list[str | None]:
    """The quote that is open at each character of a shell's ``text``; None in comments, and where it cannot be told."""
    quotes: list[str | None] = []
    nested = [""]  # of the line and of each open parenthesis, the quote that is open in it
    before, escaped, in_comment = "", False, False
    for i, char in enumerate(text):
        quote, is_literal = nested[-1], escaped
        quotes.append(None if in_comment else quote)
        escaped = False
        if in_comment:
            in_comment = char != "\n"
        elif is_literal:
            pass
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote == "'":
            nested[-1] = "" if char == "'" else quote
        elif char == "`" or (not quote and text.startswith("<<", i)):
            return quotes + [None] * (len(text) - i)
        elif char == "(" and (not quote or before == "$"):
            nested.append("")
        elif quote:
            nested[-1] = "" if char == quote else quote
        elif char in "'\"":
            nested[-1] = char
        elif char == ")" and len(nested) > 1:
            nested.pop()
        elif char == "#" and before in ("", " ", "\t", "\n", ";", "&", "|", "("):
            in_comment = True
        before = "_" if is_literal else char
    return quotes


def protected(value: str, quote: str) -> str:
    """``value`` as the shell's text for it, where ``quote`` is open ("": none)."""
    if quote == "'":
        return value.replace("'", "'\\''")
    return re.sub(r'(["$`\\])', r"\\\1", value) if quote else shlex.quote(value)
