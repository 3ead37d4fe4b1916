"""Replaces ``{name}`` in commands, environments, set-up lines and policies.

``{size}`` is replaced if ``size`` is a parameter (or ``here``, ``out``, ``python``), and is an error otherwise: a typo
must not reach the program. ``{{size}}`` becomes ``{size}``. ``${HOME}`` and all other braces stay unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

_PLACE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NAMED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NESTED = re.compile(r"\$\(|`|(?:^|\s)#", re.MULTILINE)
"""A command in a command, or a comment."""

HERE = "here"
"""Name for the directory of study.toml."""
OUT = "out"
"""Name for the study directory, where the store is."""
PYTHON = "python"
"""Name for the Python interpreter that runs pagelab."""
BUILT_IN = (HERE, OUT, PYTHON)


def names_in(text: str) -> set[str]:
    """The names in braces in ``text``, including built-in ones."""
    return {found[2] for found in _PLACE.finditer(text) if found[2]}


def substitute(text: str, values: Mapping[str, object]) -> str:
    """``text`` with every ``{name}`` replaced. Raises KeyError for a name that ``values`` does not have."""

    def replace(found: re.Match[str]) -> str:
        return "{" + found[1] + "}" if found[1] else shown(values[found[2]])

    return _PLACE.sub(replace, text)


def substitute_shell(text: str, values: Mapping[str, object]) -> str:
    """As :func:`substitute`, for a line of the shell: the paths of the built-in names are part of one word each.

    Blanks and quotes in a path are protected, in quotes and outside. Parameters may be several words, or quotes. A text
    with a command in a command, or with a comment, gets the paths as they are: quotes nest there, or are none.
    """
    if _NESTED.search(text):
        return substitute(text, values)
    done, at, quote = "", 0, ""
    for found in _PLACE.finditer(text):
        before = text[at : found.start()]
        at, quote = found.end(), _open_quote(before, quote)
        value = substitute(found[0], values)
        done += before + (_protected(value, quote) if found[2] in BUILT_IN else value)
    return done + text[at:]


def _open_quote(text: str, quote: str) -> str:
    """The quote that is open behind ``text``, before which ``quote`` was."""
    escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote


def _protected(value: str, quote: str) -> str:
    if quote == "'":
        return value.replace("'", "'\\''")
    return re.sub(r'(["$`\\])', r"\\\1", value) if quote else shlex.quote(value)


def literal(text: str) -> str:
    """``text`` with its braces doubled where needed, so that :func:`substitute` returns ``text``."""
    return _NAMED.sub(r"{{\1}}", text)


def shown(value: object) -> str:
    """A parameter's value as it appears in commands and labels."""
    return str(value).lower() if isinstance(value, bool) else str(value)
