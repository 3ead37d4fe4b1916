"""Runs one command under several settings of one axis, as a study that fits a budget: ``pagelab try``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import polars as pl

from pagelab import whole_file
from pagelab.errors import BadInputError
from pagelab.study.budget import LEAST_MINUTES, fewest_of, minutes_for, spent_s, unknown_time
from pagelab.study.pair import Failure, counts_time_outs, failures_of, only_measurement, run_own, stopping, told
from pagelab.study.plan import CO_RUN
from pagelab.study.prepare import TRIAL
from pagelab.study.primary import metric_of
from pagelab.study.progress import Progress, Silent, shown_duration
from pagelab.study.setting import Setting, names, workload
from pagelab.study.store import Store
from pagelab.study.toml_text import dumps
from pagelab.study.tools import Tools

_CANNOT = "this cannot be tried"


@dataclass(frozen=True)
class Trying:
    """The command and its settings; the first setting is the baseline."""

    argv: tuple[str, ...]
    cwd: str
    settings: tuple[Setting, ...]
    minutes: float = 1.0
    seed: int = 1
    level: float = 0.95
    metric: str | None = None
    """The compared metric. None: chosen by :func:`metric_of`, or with ``regex`` the one measurement in the output."""
    regex: str | None = None
    timeout_s: float | None = None
    co_run: bool = False
    """Both executions of a pair run at once, on one processor (:mod:`pagelab.study.co_run`)."""

    @property
    def in_turn(self) -> int:
        """Number of executions of a block that follow each other: a pair that runs at once counts as one."""
        return 1 if self.co_run else len(self.settings)

    @property
    def fewest(self) -> int:
        """Fewest blocks with which every comparison can reach the level after Holm."""
        return fewest_of(len(self.settings) - 1, self.level)

    def names(self) -> list[str]:
        """Names of the settings that are valid in study.toml, all different."""
        return names(self.settings)

    def typed(self, failed: Failure) -> str:
        """The setting of a failed run, as it was typed."""
        return dict(zip(self.names(), self.settings, strict=True))[failed.condition.split("/", 1)[1]].name

    def write(
        self,
        directory: Path,
        size: dict[str, float],
        *,
        timeout_s: float | None = None,
        together: int = 1,
        question: str | None = None,
    ) -> Path:
        """Writes study.toml and its policies into ``directory``; ``size`` is its ``executions`` or ``minutes``."""
        directory.mkdir(parents=True, exist_ok=True)
        named = zip(self.names(), self.settings, strict=True)
        policies = [setting.table(name, directory) for name, setting in named]
        shown = ", ".join(setting.name for setting in self.settings[1:]) or "nothing"
        table = workload(self.argv, self.cwd, timeout_s if timeout_s is not None else self.timeout_s)
        if self.regex is not None:
            table["measure"] = {"regex": self.regex}
        study = {
            "name": "try",
            "question": question
            or f"What does {shown} change for {' '.join(self.argv)}, compared with {self.settings[0].name}?",
            **size,
            "warmups": 0,
            "together": together,
            "seed": self.seed,
            "level": self.level,
            "metric": self.metric or ("cpu_s" if self.co_run else "wall_s"),
            **({"co_run": True} if self.co_run else {}),
            "workload": [table],
            "policy": policies,
        }
        spec = directory / "study.toml"
        whole_file.put(spec, dumps(study))
        return spec


@dataclass(frozen=True)
class Pilot:
    """Duration of one block, measured after an execution that has read the files from the disk."""

    block_s: float
    spent_s: float
    metric_why: str = ""
    """The reason where pagelab chose another metric than wall time; else empty."""

    def minutes_for(self, blocks: int) -> float:
        """Minutes for this many blocks, including the pilot."""
        return minutes_for(blocks, self.block_s, spent_s=self.spent_s)


def run_try(wanted: Trying, directory: Path, tools: Tools, progress: Progress | None = None) -> tuple[Pilot, int]:
    """Runs a pilot, then a study of as many whole blocks as fit into the budget; returns the pilot and their number.

    Raises BadInputError where the command fails, or where the budget is too small for any answer.
    """
    progress = progress or Silent()
    if wanted.co_run and len(wanted.settings) != 2:
        raise BadInputError(f"--co-run runs two settings at once, and these are {len(wanted.settings)}; give it two")
    pilot = _pilot(wanted, directory / TRIAL, tools)
    if wanted.regex is not None and wanted.metric is None:
        wanted = replace(wanted, metric=only_measurement(directory / TRIAL / "0"))
    elif wanted.co_run:
        pilot = replace(pilot, metric_why=CO_RUN)
    elif wanted.metric is None:
        with Store.open(directory / TRIAL / "1", write=False) as store:
            metric, why = metric_of(store.runs())
        wanted, pilot = replace(wanted, metric=metric), replace(pilot, metric_why=why)
    left = wanted.minutes - pilot.spent_s / 60
    if 60 * left < wanted.fewest * pilot.block_s:
        raise BadInputError(
            f"one execution of each takes {shown_duration(max(1, pilot.block_s))}: {wanted.fewest} of each, the fewest "
            f"that can show a difference, need --minutes {pilot.minutes_for(wanted.fewest):g}"
        )
    spec = wanted.write(directory, {"minutes": max(round(left, 4), LEAST_MINUTES)})
    run_own(spec, directory, tools, progress, _CANNOT, pilot.spent_s)
    with Store.open(directory, write=False) as store:
        blocks = store.plan().executions
        return replace(pilot, block_s=max(spent_s(store) / blocks, 1e-3)), blocks


def _pilot(wanted: Trying, directory: Path, tools: Tools) -> Pilot:
    """Runs one execution, then a block with one of each setting; ends where the budget cannot hold enough blocks."""
    in_turn = wanted.in_turn
    allowed = 60 * wanted.minutes / wanted.fewest / in_turn
    began = monotonic()
    limit = max(1.0, 2 * allowed)
    if wanted.timeout_s is not None:
        limit = min(limit, wanted.timeout_s)
    alone = replace(wanted, settings=wanted.settings[:1], co_run=False)
    durations = []
    for number, part in enumerate((alone, wanted)):
        runs = _trial(part, directory / str(number), tools, limit)
        late = runs.filter(pl.col("status") == "timed-out").height
        if late and limit != wanted.timeout_s:
            executions = wanted.fewest * in_turn
            raise BadInputError(
                f"one execution takes more than {shown_duration(limit)}; {wanted.minutes:g} min for {executions} "
                f"executions allow {allowed:.2g} s each; {unknown_time(wanted.minutes, wanted.argv)}"
            )
        # The first execution alone tells nothing of the other settings.
        conditions = len(part.settings) + (part is alone)
        counts = counts_time_outs(wanted.metric, wanted.regex) and limit == wanted.timeout_s
        failed = stopping(failures_of(directory / str(number)), conditions, own_limit=counts)
        if failed:
            raise BadInputError(told(failed, part.typed))
        taken = dict(zip(runs["policy"], runs["duration_s"], strict=True))
        durations.append((max if part.co_run else sum)(taken.values()))
    # One slow execution must not make the study too short: of the first setting's two the smaller counts.
    excess = 0.0 if wanted.co_run else max(0.0, taken[wanted.names()[0]] - durations[0])
    return Pilot(max(durations[1] - excess, 1e-3), monotonic() - began)


def _trial(wanted: Trying, directory: Path, tools: Tools, limit: float) -> pl.DataFrame:
    """Runs one block; returns its runs. The study measures the machine's noise, not this trial."""
    spec = wanted.write(directory, {"executions": 1}, timeout_s=limit)
    run_own(spec, directory, replace(tools, noise=lambda _plan: None), Silent(), _CANNOT)
    with Store.open(directory, write=False) as store:
        return store.runs()
