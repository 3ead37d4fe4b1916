"""Runs a campaign, from a command to a judged model: trial, counts, pilot, plan, rounds, fits.

Directory ``NAME.model``: ``campaign.json`` (request, plan and progress), ``model.json`` (read by ``model report`` and
``predict``), ``program.trace`` and ``counts.json`` if counts are simulated, and a study each for ``trial``, ``pilot``
and ``round-1`` … Every step is saved before the next begins, so that a killed campaign can go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from pagelab import layouts as making
from pagelab.errors import BadInputError, MachineError, quoted
from pagelab.layouts import Footprint, Layout, footprint
from pagelab.layouts.footprint import lacks_huge_pages, no_huge_pages
from pagelab.machine.sysfs import Tree
from pagelab.model_run import choosing, document, executions, planning
from pagelab.model_run.answer import measured
from pagelab.model_run.choosing import Space
from pagelab.model_run.document import Asked, Campaign, LayoutRow, Round, Trial
from pagelab.model_run.estimate import Noise
from pagelab.model_run.executions import CANNOT, TRIAL, Execution, trial_records
from pagelab.model_run.points import FEWEST_EXECUTIONS, gathered, left_out, simulated_by
from pagelab.model_run.simulation import PROCESSOR, TRACE, Expectation, Simulator, needed, uncalibrated
from pagelab.models.answer import UNCALIBRATED
from pagelab.models.catalogue import IN_CYCLES, models
from pagelab.models.document import FILE, ModelFile, Told, file_of, fits_of
from pagelab.models.document import read as read_model
from pagelab.models.document import write as write_model
from pagelab.models.judgement import FOLDS, judge
from pagelab.models.points import varies
from pagelab.record import Record, WarningKind
from pagelab.study.budget import unknown_time
from pagelab.study.errors import StudyInterruptedError
from pagelab.study.interrupts import Interrupts
from pagelab.study.lock import DirectoryLock
from pagelab.study.progress import Progress, Silent, Titled, shown_duration
from pagelab.study.setting import Setting, program_name
from pagelab.study.store import NAME as STORE
from pagelab.study.tools import Tools

PILOT = "pilot"
GOES_ON = "what ran is kept, and the same command goes on from there"
_ALL_HUGE = "\n".join(f'[[rule]]\nmemory = "{pool}"\npages = "2M"\n' for pool in ("heap", "anon", "arenas"))
_PILOT_SHARE = 0.08
"""Share of the minutes that the pilot may take."""
_PILOT_BLOCKS = (3, 10)
_SIMULATED_SHARE = 0.25
"""Share of the remaining minutes for simulating candidates, which may never run."""
_MARGIN = 0.95
_TRIED_BY = {"argv", "cwd", "counts", "timeout_s"}
"""What of a request its trial depends on."""
_TRACED_BY = {"argv", "cwd", "window"}
"""What of a request its own trace depends on, beside that of every reference."""
_PLANNED_BY = {"minutes", "layouts", "tests", "aim", "estimator"}
"""What only the plan depends on, and what follows it."""
_KERNELS, _KERNELS_APART = 0.05, 0.02
"""The kernel's share of a window's time, and the difference of it between the anchors, from which on it is told."""
_FREE_BYTES = 256 << 20
"""Memory that must stay free beside the program's."""


