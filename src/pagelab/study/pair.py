"""Runs two commands, or one under two settings, as one interleaved study: ``pagelab compare 'CMD A' 'CMD B'``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagelab import whole_file
from pagelab.errors import BadInputError, MachineError
from pagelab.foreign_files import read_end
from pagelab.study.budget import checked_minutes, fewest_of, rounded_up, unknown_time
from pagelab.study.control import run_study
from pagelab.study.errors import ImpossibleError, NothingStartsError, SpecError, TooLongError
from pagelab.study.job import stderr_of
from pagelab.study.plan import CO_RUN
from pagelab.study.prepare import OUTPUT, TRIAL
from pagelab.study.primary import metric_of
from pagelab.study.progress import Progress, Silent, shown_duration
from pagelab.study.setting import KERNEL, Setting, names, program_name
from pagelab.study.shell import needs_shell
from pagelab.study.sides import LEVEL, NAME, SIDES, alone
from pagelab.study.store import Store
from pagelab.study.substitute import literal
from pagelab.study.toml_text import dumps
from pagelab.study.tools import Tools

PLAIN = Setting("kernel", KERNEL)


class TooShortError(BadInputError):
    """The time of a study that pagelab wrote does not hold its fewest executions; those that were made tell nothing."""


@dataclass(frozen=True)
class Pair:
    """The two commands and what the study needs. A command that needs a shell runs in one."""

    commands: tuple[str, str]
    cwd: str
    settings: tuple[Setting, Setting] = (PLAIN, PLAIN)
    """The settings of the two commands, equal or different."""
    executions: int = 20
    minutes: float | None = None
    """Time for the study, in place of ``executions``."""
    seed: int = 1
    metric: str | None = None
    """The compared metric. None: chosen by :func:`pagelab.study.primary.metric_of`, or with ``regex`` the one
    measurement in the output."""
    level: float = LEVEL
    regex: str | None = None
    timeout_s: float | None = None
    co_run: bool = False
    """Both executions of a pair run at once, on one processor (:mod:`pagelab.study.co_run`)."""

    @property
    def in_turn(self) -> int:
        """Number of executions of a pair that follow each other."""
        return 1 if self.co_run else 2

    @property
    def one_command(self) -> bool:
        """Whether only the settings differ; the study then has one workload under two policies."""
        return self.commands[0] == self.commands[1] and self.settings[0] != self.settings[1]

    def write(self, directory: Path, size: dict[str, float]) -> Path:
        """Writes study.toml and its policies into ``directory``; ``size`` is its ``executions`` or ``minutes``."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = self.settings if self.settings[0] != self.settings[1] else self.settings[:1]
        policies = names(settings)
        study = {
            "name": NAME,
            "question": self._question(),
            **size,
            "warmups": 0,
            "seed": self.seed,
            "metric": self.metric or ("cpu_s" if self.co_run else "wall_s"),
            "level": self.level,
            **({"co_run": True} if self.co_run else {}),
            "workload": self._workloads(policies),
            "policy": [setting.table(name, directory) for name, setting in zip(policies, settings, strict=True)],
        }
        spec = directory / "study.toml"
        whole_file.put(spec, dumps(study))
        return spec

    def _question(self) -> str:
        a, b = (setting.name for setting in self.settings)
        if self.one_command:
            return f"What does {b} change for {self.commands[0]}, compared with {a}?"
        return f"How do {self.commands[0]} (A) and {self.commands[1]} (B) differ?"

    def _workloads(self, policies: list[str]) -> list[dict[str, Any]]:
        if self.one_command:
            return [self._workload("A and B", self.commands[0], program_name((self.commands[0].split() or [""])[0]))]
        found = [self._workload(side, command, side) for side, command in zip(SIDES, self.commands, strict=True)]
        if len(policies) > 1:
            found = [{**one, "policies": [policy]} for one, policy in zip(found, policies, strict=True)]
        return found

    def _workload(self, sides: str, command: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "cwd": literal(self.cwd)}
        if needs_shell(command):
            found["shell"] = literal(command)
        else:
            found["command"] = [literal(word) for word in _words(sides, command)]
        if self.regex is not None:
            found["measure"] = {"regex": self.regex}
        if self.timeout_s is not None:
            found["timeout"] = self.timeout_s
        return found


