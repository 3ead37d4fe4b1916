"""Times on the command line: numbers in the option's own unit, or with a unit as in study.toml (``90s``, ``2min``)."""

from __future__ import annotations

import re
from typing import Any

import typer

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h)\s*")


def minutes(text: Any) -> float:
    """The value of ``--minutes``."""
    return _time(text, 60.0, "minutes, such as 5 or 0.5; or a time with a unit, such as 90s or 2h")


def seconds(text: Any) -> float:
    """The value of ``--timeout`` and other options in seconds."""
    return _time(text, 1.0, "seconds, such as 5 or 0.5; or a time with a unit, such as 500ms or 2min")


def _time(text: Any, unit_s: float, allowed: str) -> float:
    found = _TIME.fullmatch(str(text))
    if found is not None:
        return float(found[1]) * _UNITS_S[found[2]] / unit_s
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is no time; allowed: {allowed}') from None