@dataclass
class Session:
    """A campaign in progress: its file's content, its directory and its tools."""

    directory: Path
    tools: Tools
    progress: Progress
    campaign: Campaign
    began: float
    before_s: float
    ending: str = ""
    """Why no more layouts are chosen; set while the remaining test layouts have their round."""
    fewest_runs: int = planning.FEWEST_RUNS
    """Least number of executions for a result; an execution that takes more than its share of the minutes is ended."""

    @property
    def asked(self) -> Asked:
        """The campaign's request."""
        return self.campaign.asked

    @property
    def left_s(self) -> float:
        """Seconds that remain of the minutes."""
        return 60 * self.asked.minutes - self.spent_s

    @property
    def spent_s(self) -> float:
        """Seconds spent in this session and in those before."""
        return self.before_s + monotonic() - self.began

    def keep(self, **changes: Any) -> None:
        """Updates the campaign with these changes and writes its file."""
        self.campaign = self.campaign.model_copy(update={**changes, "spent_s": self.spent_s})
        document.write(self.directory, self.campaign)

    def tell(self, kind: str, message: str) -> None:
        """Adds a warning for readers, unless it is there already."""
        if all(one.message != message for one in self.campaign.told):
            self.progress.note(message)
            self.keep(told=[*self.campaign.told, Told(kind=kind, message=message)])

    def study(self, name: str, layouts: Sequence[Layout | Setting], repeats: int, *, titled: bool = True) -> Path:
        """Runs a study (or the rest of it) in the campaign's directory; returns the study's directory."""
        directory = self.directory / name
        trial = self.campaign.trial
        counting = self.asked.counts != "simulated" if trial is None else trial.counts == "counted"
        limit = max(1.0, 60 * self.asked.minutes / self.fewest_runs)
        if self.asked.timeout_s is not None:
            limit = self.asked.timeout_s if trial is not None else min(limit, self.asked.timeout_s)
        spec = directory / "study.toml"
        if not (directory / "study.db").exists():
            spec = executions.study(
                self.asked,
                directory,
                layouts,
                repeats,
                counting=counting,
                active=counting and (self.tools.has_event(executions.ACTIVE) if trial is None else trial.active),
                timeout_s=limit if trial is None or self.asked.timeout_s is not None else None,
                seed=self.asked.seed + len(self.campaign.rounds),
            )
        shown: Progress = Titled(self.progress, name, notes=False) if titled else Silent()
        try:
            executions.run(spec, directory, self.tools if titled else executions.quiet(self.tools), shown)
        except StudyInterruptedError as error:
            self.keep()
            kept = str(error).partition(";")[0]
            raise StudyInterruptedError(f"{kept}; {GOES_ON}") from None
        return directory


def run(
    asked: Asked, directory: Path, tools: Tools, progress: Progress | None = None, *, dry_run: bool = False
) -> Campaign:
    """Makes the model, or goes on with it; with ``dry_run`` stops when the plan is made.

    Raises `BadInputError` if the command fails, the minutes are too few, or ``directory`` has another campaign;
    `MachineError` if this machine cannot count as requested, 2M pages are not available, or the campaign began on
    another machine.
    """
    with locked(directory):
        session = session_of(asked, directory, tools, progress or Silent())
        if not dry_run and _is_done(session):
            return session.campaign
        with stoppable(session):
            try_it(session)
            space, simulator = _counts(session)
            tests = _tests(session, space)
            noise = _pilot(session, space)
            chosen_from = _plan(session, noise, space, tests, simulator)
            if not dry_run:
                _rounds(session, chosen_from, simulator)
                _fit(session, simulator)
        return session.campaign


def _is_done(session: Session) -> bool:
    """Whether the model is made, of all rounds; then neither a run nor a pass over the trace is needed."""
    file = session.directory / FILE
    if session.campaign.stopped is None or not file.exists() or read_model(file).fits is None:
        return False
    stores = (session.directory / one.directory / STORE for one in session.campaign.rounds)
    return all(store.stat().st_mtime <= file.stat().st_mtime for store in stores if store.exists())


@contextmanager
def stoppable(session: Session) -> Iterator[None]:
    """Turns a signal outside of the studies, as in a simulation, into the error that says how to go on; keeps a
    refusal, after which another request may follow."""
    with Interrupts() as interrupts:
        try:
            with interrupts.abandonable():
                yield
        except KeyboardInterrupt:
            session.keep()
            raise StudyInterruptedError(f"stopped by {interrupts.seen}; {GOES_ON}") from None
        except (BadInputError, MachineError) as error:
            session.keep(refused=str(error))
            raise


