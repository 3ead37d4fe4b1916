"""Settings that a command runs under (policy, variables, CPUs, addresses), as flags and as tables of study.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pagelab import whole_file
from pagelab.study.substitute import literal

POLICIES = "policies"
"""Folder of the policies in the study's directory."""
KERNEL = 'name = "kernel"\n'
"""The policy that changes nothing."""
AXES = ("pages", "fetch", "frames")
_UNSAID = {"via": "thp", "backend": "library", "inherit": {"fork": True, "exec": True}}
"""The values of a policy's keys where none are set."""


@dataclass(frozen=True)
class Setting:
    """One setting of a command: settings are the difference between its conditions."""

    name: str
    """As it was typed: ``2M``, ``MALLOC_ARENA_MAX=1``, ``kernel``."""
    policy_toml: str
    env: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    """Settings of the run, as study.toml has them: ``{"cpus": [1], "aslr": "off"}``."""

    def table(self, name: str, directory: Path) -> dict[str, Any]:
        """The ``[[policy]]`` of this name; writes its text into a file below ``directory``, where study.toml is."""
        policy: dict[str, Any] = {"name": name}
        if self.policy_toml != KERNEL:
            (directory / POLICIES).mkdir(parents=True, exist_ok=True)
            whole_file.put(directory / POLICIES / f"{name}.toml", self.policy_toml)
            policy["file"] = f"{POLICIES}/{name}.toml"
        if self.env:
            policy["env"] = {key: literal(value) for key, value in self.env.items()}
        return policy | self.run


def named(word: str, instead: str) -> str:
    """The word as a valid name for study.toml; ``instead`` where no character of it is allowed in a name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", word).strip("-._+")[:60] or instead


def names(settings: Sequence[Setting]) -> list[str]:
    """Names of the settings that are valid in study.toml, all different."""
    found: list[str] = []
    for setting in settings:
        name = named(setting.name, "setting")
        numbered = (f"{name}-{number}" for number in count(len(found) + 1))
        found.append(name if name not in found else next(one for one in numbered if one not in found))
    return found


def program_name(word: str) -> str:
    """A name for the workload that runs this program."""
    return named(Path(word).name, "program")


def workload(argv: Sequence[str], cwd: str, timeout_s: float | None) -> dict[str, Any]:
    """The ``[[workload]]`` of this command as it is typed; nothing in it is substituted."""
    table: dict[str, Any] = {
        "name": program_name(argv[0]),
        "command": [literal(word) for word in argv],
        "cwd": literal(cwd),
    }
    return table if timeout_s is None else {**table, "timeout": float(timeout_s)}


def flags_of(policy_toml: str) -> dict[str, str] | None:
    """The policy as axis → value of its flags, without axes left to the kernel; None where flags cannot express it."""
    try:
        document: Mapping[str, Any] = tomllib.loads(policy_toml)
    except tomllib.TOMLDecodeError:
        return None
    said = {key: value for key, value in document.items() if key != "name" and _UNSAID.get(key) != value}
    if any(key not in AXES or not isinstance(value, str) for key, value in said.items()):
        return None
    return {key: said[key] for key in AXES if said.get(key, "kernel") != "kernel"}
