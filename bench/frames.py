"""Cost of placing a page against the kernel's own warm fault in the same process, one after the other."""

from __future__ import annotations

import mmap
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from pagelab.record import Record
from pagelab.runner import RunRequest, run

from . import overhead
from .sample import Result, absolute, compare, interleave
from .tools import KERNEL, Bench


class Shield(TypedDict):
    """Fields of a request."""

    cpus: list[int]
    scheduler: Literal["fifo"]


MIB = 1 << 20
PAGE = 4096
MANY = 10_000
"""From this many pages on, a repeat takes so long that fewer repeats suffice."""
PAUSE_MS = 25
"""Pause between repeats, in which the refiller sorts and zeroes the returned pages."""

SHIELD: Shield = {"cpus": [max(os.sched_getaffinity(0))], "scheduler": "fifo"}
"""Single-threaded programs run on one processor with real-time priority, so that other work does not count."""


def frames(kind: str, more: str = "", colours: int = 64) -> str:
    return f'frames = {{ kind = "{kind}", colors = {colours}{more} }}\n'


COLORING, COLORING_16 = frames("page-coloring"), frames("page-coloring", ", fault-around = 16")
COLORING_1 = frames("page-coloring", ", fault-around = 1")
RANDOM, SINGLES_16 = frames("random", ", seed = 1"), frames("random", ", seed = 1, fault-around = 16")
BINS, BINS_1 = frames("bin-hopping"), frames("bin-hopping", ", fault-around = 1")


@dataclass(frozen=True)
class Sample:
    """One repeat: times in ns per touched page, and resident pages."""

    wall_ns: float
    cpu_ns: float
    resident: int


@dataclass(frozen=True)
class Case:
    """One way of touching under one policy; ``goal``: the most that its wall time may be of the kernel's."""

    name: str
    toml: str
    goal: float | None
    how: str = "touch"
    pages: int = 1024
    stride: int = 1
    busy: int = 0
    pause_ms: int = PAUSE_MS
    shift: int = 0

    @property
    def is_shielded(self) -> bool:
        """Whether nothing runs in parallel: no other thread of the program and, for long, no refiller."""
        return self.busy == 0 and self.pause_ms > 0

    def argv(self, bench: Bench, repeats: int) -> list[str]:
        numbers = (self.pages, self.stride, repeats, self.pause_ms, self.busy, self.shift)
        return [bench.compiled("frames_faults", "-pthread"), self.how, *map(str, numbers)]


DEMAND_1 = Case("demand, one page a fault (bin-hopping)", BINS_1, 5.5)
DEMAND = [
    Case("demand, page-coloring in runs of 16", COLORING_16, 1.0),
    Case("demand, page-coloring, adaptive", COLORING, 1.0),
    Case("demand, 16 single moves a fault (random, other addresses each time)", SINGLES_16, 1.5, shift=1031),
    Case("demand, 16 pages a fault (random, the same addresses again)", SINGLES_16, None),
    DEMAND_1,
    Case("demand, bin-hopping touched in sequence (adaptive)", BINS, 1.0),
    Case("demand, one page a fault (page-coloring)", COLORING_1, None),
    Case("demand, page-coloring, adaptive, while another thread runs", COLORING, None, busy=1),
    Case("demand, one page a fault (bin-hopping), while another thread runs", BINS_1, None, busy=1),
    Case("demand, page-coloring, one page in 32 (so two of 64 colours)", COLORING, None, pages=8192, stride=32),
    Case(
        "demand, page-coloring, 256 MiB without a pause (population included)", COLORING, None, pages=65536, pause_ms=0
    ),
]
EAGER = [
    (Case("eager, page-coloring, alone", COLORING, None, "populate"), 2_000_000),
    (Case("eager, page-coloring, while another thread runs", COLORING, None, "populate", busy=1), 1_000_000),
]
SPARSE = Case("sparse", COLORING, None, pages=33 * 1024, stride=33)
"""A stride of 33 pages, not 32: a stride that divides the number of colours would request two colours only."""
POPULATION = Case("population", COLORING, None, pages=131072, pause_ms=0)


