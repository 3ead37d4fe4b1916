"""The two sides A and B of a comparison: commands with their flags, as typed or as stored in a study."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from pagelab.contract.settings import RUN_SETTINGS
from pagelab.study.plan import Condition, Plan
from pagelab.study.setting import AXES, flags_of
from pagelab.study.shell import needs_shell

NAME = "compare"
"""Name of a study that compares two sides."""
SIDES = ("A", "B")
"""Names of the two sides, and of their workloads where the commands differ."""
LEVEL = 0.95
"""Confidence level of a comparison for which none is given."""
VARIABLE = "env "
"""Beginning of the axis of a variable: ``env MALLOC_ARENA_MAX``."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    command: str
    chosen: dict[str, str] = field(default_factory=dict)
    """Axis → value."""

    def told(self) -> str:
        """The side in words: ``sort -n numbers.txt, with --pages 2M``."""
        words = shlex.join(flags(self.chosen))
        return f"{self.command}, with {words}" if words else self.command


Sides = tuple[Side, Side]

COMPARED = tuple(one for one in RUN_SETTINGS if one.compared)
"""Settings of a run that ``pagelab compare`` can set differently for A and B."""


def kept(plan: Plan) -> Sides:
    """The two sides of a stored study."""
    a, b = (Side(_command(one), chosen(one)) for one in plan.conditions)
    return a, b


def imported(plan: Plan) -> Sides:
    """The two sides of imported executions: of their commands only what the file said is known."""
    named = len({one.policy for one in plan.conditions}) > 1
    a, b = (Side(one.policy if named else one.workload) for one in plan.conditions)
    return a, b


def _command(one: Condition) -> str:
    argv = one.request.argv
    if argv[:2] == ["/bin/sh", "-c"] and len(argv) == 3 and needs_shell(argv[2]):
        return argv[2]
    return shlex.join(argv)


def chosen(one: Condition) -> dict[str, str]:
    """The settings of a condition, axis → value; ``policy`` where flags cannot express its policy."""
    request = one.request
    said = flags_of(request.policy_toml)
    found = dict(said) if said is not None else {"policy": request.policy_path or one.policy}
    for setting in COMPARED:
        typed = setting.typed(getattr(request, setting.field))
        if typed is not None:
            found[str(setting.flag)] = typed
    return found | {f"{VARIABLE}{name}": value for name, value in request.env.set.items()}


def alone(one: Condition) -> str | None:
    """The command line of one run of a condition; None if flags cannot express its policy."""
    settings = chosen(one)
    if "policy" in settings:
        return None
    return shlex.join(["pagelab", "run", *flags(settings), "--", *one.request.argv])


def again(sides: Sides) -> list[str] | None:
    """The command line that repeats the comparison; None if flags cannot express the difference."""
    a, b = sides
    words = ["pagelab", "compare", *([a.command] if a.command == b.command else [a.command, b.command])]
    if sides[0] == sides[1]:
        words.append(b.command)
    for axis in dict.fromkeys([*a.chosen, *b.chosen]):
        values = [side.chosen.get(axis, "kernel" if axis in AXES else None) for side in sides]
        if None in values:
            return None
        words += words_of(axis, [str(value) for value in dict.fromkeys(values)])
    return words


def measured(plan: Plan, metric: str | None = None) -> list[str]:
    """The words of a command line for the metric (the study's, or another), the level and the time limit of a study."""
    ran, metric = plan.conditions[0].request, metric or plan.metric
    words = ["--metric", metric]  # where none is named, the program decides which one is compared
    words += ["--level", f"{plan.level:g}"] if plan.level != LEVEL else []
    words += ["--co-run"] if plan.co_run else []
    words += ["--measure-regex", ran.measurements.regex] if ran.measurements.regex is not None else []
    return words + (["--timeout", f"{ran.timeout_s:g}"] if ran.timeout_s is not None else [])


def flag(axis: str) -> str:
    """The option of an axis."""
    return "--env" if axis.startswith(VARIABLE) else f"--{axis}"


def words_of(axis: str, values: list[str]) -> list[str]:
    """The words of an axis on the command line, once for each value."""
    name = axis.removeprefix(VARIABLE)
    shown = [f"{name}={value}" if axis.startswith(VARIABLE) else value for value in values]
    return [word for value in shown for word in (flag(axis), value)]


def flags(chosen: dict[str, str]) -> list[str]:
    """The words of all axes on the command line."""
    return [word for axis, value in chosen.items() for word in words_of(axis, [value])]
