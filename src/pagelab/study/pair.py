"""Two commands as one study, their executions interleaved: what ``pagelab compare 'CMD A' 'CMD B'`` runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagelab.errors import BadInputError
from pagelab.study.control import Tools, run_study
from pagelab.study.errors import SpecError
from pagelab.study.progress import Progress, Silent
from pagelab.study.spec import SHELL_WORDS
from pagelab.study.store import Store
from pagelab.study.substitute import literal
from pagelab.study.toml_text import dumps

SIDES = ("A", "B")
"""Names of the two workloads."""
POLICY = "kernel"
TRIAL = "trial"
"""Directory, inside the study's, of the one execution of each that shows that they run."""


@dataclass(frozen=True)
class Pair:
    """What to run. A command that needs a shell gets one."""

    commands: tuple[str, str]
    cwd: str
    executions: int = 20
    seed: int = 1
    metric: str | None = None
    """None: wall time, or with ``regex`` the one measurement that is found."""
    regex: str | None = None
    timeout_s: float | None = None
    cpus: tuple[int, ...] | None = None

    def study_toml(self, *, executions: int) -> str:
        """The study.toml of ``executions`` of each command."""
        study: dict[str, Any] = {
            "name": "compare",
            "question": f"How do {self.commands[0]} (A) and {self.commands[1]} (B) differ?",
            "executions": executions,
            "warmups": 0,
            "seed": self.seed,
            "metric": self.metric or "wall_s",
        }
        if self.cpus is not None:
            study["cpus"] = list(self.cpus)
        workloads = [self._workload(side, command) for side, command in zip(SIDES, self.commands, strict=True)]
        return dumps({**study, "workload": workloads, "policy": [{"name": POLICY}]})

    def _workload(self, side: str, command: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": side, "cwd": literal(self.cwd)}
        if needs_shell(command):
            found["shell"] = literal(command)
        else:
            found["command"] = [literal(word) for word in _words(side, command)]
        if self.regex is not None:
            found["measure"] = {"regex": self.regex}
        if self.timeout_s is not None:
            found["timeout"] = self.timeout_s
        return found


def needs_shell(command: str) -> bool:
    """Whether only a shell can run it: pipes, redirections, variables, patterns outside single quotes."""
    return SHELL_WORDS.search(_unquoted(command)) is not None


def _unquoted(command: str) -> str:
    parts = command.split("'")
    return "'".join(part for i, part in enumerate(parts) if i % 2 == 0)


def _words(side: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInputError(f"{side}: cannot split {command!r} into words: {error}") from None
    if not words:
        raise BadInputError(f'{side}: the command is empty; such as: pagelab compare "./old input" "./new input"')
    return words


def run_pair(pair: Pair, directory: Path, tools: Tools, progress: Progress | None = None) -> None:
    """One execution of each to see that they run, then all of them in ``directory``, interleaved in random order.

    Raises BadInputError where a command cannot run or fails, and the study's own errors.
    """
    _run(pair, directory / TRIAL, 1, tools, Silent())
    failed = _failures(directory / TRIAL)
    if failed:
        raise BadInputError(f"{'; '.join(failed)}; nothing was compared")
    if pair.regex is not None and pair.metric is None:
        pair = replace(pair, metric=only_measurement(directory / TRIAL))
    _run(pair, directory, pair.executions, tools, progress or Silent())


def _run(pair: Pair, directory: Path, executions: int, tools: Tools, progress: Progress) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    spec = directory / "study.toml"
    spec.write_text(pair.study_toml(executions=executions), encoding="utf-8")
    try:
        run_study(spec, directory, tools, progress=progress)
    except SpecError as error:
        # The file is ours, and mostly a temporary one: what it says is the command line's.
        problems = (f"{problem.key}: {problem.message}" for problem in error.problems)
        raise BadInputError(f"these commands cannot be compared: {'; '.join(problems)}") from None


def _failures(directory: Path) -> list[str]:
    """Which command failed, and how."""
    import polars as pl

    with Store.open(directory, write=False) as store:
        failed = store.runs().filter(pl.col("status") != "ok").select("workload", "status", "message")
    return [f"{side} {status}" + (f": {message}" if message else "") for side, status, message in failed.iter_rows()]


def only_measurement(directory: Path) -> str:
    """The metric that a regular expression found in the output; BadInputError where it found none, or several."""
    with Store.open(directory, write=False) as store:
        names = sorted(set(store.measurements()["name"]))
    if len(names) != 1:
        found = ", ".join(f"measure.{name}" for name in names) or "nothing"
        raise BadInputError(f"--measure-regex found {found} in the output; choose one with --metric")
    return f"measure.{names[0]}"