def measure(bench: Bench) -> Iterator[Result]:
    """Row by row: all of it takes a while."""
    if os.geteuid() != 0:
        print("frames: left out, for frame numbers are for root only; run: sudo make bench")
        return
    repeats = max(41, 2 * bench.rounds + 1)
    yield from _floor(bench, repeats)
    yield from (_against_the_kernel(bench, case, repeats) for case in DEMAND)
    yield _against_bare(bench)
    for case, goal in EAGER:
        yield from _eager(bench, case, goal, repeats)
    yield from _threads(bench, repeats)
    yield from _sparse(bench)
    yield _population(bench)
    yield from _pool(bench)
    yield _small_process(bench)
    yield from overhead.measure(bench)


FLOOR = (
    "UFFDIO_MOVE, one page a call, no faults",
    "UFFDIO_MOVE, 16 pages a call, no faults",
    "a bare handler, one page a fault",
    "a bare handler, 16 single moves a fault",
    "a bare handler, 16 pages in one move a fault",
)
BARE_GOAL = 5.5 / 4.9
"""What the goal of 5.5 kernel faults was over a bare handler's 4.9 on the machine that it was set on."""
ONE_PAGE = 3
"""Which column of the floor's has one page a fault."""
THREADS_FLOOR = (
    "a bare handler",
    "a bare handler that lets faults gather",
    "a bare handler, all threads kept on one processor",
)


def _bare(bench: Bench, program: str, arguments: tuple[int, ...], request: RunRequest) -> list[tuple[float, ...]]:
    """Columns of what ``program`` prints, without pagelab in it."""
    output = bench.scratch / f"{program}.out"
    argv = [bench.compiled(program, "-pthread"), *map(str, arguments)]
    changes = {"argv": argv, "policy_toml": KERNEL, "preload": "never", "stdout": str(output), "timeout_s": 300}
    record = run(request.model_copy(update=changes))
    if record.outcome.status != "ok":
        raise SystemExit(f"{' '.join(argv)}: {record.outcome}")
    rows = [[float(word) for word in line.split()] for line in output.read_text().splitlines()]
    return list(zip(*rows, strict=True))


def _floor(bench: Bench, repeats: int) -> list[Result]:
    """Cost of the system calls alone, in a program without colours and counts."""
    _warm_up()
    kernel, *others, chunk = _bare(bench, "frames_floor", (repeats,), RunRequest(argv=[], **SHIELD))
    rows = [
        compare(f"floor: {name} / the kernel's own warm fault", "ns", list(kernel), list(samples))
        for name, samples in zip(FLOOR, others, strict=True)
    ]
    rows.append(absolute("floor: a huge page fetched and cut up, memory as it comes: ns a page", "ns", list(chunk)))
    return rows


