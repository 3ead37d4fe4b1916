"""The phases of a diagnosis: pilot, probe, exploration, confirmation. Each is a study and can be continued.

Directory: ``DIR`` is the exploration's study (``pagelab report DIR`` works); ``DIR/pilot``, ``DIR/probe`` and
``DIR/confirmation`` are studies too; ``DIR/diagnose.json`` has what was asked and what was decided on the way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab import whole_file
from pagelab.diagnose import allocate, judge, specs
from pagelab.diagnose.model import Pin, Settings, Source
from pagelab.diagnose.sources import CONTROL_COPIES, sources
from pagelab.errors import BadInputError, RunFailedError, quoted
from pagelab.study.answering import is_untested
from pagelab.study.claim import Claimed, claim
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import NothingStartsError, SpecError
from pagelab.study.host_backing import needed_in
from pagelab.study.launching import tells_noise
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_text
from pagelab.study.primary import waited
from pagelab.study.progress import Progress
from pagelab.study.store import NAME, Store
from pagelab.study.tools import Tools

STATE = "diagnose.json"
PILOT = "pilot"
"""Folder of the first phase, the first that a diagnosis makes."""
VALUES = 5
"""Values of a drawn source when the budget allows."""
_ASLR = Path("/proc/sys/kernel/randomize_va_space")


@dataclass
class State:
    """The contents of ``diagnose.json``: all decisions that a continued diagnosis must keep."""

    settings: Settings
    sources: list[Source] = field(default_factory=list)
    """Those of the exploration, with the values it has; empty until it is planned."""
    blocks: int = 0
    wanted_minutes: float | None = None
    recommended: tuple[str, str] | None = None
    """Source and pin."""
    confirmed_runs: int = 0

    def save(self, directory: Path) -> None:
        data = {
            "schema": "pagelab.diagnose/1",
            "settings": self.settings.model_dump(),
            "sources": [source.model_dump() for source in self.sources],
            "blocks": self.blocks,
            "wanted_minutes": self.wanted_minutes,
            "recommended": self.recommended,
            "confirmed_runs": self.confirmed_runs,
        }
        whole_file.put(directory / STATE, json.dumps(data, indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> State:
        try:
            data = json.loads((directory / STATE).read_text(encoding="utf-8"))
            chosen = data["recommended"]
            return cls(
                Settings.model_validate(data["settings"]),
                [Source.model_validate(source) for source in data["sources"]],
                data["blocks"],
                data["wanted_minutes"],
                None if chosen is None else (chosen[0], chosen[1]),
                data["confirmed_runs"],
            )
        except (OSError, ValueError, KeyError) as error:
            raise BadInputError(
                f"cannot continue a diagnosis in {directory}: {error}; start one with: pagelab diagnose -- CMD"
            ) from None


class Campaign:
    """One diagnosis in one directory. Every method may be called again after an interruption."""

    def __init__(self, directory: Path, state: State, tools: Tools, progress: Progress) -> None:
        self.directory = directory
        self.state = state
        self._tools = tools
        self._progress = progress
        self._machine: dict[str, Any] = tools.machine()["machine"]

    def clear_unless_run(self, *, keep: bool) -> None:
        """Removes the written files if no run was possible; ``keep`` leaves the directory itself."""
        pilot = self.directory / PILOT
        if (pilot / NAME).exists():
            return
        (pilot / "study.toml").unlink(missing_ok=True)
        (self.directory / STATE).unlink(missing_ok=True)
        # Files of others in the directory stay.
        with suppress(OSError):
            if pilot.exists():
                pilot.rmdir()
            if not keep:
                self.directory.rmdir()

    def clear(self, *, keep: bool) -> None:
        """Removes a diagnosis whose budget is refused: no command could continue it."""
        for phase in (PILOT, "probe"):
            rmtree(self.directory / phase, ignore_errors=True)
        (self.directory / STATE).unlink(missing_ok=True)
        # Files of others in the directory stay.
        with suppress(OSError):
            if not keep:
                self.directory.rmdir()

    # -- phases ---------------------------------------------------------------------------------------------------

    def pilot(self) -> None:
        """A few executions of the default: does it run, and how long does it take?"""
        self._work(PILOT, [], executions=allocate.PILOT_RUNS - 1, copies=1, question="How long does it take?")
        failed = self._failures(PILOT)
        if failed:
            raise RunFailedError(
                f"the program does not run to its end, so nothing can be diagnosed: {next(iter(failed.values()))}; "
                f"see: pagelab study status {quoted(self.directory / 'pilot')}"
            )
        times = self.times(PILOT)[specs.DEFAULT]
        if not np.isfinite(times).all():
            raise BadInputError(
                f"no execution has the metric {self.state.settings.metric}; name another: --metric wall_s"
            )

    def plan(self) -> None:
        """Leaves out sources that cannot be switched, runs the others once each, and divides the budget."""
        if self.state.sources:
            return
        settings = self.state.settings
        found = [self._feasible(source) for source in self._all_sources()]
        wanted = allocate.wanted_blocks(judge.family(found), CONTROL_COPIES, settings.level)
        pins = specs.conditions(found)
        run_s = self._cost(PILOT)[specs.DEFAULT]
        allocate.before_probing(settings.minutes, run_s, len(pins) + specs.COPIES, wanted)
        self._work("probe", pins, executions=1, copies=1, question="Does it run with each source pinned?", warmups=0)
        failed = self._failures("probe")
        found = [_without(source, failed) for source in found]
        active = [source for source in found if source.left_out is None]
        cost = self._cost("probe") | {specs.DEFAULT: run_s}
        drawn = [[pin.name for pin in source.pins] for source in active if source.drawn]
        kept = [pin.name for pin in specs.conditions(found)]
        allocation = allocate.allocate(
            settings.minutes,
            self.spent_s(),
            {name: cost[name] for name in (specs.DEFAULT, *kept)},
            drawn,
            specs.COPIES,
            wanted,
        )
        self.state.sources = [
            source.model_copy(update={"pins": source.pins[: allocation.values]}) if source.drawn else source
            for source in found
        ]
        self.state.blocks, self.state.wanted_minutes = allocation.blocks, allocation.wanted_minutes
        self.state.save(self.directory)

    def explore(self) -> dict[str, NDArray[np.float64]]:
        """The exploration; condition → times by block, NaN where an execution failed."""
        pins = specs.conditions(self.state.sources)
        question = "Which source of variance between executions makes the run time jump?"
        self._work("", pins, executions=self.state.blocks, copies=specs.COPIES, question=question)
        return self.times("")

    def confirm(self, source: str, pin: Pin, controls: list[Pin], executions: int) -> dict[str, NDArray[np.float64]]:
        """Fresh, interleaved executions of the default, of the recommendation and of its controls."""
        if self.state.recommended is None:
            self.state.recommended, self.state.confirmed_runs = (source, pin.name), executions
            self.state.save(self.directory)
        question = "Does the recommendation hold in executions that had no part in finding it?"
        # Another seed: another order, another draw.
        settings = self.state.settings.model_copy(update={"seed": self.state.settings.seed + 1})
        pins = [pin, *controls]
        self._work("confirmation", pins, executions=executions, copies=1, question=question, settings=settings)
        return self.times("confirmation")

    def block_s(self, pins: Sequence[Pin]) -> float:
        """Seconds for one execution of the default and one of each of ``pins``, as the exploration saw them."""
        cost = self._cost("")
        return cost[specs.DEFAULT] + sum(cost[pin.name] for pin in pins)

    # -- the studies ----------------------------------------------------------------------------------------------

    def _work(
        self,
        phase: str,
        pins: list[Pin],
        *,
        executions: int,
        copies: int,
        question: str,
        warmups: int = 1,
        settings: Settings | None = None,
    ) -> None:
        """Runs the study of a phase to its end, from its present state."""
        directory = self.directory / phase
        if (directory / NAME).exists():
            with Store.open(directory, write=False) as store:
                done = len(store.finished()) == len(store.slots())
            if not done:
                resume_study(directory, self._tools, progress=self._progress)
            return
        text = specs.study_toml(
            settings or self.state.settings,
            f"diagnose-{phase or 'exploration'}",
            pins,
            executions=executions,
            warmups=warmups,
            copies=copies,
            question=question,
        )
        directory.mkdir(parents=True, exist_ok=True)
        spec = directory / "study.toml"
        whole_file.put(spec, text)
        progress = _WithoutRepeats(self._progress, first=phase == PILOT)
        try:
            run_study(spec, directory, self._tools, progress=progress)
        except SpecError as error:
            raise BadInputError(error.without_file()) from None
        except NothingStartsError as error:
            if phase == PILOT:
                rmtree(directory, ignore_errors=True)
            raise BadInputError(f"this cannot be diagnosed: {error.reason}") from None

    def times(self, phase: str) -> dict[str, NDArray[np.float64]]:
        return times_of(self.directory / phase)

    def late(self, phase: str) -> dict[str, int]:
        """Policy → how many of its executions the time limit ended."""
        import polars as pl

        with Store.open(self.directory / phase, write=False) as store:
            runs = store.runs().filter(~pl.col("warmup") & (pl.col("status") == "timed-out"))
        counts = runs.group_by("policy").agg(pl.len())
        return {policy: int(count) for policy, count in counts.iter_rows()}

    def _cost(self, phase: str) -> dict[str, float]:
        """Policy → median seconds of an execution, with set-up, flushing and starting."""
        import polars as pl

        with Store.open(self.directory / phase, write=False) as store:
            costs = store.runs().group_by("policy").agg(pl.col("duration_s").median())
        return {policy: max(float(cost or 0.0), 1e-3) for policy, cost in costs.iter_rows()}

    def _failures(self, phase: str) -> dict[str, str]:
        """Policy → why an execution of it failed."""
        import polars as pl

        with Store.open(self.directory / phase, write=False) as store:
            failed = store.runs().filter(pl.col("status") != "ok").select("policy", "status", "message")
        return {policy: message or status for policy, status, message in failed.iter_rows()}

    def waited(self) -> str | None:
        """Words on the pilot's waiting for a processor, where wall time is judged and processor time would stand for
        it.
        """
        import polars as pl

        if self.state.settings.metric != "wall_s":
            return None
        with Store.open(self.directory / PILOT, write=False) as store:
            return waited(store.runs().filter(~pl.col("warmup")))

    def spent_s(self) -> float:
        """Seconds that the executions of all phases took so far."""
        total = 0.0
        for phase in (PILOT, "probe", "", "confirmation"):
            if (self.directory / phase / NAME).exists():
                with Store.open(self.directory / phase, write=False) as store:
                    total += sum(row[0] for row in store.rows("SELECT duration_s FROM run WHERE duration_s NOT NULL"))
        return total

    def executions(self) -> int:
        """Executions of the exploration that count."""
        with Store.open(self.directory, write=False) as store:
            return int(store.rows("SELECT count(*) FROM run JOIN schedule USING (position) WHERE block >= 0")[0][0])

    # -- what can be switched here --------------------------------------------------------------------------------

    def _all_sources(self) -> list[Source]:
        try:
            mode = int(_ASLR.read_text())
        except (OSError, ValueError):
            mode = None
        return sources(self.state.settings, self._machine, mode, VALUES, needed_in(self.directory / PILOT))

    def _feasible(self, source: Source) -> Source:
        """The source without the values that this machine cannot do."""
        if source.left_out is not None:
            return source
        reasons = {}
        for condition in self._conditions([*source.pins, *source.controls]):
            reason = self._tools.check(condition)
            if reason is not None:
                reasons[condition.policy] = reason
        return _without(source, reasons)

    def _conditions(self, pins: list[Pin]) -> list[Condition]:
        text = specs.study_toml(
            self.state.settings, "feasible", pins, executions=1, warmups=0, copies=1, question="Can it be done here?"
        )
        plan = plan_text(text, self.directory / "study.toml", self.directory)
        return [condition for condition in plan.conditions if condition.policy != specs.DEFAULT]

    @property
    def colour_verdict(self) -> dict[str, Any] | None:
        """Of ``doctor --probe-colours``, where there is one by now: the first phase that places frames makes one."""
        found: dict[str, Any] | None = self._tools.machine()["machine"].get("colour_verdict")
        return found


class _WithoutRepeats:
    """Passes on a session's messages, those common to all phases only once; the stores keep all of them.

    That a phase's comparisons of times are not tested is not passed on: a diagnosis judges spreads, by its own tests.
    """

    def __init__(self, inner: Progress, *, first: bool) -> None:
        self._inner, self._first = inner, first
        self.start, self.running, self.finished, self.stop = inner.start, inner.running, inner.finished, inner.stop

    def note(self, text: str) -> None:
        if is_untested(text):
            return
        if self._first or not (tells_noise(text) or text.startswith("warning: ")):
            self._inner.note(text)


def times_of(directory: Path) -> dict[str, NDArray[np.float64]]:
    """Policy → the primary metric by block, NaN where an execution failed or has none.

    An execution that the time limit ended counts with the time it had, where wall time is judged: it took at least so
    long. To leave it out would take away the slowest, which are what a diagnosis is about.
    """
    import polars as pl

    with Store.open(directory, write=False) as store:
        plan = store.plan()
        known = ("ok", "timed-out") if plan.metric == "wall_s" else ("ok",)
        runs = store.runs().filter(~pl.col("warmup") & pl.col("status").is_in(known))
        joined = runs.select("run_id", "policy", "block").join(store.metric(plan.metric), on="run_id")
        found = {each.policy: np.full(plan.executions, np.nan) for each in plan.active()}
        for policy, block, value in joined.select("policy", "block", "value").iter_rows():
            found[policy][block] = value
    return found


def _without(source: Source, reasons: dict[str, str]) -> Source:
    """The source without impossible pins, or pins without a control; left out if none remains."""
    if source.left_out is not None:
        return source
    controls = [control for control in source.controls if control.name not in reasons]
    kept = [
        pin
        for pin in source.pins
        if pin.name not in reasons
        and (not source.controls or any(control.control_of in (None, pin.name) for control in controls))
    ]
    if len(kept) == len(source.pins) and len(controls) == len(source.controls):
        return source
    names = {pin.name for pin in kept}
    controls = [control for control in controls if control.control_of is None or control.control_of in names]
    reason = next(reasons[pin.name] for pin in (*source.pins, *source.controls) if pin.name in reasons)
    if not kept and not any(pin.name in reasons for pin in source.pins):
        reason = f"what it is compared with cannot run: {reason}"
    return source.model_copy(update={"pins": kept, "controls": controls, "left_out": None if kept else reason})


def new_directory(directory: Path) -> Claimed:
    """The directory for this diagnosis alone. Raises BadInputError if it holds something already or cannot be made."""
    if (directory / STATE).exists():
        raise BadInputError(
            f"{directory} holds a diagnosis; continue it with: pagelab diagnose --resume {quoted(directory)}; "
            "or choose another directory with: --into DIR"
        )
    claimed = claim(directory, PILOT)
    if claimed is None:
        raise BadInputError(f"{directory} exists and is not empty; choose another directory with: --into DIR")
    return claimed
