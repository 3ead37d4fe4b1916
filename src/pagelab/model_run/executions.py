"""Runs studies of layouts, and reads R, counts and faults of their executions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from pagelab import whole_file
from pagelab.errors import BadInputError, MachineError
from pagelab.layouts import Layout
from pagelab.model_run.document import Asked, Campaign
from pagelab.record import Record
from pagelab.study.control import resume_study
from pagelab.study.pair import run_own
from pagelab.study.programs import changed
from pagelab.study.progress import Progress, Silent
from pagelab.study.session import machine_changes
from pagelab.study.setting import Setting, workload
from pagelab.study.store import NAME, Store
from pagelab.study.toml_text import dumps
from pagelab.study.tools import Tools

CANNOT = "no model can be made"
TRIAL = "trial"
"""The study of a campaign's trial."""
EVENTS = ("tlb", "cycles")
COUNTED = {"h": "tlb.hits", "m": "tlb.walks", "c": "tlb.walk_cycles", "r": "cycles"}
ACTIVE = "tlb.walk_active"
"""Cycles with a walk active, where the processor has such an event: kept beside C, which sums all walkers."""
_CLOCK = "pagelab-workload clock"
_PARTS = ("cpu", "user", "system", "thread", "faults", "major_faults")
"""Suffixes of the measurements of a window, after the window's name."""
_OVERLAP, _RESOLUTION_S = 1.02, 0.001
"""How much more processor time the windows of an execution may show than it took itself, by its other clock."""


@dataclass(frozen=True)
class Execution:
    """One execution under one layout; times are of the window, or of the whole execution if there is no window."""

    layout: str
    run: int
    block: int
    status: str
    message: str
    r_s: float | None
    """Seconds: processor time of the window, or user time of the whole execution."""
    faults_share: float
    counts: dict[str, float]
    """The counted ones of ``r``, ``h``, ``m`` and ``c``, and of ``active``."""
    cycle_ns: float | None
    """Time of a cycle, measured beside the execution."""
    memory_ns: float | None
    """Time of a load from memory, measured beside the execution."""
    short: bool
    """Whether memory got fewer pages of the layout's sizes than requested."""
    resident_bytes: int
    duration_s: float