def _warm_up() -> None:
    """Touches memory first: a virtual machine's host may have taken it back, and a first touch then costs much more."""
    with mmap.mmap(-1, WARM_BYTES) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory[::PAGE] = bytes(WARM_BYTES // PAGE)


def _run(bench: Bench, case: Case, repeats: int) -> tuple[list[Sample], list[Sample], Record]:
    """Samples of the kernel's memory and of the governed."""
    output = bench.scratch / "frames.out"
    argv = case.argv(bench, repeats)
    request = RunRequest(argv=argv, policy_toml=case.toml, preload="always", stdout=str(output), timeout_s=300)
    if case.is_shielded:
        request = request.model_copy(update=SHIELD)
    record = run(request)
    if record.outcome.status != "ok":
        raise SystemExit(f"{' '.join(argv)} under\n{case.toml}{record.outcome}")
    rows = [line.split() for line in output.read_text().splitlines()]
    kernel = [Sample(float(row[0]), float(row[1]), int(row[2])) for row in rows]
    governed = [Sample(float(row[3]), float(row[4]), int(row[5])) for row in rows]
    return kernel, governed, record


def _against_the_kernel(bench: Bench, case: Case, repeats: int) -> Result:
    kernel, governed, record = _run(bench, case, min(repeats, 15) if case.pages > MANY else repeats)
    cpu = compare("", "ns", [one.cpu_ns for one in kernel], [one.cpu_ns for one in governed])
    return compare(
        f"{case.name} / the kernel's own warm fault",
        "ns",
        [one.wall_ns for one in kernel],
        [one.wall_ns for one in governed],
        goal=case.goal,
        note=f"CPU time of all threads: {cpu.median:.2f}; {_pages_a_move(record)}; {_as_asked(record)}",
    )


WARM_BYTES = 2 << 30
"""Bytes to touch, more than the measurements touch afterwards."""
GROWING = 6
"""Repeats until the pool has the size that the program needs: left out where threads are compared."""
THREADS, RATE_BEFORE = 8, 42_000
"""Threads that fault at once, and pages a second of all of them on two processors before they were woken together."""


def _threads(bench: Bench, repeats: int) -> Iterator[Result]:
    """One page a fault, many threads: their joint rate, under the scheduler's choice and without other programs."""
    for how, request in (("", RunRequest(argv=[])), (", real time", RunRequest(argv=[], scheduler="fifo"))):
        yield from _threads_of(bench, repeats, how, request)


def _threads_of(bench: Bench, repeats: int, how: str, request: RunRequest) -> list[Result]:
    rounds = max(6, bench.rounds // 2)
    each = GROWING + max(15, -(-repeats // rounds))
    bare: list[list[float]] = [[] for _ in THREADS_FLOOR]
    kernel: list[float] = []
    governed: list[float] = []
    messages = batches = 0
    for _ in range(rounds):
        _, *columns = _bare(bench, "frames_threads_floor", (THREADS, each, PAUSE_MS), request)
        for samples, column in zip(bare, columns, strict=True):
            samples += column[GROWING:]
        rows, record = _run_threads(bench, each, request)
        kernel += [row[0] for row in rows[GROWING:]]
        governed += [row[1] for row in rows[GROWING:]]
        values = _engine(record)
        messages, batches = messages + values["messages"], batches + values["batches"]
    goal = 4 * RATE_BEFORE
    pages = f"one page a fault, {THREADS} threads at once{how}"
    results = [
        absolute(f"floor: {name}, {pages}: ns a page", "ns", samples).noted(_rate(samples))
        for name, samples in zip(THREADS_FLOOR, bare, strict=True)
    ]
    rate = absolute(f"demand (bin-hopping), {pages}: ns a page", "ns", governed, goal=1e9 / goal)
    note = f"{_rate(governed)}, goal {goal:,}; {messages / max(1, batches):.1f} messages at a time"
    results.append(rate.noted(note))
    results.append(compare(f"demand (bin-hopping), {pages} / the kernel's own warm fault", "ns", kernel, governed))
    results.append(
        compare(f"demand (bin-hopping), {pages} / a bare handler that lets faults gather", "ns", bare[1], governed)
    )
    return results


def _against_bare(bench: Bench) -> Result:
    """One page a fault against the same without an engine, interleaved: the cost of the bookkeeping."""
    samples = interleave(
        {
            "bare": lambda: statistics.median(
                _bare(bench, "frames_floor", (11,), RunRequest(argv=[], **SHIELD))[ONE_PAGE]
            ),
            "engine": lambda: statistics.median(one.wall_ns for one in _run(bench, DEMAND_1, 11)[1]),
        },
        bench.rounds,
    )
    name = f"{DEMAND_1.name} / a bare handler, one page a fault"
    return compare(name, "ns", samples["bare"], samples["engine"], goal=BARE_GOAL)


def _run_threads(bench: Bench, repeats: int, request: RunRequest) -> tuple[list[list[float]], Record]:
    output = bench.scratch / "threads.out"
    argv = [bench.compiled("frames_threads", "-pthread"), *map(str, (THREADS, 1024, repeats, PAUSE_MS))]
    changes = {"argv": argv, "policy_toml": BINS_1, "preload": "always", "stdout": str(output), "timeout_s": 300}
    record = run(request.model_copy(update=changes))
    if record.outcome.status != "ok":
        raise SystemExit(f"{' '.join(argv)}: {record.outcome}")
    return [[float(word) for word in line.split()] for line in output.read_text().splitlines()], record


def _rate(ns_a_page: list[float]) -> str:
    return f"{1e9 / statistics.median(ns_a_page):,.0f} pages/s"


def _eager(bench: Bench, case: Case, goal: int, repeats: int) -> list[Result]:
    """The goal is a rate; ns a page say the same the other way round."""
    kernel, governed, record = _run(bench, case, repeats)
    times = [one.wall_ns for one in governed]
    rate = absolute(f"{case.name}: ns a page", "ns", times, goal=1e9 / goal)
    return [
        rate.noted(f"{1e9 / rate.median:,.0f} pages/s, goal {goal:,}; {_as_asked(record)}"),
        compare(f"{case.name} / the kernel's MADV_POPULATE_WRITE", "ns", [one.wall_ns for one in kernel], times),
    ]


def _sparse(bench: Bench) -> list[Result]:
    """One touch in 33 pages: neither the memory of neighbours nor the time for them."""
    memory: list[float] = []

    def sample(toml: str, multiples: list[float] | None = None) -> float:
        case = Case(SPARSE.name, toml, None, pages=SPARSE.pages, stride=SPARSE.stride)
        _, governed, _ = _run(bench, case, 5)
        if multiples is not None:
            multiples += [one.resident * SPARSE.stride / SPARSE.pages for one in governed]
        return sorted(one.wall_ns for one in governed)[2]

    sides: dict[str, Callable[[], float]] = {
        "one": lambda: sample(COLORING_1),
        "adaptive": lambda: sample(COLORING, memory),
    }
    samples = interleave(sides, max(11, bench.rounds))
    return [
        compare(
            "touching one page in 33, page-coloring: adaptive / one page a fault",
            "ns",
            samples["one"],
            samples["adaptive"],
            goal=1.0,
        ),
        absolute(
            "touching one page in 33, page-coloring, adaptive: pages resident for each touched", "", memory, goal=1.0
        ),
    ]


def _pool(bench: Bench) -> list[Result]:
    """Filling the pool is apart from placing; its size is against 5% of what was placed, or 64 MiB."""
    results: list[Result] = []
    rounds = max(6, bench.rounds // 2)
    for kind, toml in (("page-coloring", COLORING), ("bin-hopping", BINS), ("random", RANDOM)):
        over: list[float] = []
        note = ""
        for _ in range(rounds):
            _, _, record = _run(bench, replace(POPULATION, toml=toml), 1)
            engine = _engine(record)
            over.append(engine["pool_peak_bytes"] / MIB)
            note = f"{engine['refill_pages']:,} pages in {engine['refills']} refills"
        allowed = max(64.0, 0.05 * POPULATION.pages * PAGE / MIB)
        name = f"pool at its largest, {kind}, {POPULATION.pages * PAGE // MIB} MiB touched"
        results.append(absolute(name, "MiB", over, goal=allowed).noted(note))
    return results


def _population(bench: Bench) -> Result:
    """Cost of filling the pool on a machine with enough memory and no other load."""
    per_page: list[float] = []
    split: list[float] = []
    for _ in range(max(6, bench.rounds // 2)):
        _warm_up()
        _, _, record = _run(bench, DEMAND_1, 9)
        engine = _engine(record)
        per_page.append(engine["refill_ns"] / engine["refill_pages"])
        split.append(engine["split_ns"] / engine["refill_pages"])
    result = absolute("populating the pool, memory touched a moment ago: ns a page", "ns", per_page, goal=1500)
    return result.noted(
        f"{statistics.median(split):.0f} ns of it splitting huge pages; the quietest run {min(per_page):.0f} ns"
    )


def _small_process(bench: Bench) -> Result:
    """Cost of an engine in a process that hardly needs memory."""

    def wall_ms(toml: str) -> float:
        record = run(RunRequest(argv=["true"], policy_toml=toml, preload="always", stdout="null", timeout_s=60))
        return record.time.wall_ns / 1e6

    sides = {"without": lambda: wall_ms(KERNEL), "with": lambda: wall_ms(COLORING)}
    samples = interleave(sides, bench.rounds)
    return compare(
        "wall time of true: page-coloring - frames kernel", "ms", samples["without"], samples["with"], kind="difference"
    )


def _engine(record: Record) -> dict[str, int]:
    frames = record.frames
    if frames is None or frames.engine is None or frames.engine.state == "failed":
        raise SystemExit(f"{' '.join(record.command.argv)}: no frames were placed: {record.warnings}")
    return frames.engine.values


def _pages_a_move(record: Record) -> str:
    strategies = record.frames.strategies if record.frames else []
    pages, moves = (sum(counts) for counts in zip(*((s.demand_pages, s.moves) for s in strategies), strict=True))
    return f"{pages / moves:.1f} pages a move" if moves else "no moves"


def _as_asked(record: Record) -> str:
    """A note on the pages that were placed as requested; raises an error if the record has no engine."""
    _engine(record)
    asked = record.frames.strategies if record.frames else []
    requested, placed = (
        sum(pages) for pages in zip(*((s.requested_pages, s.placed_pages) for s in asked), strict=True)
    )
    return f"{placed:,} of {requested:,} pages as asked"
