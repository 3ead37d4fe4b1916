"""Replaces ``{name}`` in commands, environments, set-up lines and policies.

``{size}`` is replaced if ``size`` is a parameter (or ``here``, ``out``, ``python``), and is an error otherwise: a typo
must not reach the program. ``{{size}}`` becomes ``{size}``. ``${HOME}`` and all other braces stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .shell import open_quotes, protected

_PLACE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NAMED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")

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

    Blanks and quotes in a path are protected, in quotes, outside, and in a command in a command (``$(…)``). Parameters
    may be several words, or quotes. Nothing is protected in comments, and behind a backquote or ``<<``. A
    pattern of ``case`` in ``$(…)`` needs both its parentheses.
    """
    quotes, done, at = open_quotes(text), "", 0
    for found in _PLACE.finditer(text):
        value, quote = substitute(found[0], values), quotes[found.start()]
        done += text[at : found.start()]
        done += value if quote is None or found[2] not in BUILT_IN else protected(value, quote)
        at = found.end()
    return done + text[at:]


def literal(text: str) -> str:
    """``text`` with its braces doubled where needed, so that :func:`substitute` returns ``text``."""
    return _NAMED.sub(r"{{\1}}", text)


def shown(value: object) -> str:
    """A parameter's value as it appears in commands and labels."""
    return str(value).lower() if isinstance(value, bool) else str(value)