def _words(side: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInputError(f"{side}: cannot split {command!r} into words: {error}") from None
    if not words:
        raise BadInputError(f'{side}: the command is empty; such as: pagelab compare "./old input" "./new input"')
    return words


def run_pair(pair: Pair, directory: Path, tools: Tools, progress: Progress | None = None) -> str:
    """Runs each command once as a trial, then all executions in ``directory``, interleaved in random order.

    Returns the reason where pagelab chose another metric than wall time; else an empty text. Raises BadInputError where
    a command cannot run or fails, and the errors of studies.
    """
    trial, allowed_s = pair, 0.0
    if pair.minutes is not None:
        allowed_s = 60 * checked_minutes(pair.minutes) / fewest_of(1, pair.level) / pair.in_turn
        # Its share of the time, and some more for reading from the disk.
        limit = max(1.0, 2 * allowed_s)
        trial = replace(pair, timeout_s=min(pair.timeout_s or limit, limit))
    # Measuring the machine's noise takes a second, so it is done only where times count.
    untimed = replace(tools, noise=lambda _plan: None)
    _run(trial, directory / TRIAL, {"executions": 1}, untimed, Silent())
    counts = counts_time_outs(pair.metric, pair.regex) and trial.timeout_s == pair.timeout_s
    failed = stopping(failures_of(directory / TRIAL), 2, own_limit=counts)
    if failed:
        named = {name: side for (name, _), side in zip(_conditions(directory / TRIAL), SIDES, strict=True)}
        cut = [one for one in failed if one.status == "timed-out"] if trial.timeout_s != pair.timeout_s else []
        if cut and pair.minutes is not None:
            raise BadInputError(_cut_short(pair, named[cut[0].condition], trial.timeout_s or 0.0, allowed_s))
        raise BadInputError(told(failed, lambda one: named[one.condition]))
    if pair.minutes is not None:
        _refuse_too_short(pair, directory / TRIAL, pair.minutes, allowed_s)
    why = ""
    if pair.regex is not None and pair.metric is None:
        pair = replace(pair, metric=only_measurement(directory / TRIAL))
    elif pair.co_run:
        why = CO_RUN
    elif pair.metric is None:
        with Store.open(directory / TRIAL, write=False) as store:
            metric, why = metric_of(store.runs())
        pair = replace(pair, metric=metric)
    size: dict[str, float] = {"executions": pair.executions}
    if pair.minutes is not None:
        size = {"minutes": pair.minutes}
    _run(pair, directory, size, tools, progress or Silent())
    return why


def _cut_short(pair: Pair, side: str, limit_s: float, allowed_s: float) -> str:
    """The message about an execution of the trial that reached its limit."""
    assert pair.minutes is not None
    executions = fewest_of(1, pair.level) * pair.in_turn
    command = pair.commands[SIDES.index(side)] if side in SIDES else pair.commands[0]
    argv = ["sh", "-c", command] if needs_shell(command) else _words(side, command)
    return (
        f"one execution of {side} takes more than {shown_duration(limit_s)}; {pair.minutes:g} min for {executions} "
        f"executions allow {allowed_s:.2g} s each; {unknown_time(pair.minutes, argv)}"
    )


def _refuse_too_short(pair: Pair, trial: Path, minutes: float, allowed_s: float) -> None:
    """Refuses minutes that do not hold the fewest pairs, by the trial, as far as reading from the disk leaves it sure:
    the first execution of all may have been slow by that.
    """
    with Store.open(trial, write=False) as store:
        durations = store.runs()["duration_s"].drop_nulls().to_list()
    block_s = max(durations) if pair.co_run else sum(durations)
    surely_s = min(durations) if pair.co_run else 2 * min(durations)
    if surely_s > allowed_s * pair.in_turn:
        fewest = fewest_of(1, pair.level)
        raise TooShortError(
            f"one execution of each takes {shown_duration(max(1, block_s))}: {fewest} of each, the fewest that can "
            f"show a difference, do not fit into {minutes:g} min; give it --minutes "
            f"{rounded_up(1.1 * fewest * block_s / 60)}"
        )


def _run(pair: Pair, directory: Path, size: dict[str, float], tools: Tools, progress: Progress) -> None:
    run_own(pair.write(directory, size), directory, tools, progress, "these commands cannot be compared")


def run_own(spec: Path, directory: Path, tools: Tools, progress: Progress, cannot: str, spent_s: float = 0.0) -> None:
    """Runs a study whose file pagelab wrote, mostly a temporary one: its errors are errors of the command line.

    ``spent_s``: the part of the given time that a trial took. Raises MachineError, and BadInputError, which begins with
    ``cannot`` or, as TooShortError, names the ``--minutes`` that would be enough.
    """
    try:
        run_study(spec, directory, tools, progress=progress)
    except SpecError as error:
        raise BadInputError(f"{cannot}: {error.without_file()}") from None
    except NothingStartsError as error:
        raise BadInputError(f"{cannot}: {error.reason}") from None
    except TooLongError as error:
        minutes = rounded_up(float(error.minutes) + spent_s / 60)
        raise TooShortError(f"{error.reason}; give it --minutes {minutes}") from None
    except ImpossibleError as error:
        raise MachineError(error.which) from None


@dataclass(frozen=True)
class Failure:
    """A failed run of a pilot."""

    condition: str
    status: str
    reason: str
    """``exit code 2``, and the last line of the program's error output."""
    alone: str | None
    """The command line that repeats the run and shows its output; None: there is none."""


def failures_of(directory: Path) -> list[Failure]:
    """The failed runs in a pilot's store."""
    import polars as pl

    with Store.open(directory, write=False) as store:
        failed = store.runs().filter(pl.col("status") != "ok").select("condition", "status", "message", "position")
    repeated = dict(_conditions(directory))
    found = []
    for name, status, message, place in failed.iter_rows():
        reason = ": ".join(part for part in (message, _last_line(directory, place)) if part)
        found.append(Failure(name, status, reason, repeated[name]))
    return found


def told(failed: list[Failure], name: Callable[[Failure], str]) -> str:
    """The message about failed runs: ``B failed: exit code 2: no such file; nothing was compared; run it alone: …``."""
    parts = [f"{name(one)} {one.status}" + (f": {one.reason}" if one.reason else "") for one in failed]
    alone = next((one.alone for one in failed if one.alone and one.status != "timed-out"), None)
    further = f"; run it alone: {alone}" if alone else ""
    if all(one.status == "timed-out" for one in failed):
        further = "; give them more time: --timeout SECONDS"
    return f"{'; '.join(parts)}; nothing was compared{further}"


def counts_time_outs(metric: str | None, regex: str | None) -> bool:
    """Whether a study counts time-outs as slowest: where it compares times of whole executions, chosen or not."""
    return regex is None and metric in (None, "wall_s", "user_s", "system_s", "cpu_s")


def stopping(failed: list[Failure], conditions: int, *, own_limit: bool) -> list[Failure]:
    """Those failures of a pilot after which nothing can be compared. A time-out at the user's own limit is a result, as
    in the study itself, as long as one of the ``conditions`` ends.
    """
    others = [one for one in failed if one.status != "timed-out" or not own_limit]
    return failed if len(failed) == conditions else others


def _conditions(directory: Path) -> list[tuple[str, str | None]]:
    """Name of each condition and the command line that runs it alone, in the order of the plan."""
    with Store.open(directory, write=False) as store:
        return [(one.name, alone(one)) for one in store.plan().conditions]


_LONGEST = 200
"""Most characters of a program's line in a message."""


def _last_line(directory: Path, position: int) -> str:
    """The last line of a failed run's error output; empty where there is none."""
    try:
        lines = read_end(stderr_of(directory / OUTPUT, position), 4096).decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(c if c.isprintable() else "?" for c in said)[:_LONGEST]


def only_measurement(directory: Path) -> str:
    """The metric that the regular expression found in the output. Raises BadInputError for none or several."""
    with Store.open(directory, write=False) as store:
        names = sorted(set(store.measurements()["name"]))
    if len(names) != 1:
        found = ", ".join(f"measure.{name}" for name in names) or "nothing"
        raise BadInputError(f"--measure-regex found {found} in the output; choose one with --metric")
    return f"measure.{names[0]}"
