"""Times on the command line: numbers in the option's own unit, or with a unit as in study.toml (``90s``, ``2min``)."""

from __future__ import annotations

from typing import Any

import typer

from pagelab.sizes import seconds_of


def minutes(text: Any) -> float:
    """The value of ``--minutes``."""
    return _time(text, 60.0, "minutes, such as 5 or 0.5; or a time with a unit, such as 90s or 2h")


def seconds(text: Any) -> float:
    """The value of ``--timeout`` and other options in seconds."""
    return _time(text, 1.0, "seconds, such as 5 or 0.5; or a time with a unit, such as 500ms or 2min")


def _time(text: Any, unit_s: float, allowed: str) -> float:
    found = seconds_of(str(text))
    if found is not None:
        return found / unit_s
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is no time; allowed: {allowed}') from None