def locked(directory: Path) -> DirectoryLock:
    """Locks the campaign's directory, which is made if missing, for one campaign at a time."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot make {directory}: {error.strerror}; choose another with: --into DIR") from None
    return DirectoryLock(directory, lambda who: f"{directory} is in use by {who}; wait for it, or: --into DIR")


def session_of(
    asked: Asked, directory: Path, tools: Tools, progress: Progress, fewest_runs: int = planning.FEWEST_RUNS
) -> Session:
    """Begins the campaign of a directory, or goes on with it.

    Raises `BadInputError` if the directory has another campaign that is under way, `MachineError` if it began on
    another machine.
    """
    found = document.read(directory)
    if found is None:
        if any(one.name != ".lock" for one in directory.iterdir()):
            raise BadInputError(f"{directory}: it exists and holds no campaign; choose another directory: --into DIR")
        found = Campaign(asked=asked, workload=program_name(asked.argv[0]), machine=tools.machine())
    found = _continued(asked, found, directory, tools)
    found = found.model_copy(update={"refused": None})
    session = Session(directory, tools, progress, found, monotonic(), found.spent_s, fewest_runs=fewest_runs)
    refuse_other_machine(session)
    session.keep()
    return session


def _continued(asked: Asked, found: Campaign, directory: Path, tools: Tools) -> Campaign:
    """The campaign with this request; if it is another one, or the program was built anew after a refusal, what still
    fits is kept.

    Raises `BadInputError` for another request once there is a plan, and if the campaign was stopped rather than
    refused: its trace may have taken long.
    """
    before, now = found.asked.model_dump(), asked.model_dump()
    changed = {key for key in now if now[key] != before[key]}
    ran = {store.parent.name for store in directory.glob(f"*/{STORE}")}
    planned = found.plan is not None or not ran <= {TRIAL, PILOT}
    if changed and (planned or (found.refused is None and found.trial is not None and changed != {"minutes"})):
        raise BadInputError(
            f"{directory} holds a campaign with another request (different: {', '.join(sorted(changed))}); repeat its "
            "request to continue it, or begin another campaign: --into DIR"
        )
    if planned or (found.refused is None and not changed):
        return found
    rebuilt = executions.is_rebuilt(directory / TRIAL)
    (directory / PROCESSOR).unlink(missing_ok=True)
    if not changed and (directory / PILOT).exists():
        shutil.rmtree(directory / PILOT)  # the same command after a refusal: what was refused is measured anew
    elif not changed:
        changed = _TRIED_BY - _TRACED_BY
    if changed <= _PLANNED_BY and not rebuilt:
        return found.model_copy(update={"asked": asked})
    return _begun_anew(asked, found, directory, tools, set(before) if rebuilt else changed)


def _begun_anew(asked: Asked, found: Campaign, directory: Path, tools: Tools, changed: set[str]) -> Campaign:
    """A campaign in the place of another; its trial and its trace are kept if they do not depend on what changed."""
    same_trial, same_trace = not changed & _TRIED_BY, not changed & _TRACED_BY
    for study in [PILOT] if same_trial else [PILOT, TRIAL]:
        shutil.rmtree(directory / study, ignore_errors=True)
    if not same_trace:
        (directory / TRACE).unlink(missing_ok=True)
    machine = found.machine if same_trial or same_trace else tools.machine()
    return Campaign(asked=asked, workload=program_name(asked.argv[0]), machine=machine)


def refuse_other_machine(session: Session) -> None:
    """Warns of changes since the beginning. Raises `MachineError` on another machine."""
    changes = executions.refuse_other_machine(session.directory, session.campaign, session.tools)
    if changes:
        session.tell("machine-changed", f"the machine changed since the campaign began: {'; '.join(changes)}")


def try_it(session: Session) -> None:
    """Runs the trial, one execution in 4K and one in 2M pages; it decides what is measured and the source of counts."""
    settings: list[Layout | Setting] = [Layout("4K", ()), Setting("2M", f'name = "2M"\n{_ALL_HUGE}')]
    if session.campaign.trial is not None:
        return
    _forget_failed(session.directory / TRIAL)
    directory = session.study(TRIAL, settings, 1, titled=False)
    runs = _tried(session, directory)
    if lacks_huge_pages(trial_records(directory)["2M"]):
        # Another run may have switched them off for as long as it takes.
        session.progress.note("the kernel gave the program no 2M page; once more")
        shutil.rmtree(directory)
        directory = session.study(TRIAL, settings, 1, titled=False)
        runs = _tried(session, directory)
    records = trial_records(directory)
    if lacks_huge_pages(records["2M"]):
        raise MachineError(no_huge_pages(CANNOT))
    if any(one.short for one in runs if one.layout == "2M"):
        session.progress.note(
            f"in 2M pages the program got {executions.tiles_got(directory, '2M')}; executions that do not get their "
            "pages are left out"
        )
    window = _window(directory, session.asked.window)
    executions.refuse_overlaps(directory, window)
    own = executions.read(directory, window)
    source, why = _source(session.asked, own, records["4K"])
    resident = max(one.resident_bytes for one in runs)
    _refuse_little_memory(resident)
    trial = Trial(
        counts="counted" if source else "simulated",
        counts_why=why,
        window=window,
        resident_bytes=resident,
        run_s=max(one.duration_s for one in runs),
        faults_share=next(one.faults_share for one in own if one.layout == "4K"),
        active=source and _active(own, records.values()),
    )
    session.keep(trial=trial)
    if window is None:
        session.tell(
            "no-window",
            f"the program marks no window: R is {measured(None, counted=source)}, and {trial.faults_share:.0%} of the "
            "processor time was the kernel's (faults); mark the phase with pagelab_begin (docs/api.md)",
        )
    told = kernels_share({one.layout: one.faults_share for one in own}, counted=source)
    if window is not None and told:
        session.tell("kernel-in-window", told)


def kernels_share(shares: Mapping[str, float], *, counted: bool) -> str:
    """A warning if the kernel has a share of the window's time, or not the same in both anchors; else nothing.

    A window's R includes the kernel's time. That of page faults falls with 2M pages as walks do, so models take it for
    translation.
    """
    small, large = shares["4K"], shares["2M"]
    if max(small, large) < _KERNELS and abs(small - large) < _KERNELS_APART:
        return ""
    where = ", unless cycles are counted in user mode alone," if counted else ""
    return (
        f"the kernel had {small:.0%} of the window's processor time in 4K pages and {large:.0%} in 2M pages (page "
        f"faults, system calls): R includes it{where} and models take what differs for translation; touch memory "
        "before pagelab_begin"
    )


def _forget_failed(study: Path) -> None:
    """Removes a trial or pilot in which an execution failed: the program, or the minutes, may be others now."""
    if (study / STORE).exists() and any(one.status != "ok" for one in executions.read(study, None)):
        shutil.rmtree(study)


def _tried(session: Session, directory: Path) -> list[Execution]:
    """The trial's executions. Raises `BadInputError` if one failed or takes longer than the minutes allow."""
    runs = executions.read(directory, None)
    late = next((one for one in runs if one.status == "timed-out"), None)
    if late is not None and session.asked.timeout_s is None:
        raise BadInputError(
            f"one execution takes more than {shown_duration(late.duration_s)}, and at least {session.fewest_runs} are "
            f"needed; {unknown_time(session.asked.minutes, session.asked.argv)}"
        )
    executions.refuse_failed(runs)
    return runs


