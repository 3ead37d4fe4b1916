"""The arguments of ``pagelab compare``: two studies, two commands, or one command under two settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.cli import settings
from pagelab.errors import BadInputError, quoted
from pagelab.study.sides import COMPARED, VARIABLE, Side, Sides, flag, words_of

if TYPE_CHECKING:
    from pagelab.study.setting import Setting


def typed(base: str, new: str | None, axes: dict[str, list[str]]) -> Sides:
    """The sides A and B. One value of a flag is for both, two are for A and B. Without ``new``, B has A's command."""
    values = {axis: found for axis, found in axes.items() if axis != "env"}
    values |= {f"{VARIABLE}{name}": found for name, found in settings.variables(axes.get("env", [])).items()}
    for axis, found in values.items():
        if len(found) > 2:
            raise BadInputError(
                f"{flag(axis)} is given {len(found)} times, but A and B are two; for more settings of one command: "
                f"{shlex.join(['pagelab', 'try', *words_of(axis, found)])} -- {base}"
            )
    first, second = ({axis: found[-1 if last else 0] for axis, found in values.items()} for last in (False, True))
    if new is None and first == second:
        once = next(iter(values), None)
        such = (
            "--pages 4K --pages 2M"
            if once is None
            else shlex.join(words_of(once, [_other(once, values[once][0]), values[once][0]]))
        )
        more = next((axis for axis, found in values.items() if len(found) == 2), None)
        if more is not None:
            raise BadInputError(
                f"{' '.join(words_of(more, values[more][:1]))} is given twice: A and B would be the same; to see how "
                f"much two equal commands differ: {shlex.join(['pagelab', 'compare', base, base])}"
            )
        raise BadInputError(
            f'compare {base} with what? A second command: pagelab compare {shlex.quote(base)} "./new"; or two settings '
            f"of this one: pagelab compare {shlex.quote(base)} {such}"
        )
    return Side(base, first), Side(base if new is None else new, second)


def settings_of(sides: Sides) -> tuple[Setting, Setting]:
    """The settings of A and B, named by the difference if the commands are equal; checked against this machine."""
    a, b = sides
    differ = [axis for axis in a.chosen if a.chosen[axis] != b.chosen[axis]]
    named = differ if differ and a.command == b.command else list(a.chosen)
    first = _setting(a, named)
    return first, first if a.chosen == b.chosen else _setting(b, named)


def _setting(side: Side, named: list[str]) -> Setting:
    name = " ".join(
        f"{axis.removeprefix(VARIABLE)}={value}" if axis.startswith(VARIABLE) else settings.shown(axis, value)
        for axis in named
        for value in (side.chosen[axis],)
    )
    chosen = {axis: value for axis, value in side.chosen.items() if not axis.startswith(VARIABLE)}
    env = {axis.removeprefix(VARIABLE): v for axis, v in side.chosen.items() if axis.startswith(VARIABLE)}
    return settings.setting(name or "kernel", chosen, env)


_EXAMPLES = {
    "pages": ("kernel", "2M"),
    "fetch": ("kernel", "prefault"),
    "frames": ("kernel", "random"),
    "policy": ("other.toml", "another.toml"),
    "cpu": ("0", "1"),
    **{one.flag: one.words for one in COMPARED if len(one.words) > 1},
}


def _other(axis: str, value: str) -> str:
    """A value other than ``value``, for an example."""
    return next(one for one in _EXAMPLES.get(axis, ("1", "2")) if one != value)


def are_studies(base: str, new: str | None) -> bool:
    """Whether the arguments are studies (directories, or study.db in one), else commands. One of each is bad input."""
    names = [name for name in (base, new) if name is not None]
    here = [bool(name) and (Path(name).is_dir() or name.endswith("study.db")) for name in names]
    if len(set(here)) == 2:
        study, other = (base, new) if here[0] else (new, base)
        raise BadInputError(
            f"{study} is a directory and {other} is none: name two studies, or two commands in quotes; a program that "
            f"has a directory's name: ./{study}"
        )
    missing = next((name for name in names if name.endswith(".study") and not Path(name).exists()), None)
    if missing is not None:
        raise BadInputError(
            f"there is no study {missing}; make it with: pagelab study run SPEC --into {quoted(missing)}"
        )
    return here[0]
