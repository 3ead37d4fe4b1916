# Generated from crates/contract and crates/abi by tools.contract; change the Rust types, then: make contract
# mypy: disable-error-code="assignment"

from __future__ import annotations

from pagelab.contract.base import Model
from pydantic import ConfigDict, Field
from typing import Annotated, Any, Literal
from enum import StrEnum


class Command(Model):
    """
    What was run.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    argv: list[str]
    cwd: str
    executable: str
    """
    Resolved path; for a script, the interpreter that the kernel starts.
    """
    env: dict[str, str]
    """
    Only what matters: LD_*, MALLOC_*, GLIBC_TUNABLES, OMP_*, LANG, LC_*, PATH and what the request set.
    """
    env_bytes: int
    """
    Bytes of argv and envp strings together: they shift the stack.
    """


class PolicyAsked(Model):
    """
    The policy of the run.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    name: str
    toml: str
    path: str | None = None
    digest: str
    """
    SHA-256 of the canonical TOML.
    """


class Settings(Model):
    """
    Settings of the run.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    cpus: list[int]
    aslr: bool | None = None
    node: int | None = None
    uid: int
    gid: int
    timeout_s: float | None = None
    preloaded: bool
    flush: Literal["none", "files", "all"]
    """
    How the page cache is flushed.
    """
    scheduler: str
    host_backed_bytes: int | None = None
    """
    Free memory that was touched before the program started, so that the host backs it; null: none.
    """
    cgroup: dict[str, str] = {}
    """
    Limits in force: memory.max, cpu.max, cpuset.cpus.effective … as read.
    """


class Outcome(Model):
    """
    How the run ended.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    status: Literal["ok", "failed", "signalled", "timed-out", "not-started"]
    """
    How the program ended.
    """
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None


class Times(Model):
    """
    Times of the whole tree of processes.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    wall_ns: int
    """
    From just before exec is let go to the exit of the last process of the tree that the program waited for.
    """
    user_ns: int
    system_ns: int
    waiting_ns: int | None = None
    """
    How long the program's first thread was ready to run and had no processor (schedstat). Null where that is not
    known.
    """
    steal_ns: int | None = None
    """
    Time that a hypervisor gave to others while processors that the program may use had work to do, in the
    kernel's ticks (10 ms mostly). Null where it is not told.
    """
    spawn_to_main_ns: int | None = None
    """
    From spawn to the end of the guest's start-up code; what pagelab adds before main.
    """
    measuring_ns: int | None = None
    """
    What all processes together took to measure their placement at exit. The program's own share is not in
    `wall_ns`; `system_ns` has it all.
    """


class Faults(Model):
    """
    Page faults, by whether they waited for a device.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    minor: int
    major: int


class Counter(Model):
    """
    A hardware or software counter over the whole tree.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    name: str
    """
    Role in its set (`tlb.hits`, `tlb.walks`, `tlb.walk_cycles`, `cycles` …) or the raw code.
    """
    code: str
    count: int | None = None
    enabled_ns: int | None = None
    running_ns: int | None = None
    status: Literal["ok", "multiplexed", "unsupported", "denied", "implausible"]
    """
    Whether a counter counted.
    """
    verified: bool
    """
    The event code was checked on hardware against a program with a known answer.
    """
    source: str


class SizeBytes(Model):
    """
    Resident bytes of one region, by the size of the page that maps them.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    page_bytes: int
    bytes: int


class FramesEngine(Model):
    """
    The engine that placed the pages of a process, or of all processes together.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    state: Literal["off", "running", "stopped", "failed"]
    """
    At the end; a process that was killed leaves it running.
    """
    failure: str | None = None
    errno: int | None = None
    start_up_ns: int
    """
    Until the first page could be placed.
    """
    values: dict[str, int]
    """
    Counters by name; docs/frames.md has the list.
    """


class StrategyKind(StrEnum):
    """
    Strategies that place frames, by the names that `pagelab_abi` gives them.
    """

    PAGE_COLORING = "page-coloring"
    BIN_HOPPING = "bin-hopping"
    MODULO = "modulo"
    EXACT = "exact"
    RANDOM = "random"
    MODULE = "module"


class ColourTable(Model):
    """
    Pages by colour: index i is colour i, or all colours that are i modulo the length where `folded`.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    folded: bool
    requested_pages: list[int]
    placed_pages: list[int]
    fallback_pages: list[int]


class GuestCounters(Model):
    """
    What the preload library did, by name (docs/preload.md has the list); counters that are 0 are left out.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    values: dict[str, int]


class Placement(Model):
    """
    Summed over all processes of the tree that reported.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    by_size: list[SizeBytes]
    whole_touched_tiles: int
    tiles_as_asked: int
    placed_fraction: float | None = None
    """
    tiles_as_asked / whole_touched_tiles; Null when the policy named no tile that was touched.
    """


