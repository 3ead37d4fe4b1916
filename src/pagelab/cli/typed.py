"""Settings of a run as they were typed, read: without the library of the command line, which takes long to start."""

from __future__ import annotations

import math
import re
from typing import Any

from pagelab.contract.rows import RunSetting
from pagelab.contract.settings import RUN_SETTINGS
from pagelab.errors import BadInputError

Typed = dict[str, Any]
"""Flag → what was typed, or None."""
NOTHING: Typed = {}
FLAGS = {one.flag: one for one in RUN_SETTINGS if one.flag}
"""Flag, without its dashes → setting."""


def read(one: RunSetting, typed: Any) -> Any:
    """What ``typed`` says, as study.toml would: words are checked, CPUs a list. Raises BadInputError."""
    if one.kind == "cpus":
        return cpus_of(typed)
    if one.kind == "seconds" and typed is not None and not math.isfinite(typed):
        raise BadInputError(f"--{one.flag} {typed}: not a number of seconds; without the flag there is no limit")
    if one.words and typed is not None and typed not in one.words:
        left = "without the flag it is left as it is"
        raise BadInputError(f"--{one.flag} {typed}: allowed: {', '.join(one.words)} ({left})")
    return typed


def asked(settings: Typed) -> dict[str, Any]:
    """The fields of a request that what was typed, by flag, comes to."""
    return {one.field: one.asked(read(one, settings.get(flag))) for flag, one in FLAGS.items()}


def cpus_of(text: str | None) -> list[int]:
    """``0-3,8`` → [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for part in (text or "").split(",") if text is not None else []:
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise BadInputError(f"--cpu {text}: not a list of CPUs; write it as 1 or 0-3,8; they are listed by: lscpu")
        cpus.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus
