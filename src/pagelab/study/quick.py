"""The quick form of a study: its ``[quick]`` table laid over the rest, as a study of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

from .errors import Problem, SpecError
from .toml_text import dumps


def quick_text(text: str, path: Path) -> str:
    """study.toml of the quick form; comments are lost. Raises :class:`SpecError` where the study has none.

    ``text`` must have been read without errors.
    """
    data = tomllib.loads(text)
    if "quick" not in data:
        raise SpecError(path, [Problem("quick", "this study has no [quick] table, and so no --quick form")])
    quick = data.pop("quick")
    parameters = {**data.get("parameters", {}), **quick.pop("parameters", {})}
    data |= quick
    data["name"] = f"{data['name']}-quick"
    if parameters:
        data["parameters"] = parameters
    return f"# The quick form of {path.name}, as run.\n\n{dumps(data)}"