class FileResidency(Model):
    """
    How much of a file was in the page cache.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    path: str
    pages: int
    resident_pages: int


class Measurement(Model):
    """
    One timed operation inside the execution, as the program reported it.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    name: str
    value: float
    unit: str


class WarningKind(StrEnum):
    """
    What kind of thing a warning is about.
    """

    PLACEMENT_SHORTFALL = "placement-shortfall"
    PLACEMENT_UNKNOWN = "placement-unknown"
    FALLBACK_TO_KERNEL = "fallback-to-kernel"
    GUEST_NOT_LOADED = "guest-not-loaded"
    GUEST_DISABLED = "guest-disabled"
    CHILD_UNGOVERNED = "child-ungoverned"
    HEAP_MOVED = "heap-moved"
    TILE_SPLIT = "tile-split"
    CALL_REFUSED = "call-refused"
    READAHEAD_NOT_CONTROLLED = "readahead-not-controlled"
    FAULT_AROUND_NOT_CONTROLLED = "fault-around-not-controlled"
    CACHE_NOT_FLUSHED = "cache-not-flushed"
    HOST_NOT_BACKED = "host-not-backed"
    ASLR_NOT_CONTROLLED = "aslr-not-controlled"
    COUNTER_UNAVAILABLE = "counter-unavailable"
    COUNTER_IMPLAUSIBLE = "counter-implausible"
    COUNTER_MULTIPLEXED = "counter-multiplexed"
    COUNTER_EXPERIMENTAL = "counter-experimental"
    PROCESS_BREAKDOWN_PARTIAL = "process-breakdown-partial"
    PROCESS_TREE_UNKNOWN = "process-tree-unknown"
    MEASUREMENT_UNPARSED = "measurement-unparsed"
    OUTPUT_LOST = "output-lost"
    WINDOW_MISUSED = "window-misused"
    SETTING_NOT_RESTORED = "setting-not-restored"
    CPU_RESTRICTED = "cpu-restricted"
    MEMORY_LIMITED = "memory-limited"
    ROOM_SCARCE = "room-scarce"
    TIMED_OUT = "timed-out"
    PROGRAM_FAILED = "program-failed"
    NOISY_MACHINE = "noisy-machine"
    LEFT_OUT = "left-out"
    PROCESSES_LEFT = "processes-left"
    LEVEL_NOT_REACHABLE = "level-not-reachable"
    MACHINE_CHANGED = "machine-changed"
    RUN_INTERRUPTED = "run-interrupted"
    STEP_FAILED = "step-failed"
    COLOURS_NOT_PROBED = "colours-not-probed"
    COLOURS_WITHOUT_EFFECT = "colours-without-effect"
    FRAMES_FALLBACK = "frames-fallback"
    FRAMES_OUT_OF_REACH = "frames-out-of-reach"
    FRAMES_MOVED = "frames-moved"
    FRAMES_NOT_PLACED = "frames-not-placed"
    REAL_TIME_LIMITED = "real-time-limited"
    INTERVAL_DOUBTFUL = "interval-doubtful"
    MEASUREMENTS_DEPENDENT = "measurements-dependent"
    LEVEL_CHANGES_INSIDE = "level-changes-inside"
    TREND_OVER_SCHEDULE = "trend-over-schedule"
    STATISTIC_REFUSED = "statistic-refused"


