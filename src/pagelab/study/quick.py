"""The quick form of a study: its ``[quick]`` table replaces the other keys, in a study of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

from .errors import Problem, SpecError
from .toml_text import dumps

QUICK = "# The quick form of "
"""What the text of one begins with."""


def quick_text(text: str, path: Path) -> str:
    """study.toml of the quick form; comments are lost. Raises :class:`SpecError` where the study has none.

    ``text`` must have been read without errors.
    """
    data = tomllib.loads(text)
    if "quick" not in data:
        raise SpecError(path, [Problem("quick", "this study has no [quick] table, and so no --quick form")])
    quick = data.pop("quick")
    parameters = {**data.get("parameters", {}), **quick.pop("parameters", {})}
    if "executions" in quick:
        data.pop("minutes", None)
    data |= quick
    data["name"] = f"{data['name']}-quick"
    if parameters:
        data["parameters"] = parameters
    return f"{QUICK}{path.name}, as run.\n\n{dumps(data)}"
