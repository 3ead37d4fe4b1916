"""A and B of ``pagelab compare``: commands with the flags that each runs under, as typed, or as a study kept them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.cli import settings
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.analysis.data import StudyData
    from pagelab.study.plan import Condition
    from pagelab.study.setting import Setting

_VARIABLE = "env "
"""Variables are axes of their own: ``env MALLOC_ARENA_MAX``."""


@dataclass(frozen=True)
class Side:
    """One of the two."""

    command: str
    chosen: dict[str, str] = field(default_factory=dict)
    """Axis → value."""

    def told(self) -> str:
        """``sort -n numbers.txt, with --pages 2M``."""
        flags = shlex.join(_flags(self.chosen))
        return f"{self.command}, with {flags}" if flags else self.command


Sides = tuple[Side, Side]


def typed(base: str, new: str | None, axes: dict[str, list[str]]) -> Sides:
    """Of flags: given once for both, twice for A and B. Without ``new``, A's command under B's flags."""
    values = {axis: found for axis, found in axes.items() if axis != "env"}
    values |= {f"{_VARIABLE}{name}": found for name, found in settings.variables(axes.get("env", [])).items()}
    for axis, found in values.items():
        if len(found) > 2:
            raise BadInputError(
                f"{_flag(axis)} is given {len(found)} times, and A and B are two: more settings of one command: "
                f"{shlex.join(['pagelab', 'try', *_typed(axis, found)])} -- {base}"
            )
    first, second = ({axis: found[-1 if last else 0] for axis, found in values.items()} for last in (False, True))
    if new is None and first == second:
        once = next(iter(values), None)
        such = (
            "--pages 4K --pages 2M"
            if once is None
            else shlex.join(_typed(once, [_other(once, values[once][0]), values[once][0]]))
        )
        more = next((axis for axis, found in values.items() if len(found) == 2), None)
        if more is not None:
            raise BadInputError(
                f"{' '.join(_typed(more, values[more][:1]))} is given twice: both would be the same; how far two that "
                f"are the same lie apart: {shlex.join(['pagelab', 'compare', base, base])}"
            )
        raise BadInputError(
            f'compare {base} with what? A second command: pagelab compare {shlex.quote(base)} "./new"; or two settings '
            f"of this one: pagelab compare {shlex.quote(base)} {such}"
        )
    return Side(base, first), Side(base if new is None else new, second)


def settings_of(sides: Sides) -> tuple[Setting, Setting]:
    """What they run under, named by what differs where the command does not; checked against this machine."""
    a, b = sides
    differ = [axis for axis in a.chosen if a.chosen[axis] != b.chosen[axis]]
    named = differ if differ and a.command == b.command else list(a.chosen)
    first = _setting(a, named)
    return first, first if a.chosen == b.chosen else _setting(b, named)


def _setting(side: Side, named: list[str]) -> Setting:
    name = " ".join(
        f"{axis.removeprefix(_VARIABLE)}={value}" if axis.startswith(_VARIABLE) else settings.shown(axis, value)
        for axis in named
        for value in (side.chosen[axis],)
    )
    chosen = {axis: value for axis, value in side.chosen.items() if not axis.startswith(_VARIABLE)}
    env = {axis.removeprefix(_VARIABLE): v for axis, v in side.chosen.items() if axis.startswith(_VARIABLE)}
    return settings.setting(name or "kernel", chosen, env)


def kept(data: StudyData) -> Sides:
    """The two that ran in one study."""
    a, b = (Side(_command(one), _kept(one)) for one in data.plan.conditions)
    return a, b


def _command(one: Condition) -> str:
    from pagelab.study.pair import needs_shell

    if one.argv[:2] == ["/bin/sh", "-c"] and len(one.argv) == 3 and needs_shell(one.argv[2]):
        return one.argv[2]
    return shlex.join(one.argv)


def _kept(one: Condition) -> dict[str, str]:
    from pagelab.study.setting import flags_of

    flags = flags_of(one.policy_toml)
    chosen = dict(flags) if flags is not None else {"policy": one.policy_path or one.policy}
    if one.cpus is not None:
        chosen["cpu"] = ",".join(map(str, one.cpus))
    if one.aslr is not None:
        chosen["aslr"] = "on" if one.aslr else "off"
    return chosen | {f"{_VARIABLE}{name}": value for name, value in one.env.items()}


def again(sides: Sides) -> list[str] | None:
    """The words that compares them; None where flags cannot say what differs."""
    a, b = sides
    words = ["pagelab", "compare", *([a.command] if a.command == b.command else [a.command, b.command])]
    if sides[0] == sides[1]:
        words.append(b.command)
    for axis in dict.fromkeys([*a.chosen, *b.chosen]):
        values = [side.chosen.get(axis, _DEFAULT.get(axis)) for side in sides]
        if None in values:
            return None
        words += _typed(axis, [str(value) for value in dict.fromkeys(values)])
    return words


_DEFAULT = {"pages": "kernel", "fetch": "kernel", "frames": "kernel"}


_EXAMPLES = {
    "pages": ("kernel", "2M"),
    "fetch": ("kernel", "prefault"),
    "frames": ("kernel", "random"),
    "policy": ("other.toml", "another.toml"),
    "cpu": ("0", "1"),
    "aslr": ("on", "off"),
}


def _other(axis: str, value: str) -> str:
    """A value to compare with, for an example."""
    return next(one for one in _EXAMPLES.get(axis, ("1", "2")) if one != value)


def _flag(axis: str) -> str:
    return "--env" if axis.startswith(_VARIABLE) else f"--{axis}"


def _typed(axis: str, values: list[str]) -> list[str]:
    name = axis.removeprefix(_VARIABLE)
    shown = [f"{name}={value}" if axis.startswith(_VARIABLE) else value for value in values]
    return [word for value in shown for word in (_flag(axis), value)]


def _flags(chosen: dict[str, str]) -> list[str]:
    return [word for axis, value in chosen.items() for word in _typed(axis, [value])]


def are_studies(base: str, new: str | None) -> bool:
    """Whether studies are named; two directories are, two other things are commands. One of each is bad input."""
    names = [name for name in (base, new) if name is not None]
    here = [bool(name) and (Path(name).is_dir() or name.endswith("study.db")) for name in names]
    if len(set(here)) == 2:
        study, other = (base, new) if here[0] else (new, base)
        raise BadInputError(
            f"{study} is a directory and {other} is none: name two studies, or two commands in quotes; a program that "
            f"has a directory's name: ./{study}"
        )
    return here[0]