class Region(Model):
    """
    A governed range, or one tile interval of it: requested and achieved pages.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    region: Literal["heap", "anon", "arenas", "file", "data", "stack", "range", "other"]
    asked: str
    """
    Requested page size; `kernel` where it was left to the kernel.
    """
    via: Literal["thp", "hugetlb"] | None = None
    start: int
    end: int
    mapped_bytes: int
    resident_bytes: int
    """
    At the end of the process.
    """
    by_size: list[SizeBytes]
    """
    Over the whole run: resident at the end, and what the program gave back before, as it was just then. Memory
    that was given back and mapped again counts each time.
    """
    given_back_bytes: int = 0
    """
    The part of `by_size` that was given back before the end. Small pieces are not looked at (docs/preload).
    """
    whole_touched_tiles: int | None = None
    """
    Tiles of the requested size that lie wholly inside mapped memory and have at least one page resident.
    """
    tiles_as_asked: int | None = None


class FramesStrategy(Model):
    """
    Requests to one strategy of the policy, and its placements. Pages have 4096 bytes and count when they are placed: one
    that is given back and touched again counts twice.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    number: int
    """
    In the order of the policy's rules that have a strategy, the default last.
    """
    kind: StrategyKind
    colours: int
    requested_pages: int
    """
    = placed + fallback + zero, where nothing was under way when the process ended.
    """
    placed_pages: int
    """
    On a frame as wanted: of the colour, or the very frame.
    """
    fallback_pages: int
    """
    On another, because the pool had none within its budget.
    """
    zero_pages: int
    """
    Filled by the kernel, because no page could be moved there.
    """
    demand_pages: int
    eager_pages: int
    faults: int
    """
    Missing-page faults answered; pages placed a fault = demand_pages / faults.
    """
    moves: int
    """
    Calls that placed pages (runs of contiguous frames).
    """
    remapped_pages: int
    """
    Existing pages that were moved onto frames of the policy.
    """
    copied_pages: int
    """
    Of these, copied.
    """
    harvested_pages: int | None = None
    """
    Only in older records: frames that came back to the pool from pages given up.
    """
    ahead_pages: int = 0
    """
    Of the pages placed by faults, those that the fault did not touch.
    """
    ahead_zero_pages: int = 0
    """
    At exit: of these, resident pages of zeros. At most so many were placed in vain.
    """
    resident_pages: int
    """
    At exit, like the three that follow; 0 where the process ended without measuring.
    """
    kept_pages: int
    """
    On the frame they were placed on.
    """
    moved_pages: int
    """
    Placed, and on another frame now.
    """
    unplaced_pages: int
    out_of_reach_bytes: dict[str, int] = {}
    """
    By reason: `larger-page`, `file`, `shared`, `locked-readonly`, `stack-in-use`, `early`, `other`.
    """
    by_colour: ColourTable | None = None
    """
    Only in the sum over all processes.
    """


class Fetch(Model):
    """
    State of the page cache and of prepaging around the run.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    readahead_kb_before: dict[str, int] = {}
    readahead_kb_during: dict[str, int] = {}
    fault_around_bytes: int | None = None
    residency_at_start: Annotated[
        list[FileResidency], Field(validate_default=True)
    ] = []


class RunWarning(Model):
    """
    A warning as it stands in a record.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    kind: WarningKind
    """
    What it is about.
    """
    severity: Literal["info", "warning", "serious"] = "warning"
    """
    How much it matters.
    """
    message: str
    """
    What happened, in a sentence.
    """
    data: dict[str, Any] = {}
    """
    Numbers and names behind it.
    """


class Frames(Model):
    """
    Frame placement. In the sum over a tree, `engine` has the sum of the engines' counters, but the largest of
    `budget_bytes`, `pool_peak_bytes` and `nodes`.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    rights: Literal["own", "broker", "kernel"] | None = None
    """
    How processes got frame numbers and a userfaultfd; `kernel`: the kernel placed the frames, under hints. Only in
    the sum, and not where only programs' own hints placed frames.
    """
    placed_fraction: float | None = None
    """
    placed_pages / requested_pages over all strategies; Null where nothing was requested.
    """
    kept_fraction: float | None = None
    """
    kept_pages / (kept_pages + moved_pages) at exit.
    """
    engines_started: int
    engines_failed: int
    engine: FramesEngine | None = None
    strategies: list[FramesStrategy]
    page_color: dict[str, Any] | None = None
    """
    Where the kernel placed frames: what /proc/page_color counted during the run, of all programs of the machine, by
    strategy.
    """


class Process(Model):
    """
    One process of the tree.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    pid: int
    ppid: int
    executable: str
    governed: bool
    start_ns: int | None = None
    """
    Since the start of the run.
    """
    wall_ns: int | None = None
    user_ns: int | None = None
    system_ns: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    peak_rss_bytes: int | None = None
    counters: dict[str, int] = {}
    placement: Annotated[list[Region], Field(validate_default=True)] = []
    frames: Frames | None = None
    guest: GuestCounters | None = None


class Record(Model):
    """
    One run, whole.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    schema_: Annotated[Literal["pagelab.record/1"], Field(alias="schema")] = (
        "pagelab.record/1"
    )
    id: str | None = None
    """
    Given by the package.
    """
    started_at: str
    command: Command
    policy: PolicyAsked
    settings: Settings
    outcome: Outcome
    time: Times
    peak_rss_bytes: int
    """
    Largest single process of the tree (getrusage), not the sum.
    """
    faults: Faults
    counters: list[Counter]
    processes: list[Process]
    placement: Placement
    frames: Frames | None = None
    """
    Null where the policy leaves frames to the kernel.
    """
    fetch: Fetch
    measurements: list[Measurement]
    warnings: list[RunWarning]
    machine: dict[str, Any] | None = None
    """
    What the machine offers, as the package describes it.
    """
    provenance: dict[str, Any] | None = None
    """
    Versions, commit and digests, given by the package.
    """
