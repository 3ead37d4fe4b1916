"""Reads the status of a study from its store alone: running or dead, progress, failures, remaining time."""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import quoted
from ..record import WarningKind, about_the_machine, is_short
from .boot_session import STOPPED
from .interim_looks import looks_of
from .lock import Holder, holder_of
from .plan import Plan
from .progress import TimeLeft
from .resuming import resume_command
from .store import FAILED, Store
from .systemd import Systemd
from .this_boot import this_boot

STATUSES = ("ok", *FAILED)


@dataclass(frozen=True)
class ConditionStatus:
    name: str
    planned: int
    """Executions to analyse, without warm-ups; 0 for a condition that is left out."""
    done: int
    """Executions that have ended, without warm-ups, including failed ones."""
    failed: int
    metric: str
    median: float | None
    """Of the metric, over executions that ended well, without warm-ups; the program's own, unlike the next."""
    median_duration_s: float | None
    """Of everything that a run takes: with set-up, flushing, pagelab's own work and warm-ups."""
    left_out: str | None


@dataclass(frozen=True)
class Status:
    name: str
    state: str
    """running, complete, stopped (by its precision stop), next-boot (continues in the next boot), interrupted, killed,
    error, imported, or not-started; running-or-killed where the lock is another user's, whose session is on another
    host or in another container."""
    holder: Holder | None
    total: int
    """Places in the schedule, including warm-ups; with a precision stop, the largest possible number."""
    done: int
    statuses: dict[str, int]
    """Number of runs by status, for every status, even those that never occurred."""
    short_placed: int
    repeated: int
    """Runs that were interrupted and repeated."""
    left_s: float | None
    boots: int | None
    """Boots in which the study has run; None for a study that does not restart the machine."""
    boots_stopped: str | None
    """Why no further boot continues the study, where no user stopped it."""
    warnings: dict[str, int]
    """Number of warnings by kind, of runs and of the study itself."""
    resume: str = ""
    """The command that continues the study."""
    conditions: list[ConditionStatus] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The status as plain data for ``--json``."""
        return asdict(self)


def status_of(directory: Path) -> Status:
    """Reads the store without disturbing a session. Raises StudyError where there is no study."""
    is_known, holder = _holder(directory)
    with Store.open(directory, write=False) as store:
        is_elsewhere = False
        if not is_known:
            holder, is_elsewhere = _by_session(store)
        plan, slots, finished = store.plan(), store.slots(), store.finished()
        runs = store.rows("SELECT position, condition, status, duration_s FROM run")
        remaining = [slot.condition for slot in slots if slot.position not in finished]
        durations = [(condition, duration) for _, condition, _, duration in runs if duration is not None]
        time_left = TimeLeft(durations, remaining)
        counts = Counter(status for _, _, status, _ in runs)
        kinds, short_placed = _warnings(store)
        warmups = {slot.position for slot in slots if slot.warmup}
        medians = _medians(store, plan)
        conditions = []
        for condition in plan.conditions:
            own = [
                status for position, index, status, _ in runs if index == condition.index and position not in warmups
            ]
            conditions.append(
                ConditionStatus(
                    condition.name,
                    plan.executions_of(condition),
                    len(own),
                    sum(status in FAILED for status in own),
                    condition.metric,
                    medians.get(condition.name),
                    time_left.median_s(condition.index),
                    condition.left_out,
                )
            )
        armed = plan.reboots is not None and Systemd().armed() == directory.resolve()
        state = _state(store, holder, bool(remaining), armed)
        return Status(
            name=plan.name,
            state="running-or-killed" if state == "killed" and is_elsewhere else state,
            holder=holder,
            total=len(slots),
            done=len(finished),
            statuses={status: counts.get(status, 0) for status in STATUSES},
            short_placed=short_placed,
            repeated=store.rows("SELECT count(DISTINCT position) FROM attempt WHERE outcome = 'interrupted'")[0][0],
            left_s=time_left.seconds() if remaining else 0.0,
            boots=len({row[0] for row in store.rows("SELECT boot_id FROM session")}) if plan.reboots else None,
            boots_stopped=store.meta().get(STOPPED) or None,
            warnings=kinds,
            resume=resume_command(quoted(directory), store.meta(), plan),
            conditions=conditions,
        )


def _holder(directory: Path) -> tuple[bool, Holder | None]:
    """Whether this user may see who works in the directory, and who does."""
    try:
        return True, holder_of(directory) if directory.is_dir() else None
    except PermissionError:
        return False, None


def _by_session(store: Store) -> tuple[Holder | None, bool]:
    """The process whose session has not ended by the store, if it is of this machine and still exists; and whether
    such a session is of another machine or container, where this process cannot look."""
    query = "SELECT pid, host, started_at, boot_id FROM session WHERE ended_at IS NULL AND reason IS NULL"
    is_elsewhere = False
    for pid, host, since, boot in store.rows(query):
        if host != socket.gethostname():
            is_elsewhere = True
        elif boot == this_boot().id and _has_run_since(pid, datetime.fromisoformat(since)):
            return Holder(pid, host, since), False
    return None, is_elsewhere


_CLOCK_S = 60.0
"""By how much the clock may have been set forward while a session ran."""


def _has_run_since(pid: int, since: datetime) -> bool:
    """Whether the process runs and began no later, as another one that got the number of an ended one did."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # another user's
    except (ProcessLookupError, OverflowError):
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # /proc is mounted with hidepid
        return True
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in ("Z", "X") and time.time() - age_s <= since.timestamp() + _CLOCK_S