def _window(directory: Path, asked: str | None) -> str | None:
    names = executions.windows(directory)
    if asked is not None:
        if asked not in names:
            has = f"it has {', '.join(names)}" if names else "it marks none"
            raise BadInputError(f"--window {asked}: the program has no window of this name in every execution; {has}")
        return asked
    if len(names) > 1:
        raise BadInputError(f"the program has windows {', '.join(names)}; name the one that is modelled: --window NAME")
    return names[0] if names else None


def _source(asked: Asked, runs: Sequence[Execution], record: Record) -> tuple[bool, str]:
    """Whether counts are the hardware's, and why."""
    if asked.counts == "simulated":
        return False, "asked for"
    missing = sorted({name for one in runs for key, name in executions.COUNTED.items() if key not in one.counts})
    if not missing:
        return True, "this machine counts them"
    warnings = [
        one.message
        for one in record.warnings
        if "counter" in one.kind and one.data.get("counters") != [executions.ACTIVE]
    ]
    told = next(iter(warnings), "they did not count")
    why = f"{', '.join(missing)}: {told.split(': ')[0]}"
    if asked.counts == "measured":
        raise MachineError(
            f"--counts measured: this machine does not count {why}; what it would need: pagelab doctor; or "
            "simulate them: --counts simulated"
        )
    return False, f"this machine does not count {why}"


def _active(runs: Sequence[Execution], records: Iterable[Record]) -> bool:
    """Whether to count cycles with a walk active: not if more events than counters make them take turns."""
    turns = any(one.kind == WarningKind.COUNTER_MULTIPLEXED for record in records for one in record.warnings)
    return not turns and all("active" in one.counts for one in runs)


def _refuse_little_memory(resident: int) -> None:
    lines = Tree().text("/proc/meminfo").splitlines()
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    if available is not None and resident + _FREE_BYTES > available:
        raise MachineError(
            f"in 2M pages the program takes {resident >> 20} MiB, and {available >> 20} MiB are available: layouts "
            "would not get their pages; free memory, or take a smaller input"
        )


