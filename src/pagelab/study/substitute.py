"""Replaces ``{name}`` in commands, environments, set-up lines and policies.

``{size}`` is replaced if ``size`` is a parameter (or ``here``, ``out``, ``python``), and is an error otherwise: a typo
must not reach the program. ``{{size}}`` becomes ``{size}``. ``${HOME}`` and all other braces stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def literal(text: str) -> str:
    """``text`` with its braces doubled where needed, so that :func:`substitute` returns ``text``."""
    return _NAMED.sub(r"{{\1}}", text)


def shown(value: object) -> str:
    """A parameter's value as it appears in commands and labels."""
    return str(value).lower() if isinstance(value, bool) else str(value)