def _medians(store: Store, plan: Plan) -> dict[str, float]:
    """Condition → the median of its metric; without those that have no value of it yet."""
    found: dict[str, float] = {}
    ended = [row for row in store.runs().iter_rows(named=True) if row["status"] == "ok" and not row["warmup"]]
    for metric in {condition.metric for condition in plan.conditions}:
        values = dict(store.metric(metric).iter_rows())
        own: dict[str, list[float]] = {c.name: [] for c in plan.conditions if c.metric == metric}
        for row in ended:
            if row["condition"] in own and values.get(row["run_id"]) is not None:
                own[row["condition"]].append(values[row["run_id"]])
        found.update({name: statistics.median(ones) for name, ones in own.items() if ones})
    return found


def _state(store: Store, holder: Holder | None, remaining: bool, armed: bool) -> str:
    if "origin" in store.meta():
        return "imported"
    if holder is not None:
        return "running"
    if not remaining:
        return "complete"
    if looks_of(store).stopped is not None:
        return "stopped"
    if armed:
        return "next-boot"
    sessions = store.rows("SELECT reason FROM session ORDER BY id DESC LIMIT 1")
    if not sessions:
        return "not-started"
    # In a study with boots of its own, each session ends normally.
    return "interrupted" if sessions[0][0] == "done" else sessions[0][0] or "killed"


def _warnings(store: Store) -> tuple[dict[str, int], int]:
    """Warnings by kind, and the number of runs with a placement shortfall."""
    kinds: Counter[str] = Counter(str(warning.kind) for warning in store.study_warnings())
    short = 0
    of_machine: set[tuple[str, str]] = set()
    for _, text in store.record_texts():
        said = json.loads(text).get("warnings", [])
        own = [warning["kind"] for warning in said if not about_the_machine(warning["data"])]
        of_machine.update((w["kind"], w["message"]) for w in said if about_the_machine(w["data"]))
        kinds.update(own)
        short += any(map(is_short, said))
    kinds.update(kind for kind, _ in of_machine)
    failed_steps = store.rows("SELECT count(*) FROM step WHERE message IS NOT NULL")[0][0]
    if failed_steps:
        kinds[str(WarningKind.STEP_FAILED)] += failed_steps
    return dict(sorted(kinds.items())), short