def _counts(session: Session) -> tuple[Footprint, Simulator | None]:
    """The used tiles, and the simulator if counts or choices need one."""
    trial, asked = session.campaign.trial, session.asked
    assert trial is not None
    records = trial_records(session.directory / TRIAL)
    if trial.counts == "counted" and asked.select == "random":
        space = footprint.of_record(records["2M"])
        session.keep(footprint=list(space.tiles))
        return space, None
    tiles = session.campaign.footprint if session.campaign.simulated is not None else []
    known = Footprint(tuple(tiles)) if tiles else None
    simulated, space = needed(asked, session.directory, trial, session.progress.note, known)
    refuse_other_input(session, space, records)
    session.keep(simulated=simulated, footprint=list(space.tiles))
    why = uncalibrated(simulated, session.directory) if trial.counts == "simulated" else None
    if why is not None:
        session.tell(
            UNCALIBRATED,
            f"C is not calibrated to this machine ({why}): models whose slopes are cycles ({', '.join(IN_CYCLES)}) may "
            "be off by its scale; pagelab doctor --probe-translation",
        )
    return space, Simulator(session.directory, simulated, session.progress.note)


def refuse_other_input(session: Session, traced: Footprint, records: dict[str, Record]) -> None:
    """Raises `BadInputError` if the trace is of other memory than the trial. A trace of the campaign's own, and the
    trial, are then removed: the program may do the same every time when the command is repeated."""
    trial = session.campaign.trial
    assert trial is not None
    try:
        footprint.refuse_other_input(traced, records, session.asked.argv, whole=trial.window is None)
    except BadInputError:
        if session.asked.trace is None and session.campaign.plan is None:
            (session.directory / TRACE).unlink(missing_ok=True)
            session.keep(trial=None, simulated=None, footprint=[])
        raise


def _tests(session: Session, space: Footprint) -> list[Layout]:
    """The test layouts. Raises `BadInputError` if the program's tiles have too few layouts for them and a model."""
    planning.refuse_few_tiles(len(space), session.asked.tests)
    return [row.layout() for row in session.campaign.tests] or making.judges(
        space, session.asked.tests, without=making.anchors(space), seed=session.asked.seed
    )


def _pilot(session: Session, space: Footprint) -> Noise:
    """Runs repeats of the two anchors for the noise and the duration of an execution; returns the noise."""
    trial = session.campaign.trial
    assert trial is not None
    fitting = int(_PILOT_SHARE * 60 * session.asked.minutes / (2 * trial.run_s))
    blocks = min(max(fitting, _PILOT_BLOCKS[0]), _PILOT_BLOCKS[1])
    if session.campaign.plan is None:
        _forget_failed(session.directory / PILOT)
    directory = session.study(PILOT, making.anchors(space), blocks)
    runs = executions.read(directory, trial.window)
    executions.refuse_failed(runs)
    _refuse_short_anchors(directory, runs)
    times = {name: [one.r_s for one in runs if one.layout == name and one.r_s is not None] for name in ("4K", "2M")}
    if any(len(values) < 2 or min(values) <= 0 for values in times.values()):
        raise BadInputError(
            "the measured phase takes too little processor time to be measured; give the program more to do in it, or "
            "measure another window: --window NAME"
        )
    return Noise.of(times, session.asked.estimator)


def _refuse_short_anchors(pilot: Path, runs: Sequence[Execution]) -> None:
    """Raises `BadInputError` if an anchor got its pages in too few executions of the pilot: a campaign would show the
    same, and leave the anchor out at its end."""
    for size in ("4K", "2M"):
        own = [one for one in runs if one.layout == size]
        short = sum(one.short for one in own)
        if len(own) - short < FEWEST_EXECUTIONS:
            raise BadInputError(
                f"the layout of {size} pages alone got {executions.tiles_got(pilot, size)} in {short} of {len(own)} "
                "executions of the pilot, and no model can be judged without it: a program splits a tile if it forks, "
                "or protects, unmaps or discards a part of it; or another program's policy had switched 2M pages off "
                f"meanwhile (pagelab doctor), then begin again: --into DIR; every execution: pagelab study status "
                f"{quoted(pilot)}; what 2M pages do for the program as it gets them: pagelab try -- CMD"
            )


