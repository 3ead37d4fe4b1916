"""Settings as flags: what ``pagelab try`` tries, and what the two sides of ``pagelab compare`` run under."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.study.setting import Setting

POLICY_AXES = ("pages", "fetch", "frames", "policy")


def given(axes: dict[str, list[str] | list[Path] | None]) -> dict[str, list[str]]:
    """What was typed, as text, by axis; an axis that was not is left out."""
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
    """The setting with one value for each axis that is ``chosen``; checked against this machine."""
    from pagelab.cli.typed import FLAGS, read
    from pagelab.study.setting import Setting

    run = {FLAGS[flag].key: read(FLAGS[flag], typed) for flag, typed in chosen.items() if flag in FLAGS}
    return Setting(name, policy(chosen), env, run)


def shown(axis: str, value: str) -> str:
    """A short name of the value: ``2M``, ``huge`` for huge.toml, ``CPU 1``, ``ASLR off``."""
    if axis == "policy":
        return Path(value).stem
    from pagelab.cli.typed import FLAGS

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
    found = policies.from_flags(policies.Flags(**flags), described, base)  # type: ignore[arg-type]
    policies.check_runnable(found, described)
    return found.toml
