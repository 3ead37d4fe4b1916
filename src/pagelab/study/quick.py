"""Makes the quick form of a study: a study of its own, in which the ``[quick]`` table replaces the other keys."""

from __future__ import annotations

import tomllib
from pathlib import Path

from .errors import Problem, SpecError
from .toml_text import dumps

QUICK = "# The quick form of "
"""The beginning of a quick form's text."""


def quick_text(text: str, path: Path) -> str:
    """The study.toml of the quick form, without comments. Raises :class:`SpecError` where the study has no quick form.

    ``text`` must be a valid study.toml.
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
