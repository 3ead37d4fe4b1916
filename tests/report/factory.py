"""Studies made by hand: a real store, filled with records whose numbers the test chose."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagelab.analysis import Analysis, StudyData, analyse, load
from pagelab.analysis.model import WarningGroup
from pagelab.analysis.nondeterminism.interval_warnings import OF_STATISTICS
from pagelab.contract.request import Request
from pagelab.machine.colours import colour_warnings
from pagelab.record import (
    ColourTable,
    Command,
    Counter,
    Faults,
    Fetch,
    Frames,
    FramesStrategy,
    Measurement,
    Outcome,
    Placement,
    PolicyAsked,
    Process,
    Record,
    Region,
    RunWarning,
    Settings,
    SizeBytes,
    Times,
    WarningKind,
)
from pagelab.study.plan import Condition, Plan, Precision
from pagelab.study.schedule import Slot, schedule
from pagelab.study.store import RunResult, Store

MACHINE = {
    "schema": "pagelab.machine/1",
    "architecture": "x86_64",
    "page_sizes_bytes": [4096, 65536, 2097152],
    "base_page_bytes": 4096,
    "thp": {"enabled": "always [madvise] never", "defrag": "madvise"},
    "hugetlb": [{"page_bytes": 2097152, "total_pages": 0, "free_pages": 0}],
}
PROVENANCE = {
    "schema": "pagelab.provenance/1",
    "time": "2026-01-01T00:00:00.000+00:00",
    "host": "bench",
    "boot_id": "b0",
    "kernel": {"release": "6.12.0", "architecture": "x86_64"},
    "cpu": {"model_name": "Example 9000", "count": 2, "microcode": "0x1"},
    "memory_bytes": 8 << 30,
    "virtualisation": {"kind": "none"},
    "pagelab": {"version": "0.1.0", "commit": "abc"},
    "libc": "glibc 2.36",
    "governor": ["performance"],
}


@dataclass
class Run:
    """What one execution did. Lists of measurements are values in nanoseconds."""

    wall_s: float = 1.0
    user_share: float = 0.9
    counters: dict[str, int | None] = field(default_factory=dict)
    huge_share: float = 0.0
    asked: str = "kernel"
    status: str = "ok"
    short: bool = False
    warnings: list[RunWarning] = field(default_factory=list)
    measurements: list[float] = field(default_factory=list)
    measurement_name: str = "latency"
    unit: str = "ns"
    faults: tuple[int, int] = (20_000, 3)
    machine: dict[str, Any] | None = field(default_factory=lambda: dict(MACHINE))
    provenance: dict[str, Any] | None = field(default_factory=lambda: dict(PROVENANCE))
    resident_bytes: int = 256 << 20
    peak_bytes: int | None = None
    """None: what is resident at the end."""
    frames: Frames | None = None
    aslr: bool = True
    host_backed_bytes: int | None = None


def warning(kind: WarningKind, message: str, severity: str = "warning", **data: Any) -> RunWarning:
    return RunWarning.model_validate({"kind": kind, "severity": severity, "message": message, "data": data})


def record(condition: Condition, run: Run) -> Record:
    """The record that a launcher would have written."""
    wall = round(run.wall_s * 1e9)
    placement = _placement(run)
    warnings = list(run.warnings)
    if run.short:
        warnings.append(warning(WarningKind.PLACEMENT_SHORTFALL, "60 of 128 tiles of 2M are as asked", tiles=60))
    outcomes = {
        "ok": Outcome(status="ok", exit_code=0, signal=None),
        "failed": Outcome(status="failed", exit_code=3, signal=None),
        "signalled": Outcome(status="signalled", exit_code=None, signal=11),
        "timed-out": Outcome(status="timed-out", exit_code=None, signal=9, message="stopped after 60 s"),
    }
    counters = [
        Counter(
            name=name, code="0x1045", count=count, enabled_ns=wall, running_ns=wall,
            status="ok" if count is not None else "unsupported",
            verified=True, source="test",
        )
        for name, count in run.counters.items()
    ]  # fmt: skip
    return Record(
        started_at="2026-01-01T00:00:00.000+00:00",
        command=Command(argv=condition.request.argv, cwd="/", executable="/bin/true", env={}, env_bytes=100),
        policy=PolicyAsked(name=condition.policy_name, toml=condition.request.policy_toml, path=None, digest="0" * 64),
        settings=Settings(
            cpus=[1],
            aslr=run.aslr,
            node=None,
            uid=0,
            gid=0,
            timeout_s=60.0,
            preloaded=True,
            flush="none",
            scheduler="other",
            host_backed_bytes=run.host_backed_bytes,
        ),
        outcome=outcomes[run.status],
        time=Times(wall_ns=wall, user_ns=round(wall * run.user_share), system_ns=round(wall * 0.05)),
        peak_rss_bytes=run.peak_bytes or run.resident_bytes,
        faults=Faults(minor=run.faults[0], major=run.faults[1]),
        counters=counters,
        processes=[_process(condition, run, placement)],
        placement=placement,
        fetch=Fetch(),
        measurements=[Measurement(name=run.measurement_name, value=v, unit=run.unit) for v in run.measurements],
        warnings=warnings,
        machine=run.machine,
        provenance=run.provenance,
        frames=run.frames,
    )


def _placement(run: Run) -> Placement:
    huge = int(run.huge_share * run.resident_bytes) // (2 << 20) * (2 << 20)
    sizes = [SizeBytes(page_bytes=4096, bytes=run.resident_bytes - huge)]
    if huge:
        sizes.append(SizeBytes(page_bytes=2 << 20, bytes=huge))
    tiles = 128 if run.asked == "2M" else 0
    got = (60 if run.short else 128) if tiles else 0
    return Placement(
        by_size=sizes, whole_touched_tiles=tiles, tiles_as_asked=got, placed_fraction=got / tiles if tiles else None
    )


def _process(condition: Condition, run: Run, placement: Placement) -> Process:
    region = Region(
        region="heap", asked=run.asked, via="thp" if run.asked == "2M" else None, start=0x6000_0000_0000,
        end=0x6000_1000_0000, mapped_bytes=256 << 20, resident_bytes=run.resident_bytes, by_size=placement.by_size,
        whole_touched_tiles=placement.whole_touched_tiles, tiles_as_asked=placement.tiles_as_asked,
    )  # fmt: skip
    return Process(
        pid=10, ppid=1, executable=condition.request.argv[0], governed=True, start_ns=0, wall_ns=None, user_ns=None,
        system_ns=None, minor_faults=None, major_faults=None, peak_rss_bytes=None, placement=[region],
    )  # fmt: skip


def plan(
    workloads: Iterable[str],
    policies: Iterable[str],
    executions: int,
    *,
    baseline: str | None = None,
    question: str = "",
    warmups: int = 0,
    metric: str = "wall_s",
    precision: Precision | None = None,
    level: float = 0.95,
    left_out: dict[str, str] | None = None,
) -> Plan:
    """A plan of every workload under every policy. The names are not checked: imports can bring any."""
    names = list(policies)
    base = baseline or names[0]
    conditions = [
        Condition(
            index=index, name=f"{w}/{p}", workload=w, policy=p, workload_name=w, policy_name=p, baseline=p == base,
            request=Request(argv=[f"/usr/bin/{w}"], cwd="/", policy_toml=f'pages = "{p}"\n'), metric=metric,
            left_out=(left_out or {}).get(f"{w}/{p}"),
        )
        for index, (w, p) in enumerate((w, p) for w in workloads for p in names)
    ]  # fmt: skip
    return Plan(
        name="example", question=question, executions=executions, seed=7, warmups=warmups, baseline=base, metric=metric,
        level=level, precision=precision, conditions=conditions, step_timeout_s=600.0, digest="0" * 64,
    )  # fmt: skip


def store(
    directory: Path,
    study: Plan,
    run_of: Callable[[Condition, Slot], Run | None],
    study_warnings: Iterable[RunWarning] = (),
    extra: dict[str, Any] | None = None,
    looks: Iterable[dict[str, Any]] = (),
) -> Path:
    """A store in *directory* with one run for each place of the schedule for which *run_of* gives one."""
    directory.mkdir(parents=True, exist_ok=True)
    active = study.active()
    slots = schedule(len(active), study.executions, study.warmups, study.seed)
    slots = [Slot(s.position, s.block, active[s.condition].index, s.execution) for s in slots]
    slots = [s for s in slots if s.execution < study.executions_of(study.conditions[s.condition])]
    with Store.create(directory, study, slots, "", extra or {}) as db:
        for item in study_warnings:
            db.put_event("warning", item.model_dump(mode="json"))
        for look in looks:
            db.put_event("look", look)
        for slot in slots:
            run = run_of(study.conditions[slot.condition], slot)
            if run is not None:
                made = record(study.conditions[slot.condition], run)
                db.commit_run(slot, RunResult(run.status, "2026-01-01T00:00:00.000+00:00", run.wall_s, made))
    return directory


def data_of(directory: Path) -> StudyData:
    """What analysis reads, from the store in *directory*."""
    with Store.open(directory, write=False) as db:
        return load(db)


EFFECT = {"kernel": 1.0, "all-4K": 1.04, "all-2M": 0.62, "mosaic": 0.71}
WORKLOAD_S = {"gups": 2.9, "sort": 1.4, "python": 0.85, "btree": 3.3}


def typical(
    directory: Path, workloads: Iterable[str] = ("gups", "sort", "python", "btree"), executions: int = 12
) -> Path:
    """A study such as a user would run: clear effects, none, bimodal times, failures, short placement, warnings."""
    rng = random.Random(3)
    study = plan(
        workloads, EFFECT, executions, question="What do huge pages do to the time of these programs?", warmups=1
    )
    return store(directory, study, lambda c, s: _typical_run(rng, c, s), study_warnings=[
        warning(WarningKind.NOISY_MACHINE, "a spinning thread lost 3.1% of its time to others", "info", lost=0.031)
    ])  # fmt: skip


def crowded(directory: Path) -> Path:
    """As many workloads as the demo has, with effects from a few percent to a hundredfold."""
    rng = random.Random(5)
    sizes = {"kernel": 1.0, "4K": 1.03, "2M": 0.7, "mosaic": 0.8, "demand": 90.0, "willneed": 0.5}
    pages = ["gups", "pointer-chase", "btree", "malloc-storm", "stream", "python", "sort"]
    study = plan([*pages, "scan", "scan-random"], sizes, 10)
    kept = [c for c in study.conditions if (c.policy in ("demand", "willneed")) <= c.workload.startswith("scan")]
    kept = [c for c in kept if not (c.workload.startswith("scan") and c.policy in ("4K", "2M", "mosaic"))]
    fetch = ("demand", "willneed")
    kept = [
        (c.asking(policy_toml=f'fetch = "{c.policy}"\n') if c.policy in fetch else c).model_copy(
            update={"index": index}
        )
        for index, c in enumerate(kept)
    ]
    study = study.model_copy(update={"conditions": kept})
    return store(directory, study, lambda c, _: Run(wall_s=sizes[c.policy] * (1 + abs(rng.gauss(0, 0.03)))))


def _typical_run(rng: random.Random, condition: Condition, slot: Slot) -> Run:
    weight = {"gups": 1.0, "btree": 0.6, "sort": 0.12, "python": 0.0}[condition.workload]
    factor = 1 + weight * (EFFECT[condition.policy] - 1)
    spread = 1 + 0.012 * abs(rng.gauss(0, 1)) + 0.0002 * slot.position
    if condition.workload == "sort" and condition.policy == "kernel" and rng.random() < 0.4:
        spread += 0.05
    wall = WORKLOAD_S[condition.workload] * factor * spread
    walks = round(2e8 * wall * (0.05 if condition.policy == "all-2M" else 1.0) * (0.2 + weight) * spread)
    run = Run(
        wall_s=wall,
        counters={"tlb.hits": walks // 3, "tlb.walks": walks, "tlb.walk_cycles": round(walks * 31 * spread)},
        huge_share={"kernel": 0.02, "all-4K": 0.0, "all-2M": 0.98, "mosaic": 0.5}[condition.policy],
        asked={"all-2M": "2M", "mosaic": "2M", "all-4K": "4K"}.get(condition.policy, "kernel"),
        measurements=[wall * 1e7 * rng.lognormvariate(0, 0.1) for _ in range(8 * (condition.workload == "gups"))],
    )  # fmt: skip
    if condition.workload == "btree" and condition.policy == "mosaic":
        if slot.execution == 3:
            run.status = "timed-out"
        if slot.execution == 5:
            run.status = "signalled"
        run.short = slot.execution in (6, 7)
    run.warnings = [warning(WarningKind.COUNTER_EXPERIMENTAL, "tlb.walk_cycles: 0xFF4E is undocumented", "info")]
    return run


SCATTERED = {
    "verdict": "not effective: this looks like a guest whose frames are scattered by its host",
    "measured_at": "2026-01-02T03:04:05+00:00",
    "virtualisation": "kvm",
    "caches": [{"level": 2, "colours": 32, "verdict": "", "reason": "", "masks": []}],
}


def frames(
    kind: str, placed: list[int], fallbacks: list[int] | None = None, *, number: int = 0, **more: Any
) -> FramesStrategy:
    """What one strategy did, from the pages placed and not to be had of each colour."""
    missed = fallbacks or [0] * len(placed)
    wanted = [a + b for a, b in zip(placed, missed, strict=True)]
    zeros = dict.fromkeys(
        ("zero_pages", "demand_pages", "eager_pages", "faults", "moves", "remapped_pages", "copied_pages",
         "resident_pages", "kept_pages", "moved_pages", "unplaced_pages"), 0,
    )  # fmt: skip
    return FramesStrategy.model_validate(
        {
            **zeros, "number": number, "kind": kind, "colours": len(placed), "requested_pages": sum(wanted),
            "placed_pages": sum(placed), "fallback_pages": sum(missed),
            "by_colour": ColourTable(
                folded=False, requested_pages=wanted, placed_pages=placed, fallback_pages=missed
            ), **more,
        }
    )  # fmt: skip


def placed(*strategies: FramesStrategy) -> Frames:
    """What all strategies of one execution did."""
    return Frames(
        rights="own", placed_fraction=None, kept_fraction=None, engines_started=1, engines_failed=0, engine=None,
        strategies=list(strategies),
    )  # fmt: skip


FRAME_POLICIES = {
    "kernel": "",
    "page-coloring": 'frames = "page-coloring"\n',
    "bin-hopping": 'frames = { kind = "bin-hopping", colors = 64 }\n',
}


def coloured(
    directory: Path, verdict: dict[str, Any] | None = None, effect: float = 1.0, workloads: Iterable[str] = ("gups",)
) -> Path:
    """A study of two frame policies; ``effect`` is page colouring's factor on the time."""
    rng = random.Random(11)
    made = plan(workloads, FRAME_POLICIES, 8, question="Does it matter where pages lie?")
    texts = [c.asking(policy_toml=FRAME_POLICIES[c.policy]) for c in made.conditions]
    made = made.model_copy(update={"conditions": texts})

    def run_of(condition: Condition, slot: Slot) -> Run:
        found = None
        if condition.policy == "page-coloring":
            found = placed(frames("page-coloring", [100] * 64, kept_pages=6000, moved_pages=400))
        elif condition.policy == "bin-hopping":
            even = [90 + rng.randrange(20) for _ in range(64)]
            missed = [10 if colour < 8 else 0 for colour in range(64)]
            reach = {"larger-page": 2 << 20, "file": (30 + slot.execution) << 20}
            found = placed(frames("bin-hopping", even, missed, out_of_reach_bytes=reach))
        factor = effect if condition.policy == "page-coloring" else 1.0
        wall = factor * (1 + abs(rng.gauss(0, 0.01)))
        machine = {**MACHINE, "colour_verdict": verdict}
        told = colour_warnings.warnings(condition.request.policy_toml, machine)
        return Run(wall_s=wall, frames=found, machine=machine, warnings=told)

    return store(directory, made, run_of)


def study(
    directory: Path,
    plan: Plan,
    times: dict[str, list[float]],
    change: Callable[[Condition, Slot, Run], Run] | None = None,
) -> Analysis:
    """The analysis of a study in which condition and execution decide the time."""

    def run_of(condition: Condition, slot: Slot) -> Run | None:
        values = times.get(condition.name, [])
        if slot.execution >= len(values):
            return None
        run = Run(wall_s=values[slot.execution])
        return change(condition, slot, run) if change else run

    return analyse(data_of(store(directory, plan, run_of)))


def recorded(found: Analysis) -> list[WarningGroup]:
    """The warnings of the records and of the study: without what analysis says of its own intervals."""
    return [group for group in found.warnings if group.kind not in OF_STATISTICS]


def separated(n: int, low: float, high: float) -> dict[str, list[float]]:
    return {"w/a": [high + i / 1000 for i in range(n)], "w/b": [low + i / 1000 for i in range(n)]}