def _plan(
    session: Session, noise: Noise, footprint_: Footprint, tests: Sequence[Layout], simulator: Simulator | None
) -> list[Layout]:
    """Fixes the plan and the test layouts; returns the layouts that may be chosen."""
    asked, campaign = session.asked, session.campaign
    knows_c = campaign.trial is not None and campaign.trial.counts == "simulated"
    run_s = float(np.mean([one.duration_s for one in executions.read(session.directory / PILOT, None)]))
    if campaign.plan is None:
        _refuse_few_minutes(session, run_s, footprint_, tests, simulator, knows_c=knows_c)
    misses = None if simulator is None else simulator.profile(footprint_).misses
    space = Space(footprint_, misses, tuple(tests), asked.seed)
    if simulator is not None and campaign.plan is None:
        simulator.measure(tests)
        simulator.expected = None
    most = _most_candidates(session, simulator)
    allowed = _candidates(session, space, simulator, most)
    if campaign.plan is None:

        def simulating_s(layouts: int) -> float:
            """Seconds of simulation in a campaign of so many layouts."""
            if simulator is None:
                return 0.0
            known = allowed if asked.select == "adaptive" else allowed[:layouts]
            return simulator.seconds(len(simulator.missing([*known, *tests])) + max(0, layouts - len(known)))

        plan = planning.plan(
            asked,
            noise,
            run_s,
            _MARGIN * session.left_s,
            # Moselect chooses the others by counts that are measured first.
            most if asked.select == "moselect" and not knows_c else len(allowed),
            knows_c=knows_c,
            simulating_s=simulating_s,
        )
        plan = plan.model_copy(update={"candidates": most})
        session.keep(plan=plan, tests=[LayoutRow.of(one, "test") for one in tests])
        session.progress.note(plan_text(session.campaign))
    if asked.select == "profile":
        assert session.campaign.plan is not None
        return choosing.profiled(space, session.campaign.plan.layouts, most)
    return allowed


def _refuse_few_minutes(
    session: Session,
    run_s: float,
    space: Footprint,
    tests: Sequence[Layout],
    simulator: Simulator | None,
    *,
    knows_c: bool,
) -> None:
    """Raises `BadInputError` if the smallest campaign exceeds the minutes: now, or as soon as a simulation has shown
    how long it takes."""
    fewest = planning.fewest_layouts(session.asked, len(space))

    def refuse(simulating_s: float) -> None:
        left_s = _MARGIN * session.left_s
        planning.refuse_few_minutes(session.asked, run_s, left_s, fewest, knows_c=knows_c, simulating_s=simulating_s)

    def expected(what: Expectation) -> None:
        assert simulator is not None
        others = simulator.missing([*making.anchors(space), *tests])
        further = max(0, fewest - planning.ANCHORS + len(others) - what.layouts)
        refuse(what.pass_s + further * what.each_s)

    refuse(0.0)
    if simulator is not None:
        simulator.expected = expected


def plan_text(campaign: Campaign) -> str:
    """The plan in a sentence or two."""
    plan, asked = campaign.plan, campaign.asked
    assert plan is not None
    rounds = f" in {'up to ' if plan.rounds > 1 else ''}{plan.rounds} round{'s' if plan.rounds > 1 else ''}"
    simulating = f", and {shown_duration(plan.simulating_s)} of simulation" if plan.simulating_s >= 1 else ""
    text = (
        f"plan: {plan.layouts} layouts and {plan.tests} test layouts, {plan.repeats} executions of each{rounds}: "
        f"{shown_duration(plan.executions * plan.run_s)}{simulating}; single runs scatter by {plan.run_sd:.1%}, so "
        f"that a perfect model would be off by up to {plan.perfect:.1%} (the median of its largest error)"
    )
    if plan.aim_minutes is not None:
        text += f"; for {asked.aim:.1%} give it --minutes {plan.aim_minutes:g}"
    return text


