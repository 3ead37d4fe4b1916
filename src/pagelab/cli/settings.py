"""Settings as flags: of a run, of the conditions of ``pagelab try``, and of the two sides of ``pagelab compare``.

The command-line library takes long to start, and this module does without it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab.contract.rows import RunSetting
from pagelab.contract.settings import RUN_SETTINGS
from pagelab.errors import BadInputError
from pagelab.sizes import size_bytes

if TYPE_CHECKING:
    from pagelab.study.setting import Setting

MOST_BYTES = 1 << 62
Typed = dict[str, Any]
"""Flag → what was typed, or None."""
NOTHING: Typed = {}
FLAGS = {one.flag: one for one in RUN_SETTINGS if one.flag}
"""Flag, without its dashes → setting."""


def read(one: RunSetting, typed: Any) -> Any:
    """The ``typed`` value in the form of study.toml: checked, and CPUs as a list. Raises BadInputError."""
    if one.kind == "cpus":
        return cpus_of(typed)
    if one.kind == "seconds" and typed is not None and not math.isfinite(typed):
        raise BadInputError(f"--{one.flag} {typed}: not a number of seconds; without the flag there is no limit")
    if one.kind == "size" and typed is not None:
        size = size_bytes(typed, f"--{one.flag}")
        if size > MOST_BYTES:
            raise BadInputError(f"--{one.flag} {typed}: more than any machine has; allowed: up to {MOST_BYTES} bytes")
        return size
    if one.words and typed is not None and typed not in one.words:
        left = "without the flag it is left as it is"
        raise BadInputError(f"--{one.flag} {typed}: allowed: {', '.join(one.words)} ({left})")
    return typed


def asked(settings: Typed) -> dict[str, Any]:
    """The fields of a request, from the typed value of each flag."""
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


POLICY_AXES = ("pages", "fetch", "frames", "backend", "policy")


def given(axes: dict[str, list[str] | list[Path] | None]) -> dict[str, list[str]]:
    """The typed values as text, by axis, without the axes that were not typed."""
    for value in axes.get("pages") or ():
        sizes = str(value).split(",")
        if len(sizes) > 1 and all(re.fullmatch(r"kernel|\d+[KMG]", size) for size in sizes):
            several = " ".join(f"--pages {size}" for size in sizes)
            raise BadInputError(f"--pages {value}: not a page size; for {len(sizes)} settings write {several}")
    return {name: [str(value) for value in values] for name, values in axes.items() if values}


def variables(texts: list[str]) -> dict[str, list[str]]:
    """Name → its values, in the order given."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInputError(f"--env {text}: not of the form NAME=VALUE")
        found.setdefault(name, []).append(value)
    return found


def setting(name: str, chosen: dict[str, str], env: dict[str, str]) -> Setting:
    """The setting with the ``chosen`` value of each axis; checked against this machine."""
    from pagelab.study.setting import Setting

    run = {FLAGS[flag].key: read(FLAGS[flag], typed) for flag, typed in chosen.items() if flag in FLAGS}
    return Setting(name, policy(chosen), env, run)


def shown(axis: str, value: str) -> str:
    """A short name of the value: ``2M``, ``huge`` for huge.toml, ``CPU 1``, ``ASLR off``."""
    if axis == "policy":
        return Path(value).stem
    return f"{FLAGS[axis].short} {value}" if axis in FLAGS else value


def policy(chosen: dict[str, str]) -> str:
    """The policy's text; checked against this machine here, so that a bad flag is named as it was typed."""
    from pagelab.study.setting import KERNEL

    flags = {name: [chosen[name]] for name in ("pages", "fetch", "frames") if name in chosen}
    if not flags and "policy" not in chosen:
        return KERNEL
    from pagelab import machine
    from pagelab import policy as policies

    described = machine.describe()
    base = Path(chosen["policy"]) if "policy" in chosen else None
    backend = chosen.get("backend")
    found = policies.from_flags(policies.Flags(**flags, backend=backend), described, base)  # type: ignore[arg-type]
    policies.check_runnable(found, described)
    return found.toml