def study(
    asked: Asked,
    directory: Path,
    layouts: Sequence[Layout | Setting],
    executions: int,
    *,
    counting: bool,
    active: bool = False,
    timeout_s: float | None = None,
    seed: int | None = None,
) -> Path:
    """Writes study.toml in ``directory``: blocks with each layout once, in random order. Returns its path.

    ``active``: if it counts, it counts :data:`ACTIVE`, too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = [one if isinstance(one, Setting) else Setting(one.name, one.toml()) for one in layouts]
    # Chains of additions and of loads run beside every execution, since other programs change clock and memory speed.
    table = workload(asked.argv, asked.cwd, timeout_s if timeout_s is not None else asked.timeout_s)
    table["setup"] = [_CLOCK]
    events = [*EVENTS, ACTIVE] if active else list(EVENTS)
    document = {
        "name": "model",
        "question": f"How does the run time of {' '.join(asked.argv)} follow its page sizes?",
        "executions": executions,
        "warmups": 0,
        "seed": asked.seed if seed is None else seed,
        "metric": "cpu_s",
        **({"counters": {"events": events, "per_process": False}} if counting else {}),
        "workload": [table],
        "policy": [setting.table(setting.name, directory) for setting in settings],
    }
    spec = directory / "study.toml"
    whole_file.put(spec, dumps(document))
    return spec


def run(spec: Path, directory: Path, tools: Tools, progress: Progress, *, at_least: int = 0) -> None:
    """Runs the study, or the rest of it; does nothing if it is complete.

    A study of fewer executions of each layout than ``at_least`` is extended to so many.
    """
    if not (directory / NAME).exists():
        run_own(spec, directory, tools, progress, CANNOT)
        return
    with Store.open(directory, write=False) as store:
        done = len(store.finished()) == len(store.slots())
        more = at_least if at_least > store.plan().executions else None
    if not done or more is not None:
        resume_study(directory, tools, progress=progress, executions=more)


_SAME_MACHINE = ("host:", "cpu.model_name:", "cpu.family:", "cpu.model:")


def refuse_other_machine(directory: Path, campaign: Campaign, tools: Tools) -> list[str]:
    """Changes of the machine since the campaign began. Raises `MachineError` on another one, as after a migration."""
    changes = machine_changes(campaign.machine, tools.machine())
    if any(change.startswith(name) for change in changes for name in _SAME_MACHINE):
        raise MachineError(
            f"{directory} began on another machine ({'; '.join(changes)}): its run times are of that one; go on there, "
            "or begin another campaign here: pagelab model run --into DIR"
        )
    return changes


def quiet(tools: Tools) -> Tools:
    """The tools without the measurement of noise, which takes a second; for trials."""
    return replace(tools, noise=lambda _plan: None)


def tiles_got(directory: Path, layout: str) -> str:
    """How many tiles of a layout got pages of its sizes in the executions of a study: ``2 to 8 of 9 tiles``."""
    with Store.open(directory, write=False) as store:
        names = store.runs()["policy"].to_list()
        placed = [one.placement for name, one in zip(names, store.records(), strict=True) if name == layout]
    got = sorted({one.tiles_as_asked for one in placed})
    whole = max(one.whole_touched_tiles for one in placed)
    return f"{got[0]}{f' to {got[-1]}' if len(got) > 1 else ''} of {whole} tiles"


def silent() -> Progress:
    """A progress that shows nothing."""
    return Silent()


def windows(directory: Path) -> list[str]:
    """Names of the windows that all executions of a study have."""
    found = _windows(directory)
    return sorted(set.intersection(*found)) if found else []


def _windows(directory: Path) -> list[set[str]]:
    """Names of the windows of each execution that succeeded."""
    with Store.open(directory, write=False) as store:
        frame = store.measurements()
        runs = store.runs().filter(pl.col("status") == "ok")["run_id"].to_list()
    found = []
    for run_id in runs:
        names = set(frame.filter(pl.col("run_id") == run_id)["name"].to_list())
        found.append({name for name in names if all(f"{name}.{part}" in names for part in _PARTS)})
    return found


def refuse_other_windows(directory: Path, window: str | None, *, counted: bool) -> None:
    """Raises `BadInputError` if an execution of a study has windows beside this one: a trace is of all of them
    together, so that no simulated count would be of what R is of."""
    if window is None:
        return
    others = sorted(set().union(*_windows(directory)) - {window})
    if not others:
        return
    advice = "leave the others out of a build for its model"
    advice += ", or: --counts measured --select random" if counted else ""
    raise BadInputError(
        f"cannot simulate counts of window {window}: the program has {', '.join(others)} too, and a trace is of all "
        f"windows together, while R is of {window} alone; {advice}"
    )


def refuse_overlaps(directory: Path, window: str | None) -> None:
    """Raises `BadInputError` if windows of this name take more than the run that they are of: several were open at
    once, in threads or one in another, and each has the processor time of the whole process."""
    if window is None:
        return
    with Store.open(directory, write=False) as store:
        runs, measured = store.runs(), store.measurements()
    sums = measured.filter(pl.col("name") == f"{window}.cpu").group_by("run_id").agg(pl.col("value").sum())
    for row in runs.join(sums, on="run_id").iter_rows(named=True):
        if row["cpu_s"] is not None and row["value"] > _OVERLAP * row["cpu_s"] + _RESOLUTION_S:
            raise BadInputError(
                f"windows {window} are open at once in several threads, or one in another: together they take "
                f"{row['value']:.3g} s of processor time in an execution of {row['cpu_s']:.3g} s, since each has that "
                f"of the whole process; {CANNOT}: mark {window} in one thread, from before the others begin until they "
                "have ended"
            )


def read(directory: Path, window: str | None) -> list[Execution]:
    """The finished executions of a study, in order."""
    with Store.open(directory, write=False) as store:
        runs, steps = store.runs(), store.steps()
        sums: dict[tuple[int, str], float] = {}
        measured = store.measurements()
        for run_id, name, value in (
            measured.group_by("run_id", "name").agg(pl.col("value").sum()).select("run_id", "name", "value").rows()
        ):
            sums[run_id, name] = value
    probes = {row["run_id"]: row["output"] for row in steps.iter_rows(named=True) if row["run_id"]}
    events = {**COUNTED, "active": ACTIVE}
    found = []
    for row in runs.iter_rows(named=True):
        run_id = row["run_id"]
        if window is None:
            r_s, system, cpu = row.get("user_s"), row.get("system_s"), row.get("cpu_s")
            counts = {key: row.get(f"counter.{name}") for key, name in events.items()}
        else:
            cpu, system = sums.get((run_id, f"{window}.cpu")), sums.get((run_id, f"{window}.system"))
            r_s = cpu
            counts = {key: sums.get((run_id, f"{window}.{name}")) for key, name in events.items()}
        found.append(
            Execution(
                layout=row["policy"],
                run=run_id,
                block=row["execution"],
                status=row["status"],
                message=row["message"] or "",
                r_s=r_s,
                faults_share=(system or 0.0) / cpu if cpu else 0.0,
                counts={key: float(value) for key, value in counts.items() if value is not None},
                cycle_ns=_probed(probes.get(run_id), "cycle_ns"),
                memory_ns=_probed(probes.get(run_id), "memory_ns"),
                short=bool(row["short_placed"]),
                resident_bytes=int(row["peak_rss_bytes"] or 0),
                duration_s=float(row["duration_s"] or 0.0),
            )
        )
    return found


def _probed(output: str | None, name: str) -> float | None:
    """The value that the chains beside an execution printed; None if they did not run."""
    try:
        value = json.loads(output or "")[name]
    except (ValueError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def trial_records(directory: Path) -> dict[str, Record]:
    """Records of a trial's two executions, by layout."""
    with Store.open(directory, write=False) as store:
        names = store.runs()["policy"].to_list()
        return dict(zip(names, store.records(), strict=True))


def is_rebuilt(directory: Path) -> bool:
    """Whether a study's program is another file now; not if there is no study."""
    if not (directory / NAME).exists():
        return False
    with Store.open(directory, write=False) as store:
        return bool(changed(json.loads(store.meta().get("programs", "{}"))))


def refuse_failed(executions: Sequence[Execution]) -> None:
    """Raises `BadInputError` about the first failed execution, if any failed."""
    for one in executions:
        if one.status != "ok":
            raise BadInputError(f"{one.layout} pages: {one.status}: {one.message}; {CANNOT}")