def _most_candidates(session: Session, simulator: Simulator | None) -> int:
    """The number of candidates: the plan's, or as many as can be simulated in their share of the time."""
    asked, campaign = session.asked, session.campaign
    most = asked.layouts or planning.SIZES[0]
    if campaign.plan is not None:
        return campaign.plan.candidates
    simulates = simulator is not None and campaign.trial is not None and campaign.trial.counts == "simulated"
    if asked.select == "moselect" and simulates and asked.layouts is None:
        assert simulator is not None
        # Each further layout follows from the C of those before, so that it has a pass of its own.
        fitting = int(_SIMULATED_SHARE * max(session.left_s, 0) / max(simulator.alone_s, 1e-3))
        return min(most, planning.FEWEST + fitting)
    if asked.select == "adaptive":
        assert simulator is not None
        fitting = int(_SIMULATED_SHARE * max(session.left_s, 0) / max(simulator.seconds(1), 1e-3))
        return min(choosing.MOST_CANDIDATES, max(asked.layouts or planning.FEWEST, fitting))
    return most


def _candidates(session: Session, space: Space, simulator: Simulator | None, most: int) -> list[Layout]:
    """At most so many distinct layouts to choose from, anchors first; the same ones whenever they are made."""
    asked = session.asked
    if asked.select == "adaptive":
        return choosing.candidates(space, most)
    if asked.select == "moselect":
        return _moselected(space, session.campaign, simulator, most)
    return choosing.fixed(asked.select, space, most)


def _moselected(space: Space, campaign: Campaign, simulator: Simulator | None, count: int) -> list[Layout]:
    """Moselect's first nine layouts, and with simulated counts all others, which depend on the known C alone."""
    assert space.misses is not None
    made = space.allowed(moselect_first(space))
    if simulator is None or campaign.trial is None or campaign.trial.counts == "counted":
        return made
    while len(made) < count:
        counts = [one.c for one in simulator.counts(made)]
        more = choosing.by_gaps(space, list(zip(made, counts, strict=True)), 1, len(made))
        if not more:
            break
        made += more
    return made


def moselect_first(space: Space) -> list[Layout]:
    """The nine layouts that moselect begins with."""
    from pagelab.layouts import moselect

    assert space.misses is not None
    return moselect.first_layouts(space.footprint, space.misses)


def _rounds(session: Session, allowed: list[Layout], simulator: Simulator | None) -> None:
    """Runs the rounds that are chosen already, then chooses and runs more until there is a reason to stop."""
    for known in session.campaign.rounds:
        session.study(known.directory, [row.layout() for row in known.layouts], known.repeats)
        refuse_other_machine(session)
    while session.campaign.stopped is None:
        following, why = _next(session, allowed, simulator)
        if following is None:
            session.keep(stopped=why)
            return
        session.keep(rounds=[*session.campaign.rounds, following])
        session.study(following.directory, [row.layout() for row in following.layouts], following.repeats)
        refuse_other_machine(session)


def _next(session: Session, allowed: list[Layout], simulator: Simulator | None) -> tuple[Round | None, str]:
    """The next round, or the reason for none. Remaining test layouts get a last round when nothing more is chosen."""
    campaign, asked = session.campaign, session.asked
    plan, trial, number = campaign.plan, campaign.trial, len(campaign.rounds)
    assert plan is not None
    assert trial is not None
    shape = planning.shape(asked.select, plan.layouts, plan.tests, knows_c=trial.counts == "simulated")
    run = {row.name for one in campaign.rounds for row in one.layouts}
    left = [row for row in campaign.tests if row.name not in run]
    if number == 0:
        first = _first(asked, allowed, simulator, shape.first)
        if simulator is not None:
            # Before the executions, since what remains of the minutes then is theirs.
            simulator.counts([*first, *(row.layout() for row in campaign.tests)])
        rows = [LayoutRow.of(one, "train") for one in first]
        tests = [campaign.tests[at] for at in shape.tests_of(0)]
        return Round(directory="round-1", repeats=plan.repeats, layouts=[*rows, *tests]), ""
    chosen, why = _chosen(session, allowed, simulator, shape, len(left)) if not session.ending else ([], session.ending)
    session.ending = "" if chosen else why
    tests = (
        left if not chosen else [row for row in left if row in [campaign.tests[at] for at in shape.tests_of(number)]]
    )
    if not chosen and not tests:
        return None, why
    rows = [LayoutRow.of(one, "train") for one in [*allowed[:2], *chosen]]
    return Round(directory=f"round-{number + 1}", repeats=plan.repeats, layouts=[*rows, *tests]), ""


def _chosen(
    session: Session, allowed: list[Layout], simulator: Simulator | None, shape: planning.Shape, tests_left: int
) -> tuple[list[Layout], str]:
    """Training layouts of the next round beside the anchors, or the reason for none."""
    asked, plan, number = session.asked, session.campaign.plan, len(session.campaign.rounds)
    assert plan is not None
    if number >= shape.rounds:
        return [], "the plan is done"
    count = shape.later[number - 1]
    if session.left_s < (count + planning.ANCHORS + tests_left) * plan.repeats * _pace_s(session):
        return [], "the minutes are over"
    chosen, widest = _later(session, allowed, simulator, count)
    if widest is not None:
        session.progress.note(f"round {number}: intervals of layouts that did not run are within ±{widest:.1%}")
        if widest <= asked.aim:
            return [], f"intervals of layouts that did not run are within ±{widest:.1%}; the aim is ±{asked.aim:.1%}"
    return chosen, "no further layout differs from those that were run"


def _pace_s(session: Session) -> float:
    """Seconds per execution in the last round: other programs may have come or gone since the pilot."""
    last = session.directory / session.campaign.rounds[-1].directory
    return float(np.mean([one.duration_s for one in executions.read(last, None)]))


def _first(asked: Asked, allowed: list[Layout], simulator: Simulator | None, count: int) -> list[Layout]:
    if asked.select != "adaptive":
        return allowed[:count]
    assert simulator is not None
    return [allowed[at] for at in choosing.spread(simulator.counts(allowed), count, (0, 1))]


def _later(
    session: Session, allowed: list[Layout], simulator: Simulator | None, count: int
) -> tuple[list[Layout], float | None]:
    """Layouts of a further round, and the model's uncertainty about its least certain candidate."""
    campaign = session.campaign
    found = gathered(session.directory, campaign, simulator)
    training = found.points.role("train")
    run = [row.layout() for one in campaign.rounds for row in one.layouts if row.role == "train"]
    if session.asked.select == "moselect":
        c = dict(zip(training.layouts, training.c.tolist(), strict=True))
        ran = list({one.name: one for one in run}.values())
        known = [(one, c[one.name]) for one in ran if one.name in c]
        unknown = [one for one in ran if one.name not in c]
        return choosing.by_gaps(_space(session, simulator), known, count, len(ran), unknown), None
    assert simulator is not None
    tiles = {one.tiles for one in run}
    taken = [at for at, one in enumerate(allowed) if one.tiles in tiles]
    # Choices always use simulated counts, since these are known for layouts that did not run.
    own = [one for one in run if one.name in training.layouts]
    choice = choosing.least_certain(
        simulated_by(training, own, simulator), simulator.counts(allowed), taken, count, session.asked.seed
    )
    return [allowed[at] for at in choice.layouts], choice.widest


def _space(session: Session, simulator: Simulator | None) -> Space:
    campaign = session.campaign
    footprint_ = Footprint(tuple(campaign.footprint))
    misses = None if simulator is None else simulator.profile(footprint_).misses
    return Space(footprint_, misses, tuple(row.layout() for row in campaign.tests), session.asked.seed)


def _fit(session: Session, simulator: Simulator | None) -> ModelFile:
    """Fits and judges every model on the points of all rounds; writes and returns ``model.json``."""
    found = gathered(session.directory, session.campaign, simulator)
    session.keep(excluded=found.excluded)
    for one in found.told:
        session.tell(one.kind, one.message)
    points = found.points
    training = points.roles.count("train")
    if training < planning.FEWEST - planning.ANCHORS:
        first = quoted(session.directory / session.campaign.rounds[0].directory)
        lost = ", ".join(f"{one.layout} ({one.why})" for one in found.excluded[:4])
        raise BadInputError(
            f"{training} training layouts are left, too few for a model; left out: {lost}; every execution: pagelab "
            f"study status {first}; what is in the way of 2M pages: pagelab doctor"
        )
    if not varies(points.role("train").r):
        raise BadInputError(
            f"cannot fit models to {session.campaign.workload}: R is the same in every layout; there is nothing to "
            "explain"
        )
    session.progress.note("fit")
    seed = session.asked.seed
    judgement = judge(points, list(models(seed).values()), folds=min(FOLDS, training), seed=seed)
    told = [*map(left_out, found.excluded), *session.campaign.told]
    summary = found.summary.model_copy(update={"told": told})
    file = file_of(points, session.directory / document.NAME).model_copy(
        update={"fits": fits_of(points, judgement, seed), "campaign": summary}
    )
    write_model(session.directory / FILE, file)
    return file
