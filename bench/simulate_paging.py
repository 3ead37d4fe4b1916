"""Millions of references a second of processor time, for simulations of paging; PyPI's libcachesim in the same run.

Traces: independent Zipf 0.9 and a cyclic sweep over 100,000 pages, Zipf 0.8 over a million, uniform references to four
million, and the page runs of a compiler. All are in memory before the clock starts; libcachesim reads its own format
from a file in the page cache, through its own reader.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import _native
from pagelab.simulate.page_faults import PAPER_COLOURS
from pagelab.simulate.traces import feed

from .sample import Result, absolute, compare, interleave
from .tools import HERE, LEVELS, Bench, built_example, need

PAGES = 100_000
MILLION = 1_000_000
REFERENCES = 20_000_000
LONG = 100_000_000
"""References (or runs) shared among threads, at least."""
ROUNDS = 6
GOALS = {
    ("one size, LRU", "Zipf 0.9"): 40.0,
    ("one size, LRU", "sweep"): 40.0,
    ("all sizes, one colour", "Zipf 0.9"): 20.0,
    ("all sizes, one colour", "sweep"): 60.0,
    ("all sizes × 7 colour counts", "Zipf 0.9"): 6.0,
    ("all sizes × 7 colour counts", "sweep"): 15.0,
    ("all sizes × 7 colour counts", "page runs of gcc"): 60.0,
    ("all sizes, one colour", "Zipf 0.8, 1 million pages"): 16.0,
    ("all sizes, one colour", "uniform, 4 million pages"): 9.0,
    ("all sizes × 7 colour counts", "Zipf 0.8, 1 million pages"): 8.0,
    ("all sizes × 7 colour counts", "uniform, 4 million pages"): 5.0,
}
"""Millions of references (of runs) a processor second, at least."""
OF_APART = 0.9
"""Of what the machine gives two works that share nothing, two threads of one work get so much; never less than one."""
SEVEN = {"opt": 20.0, "clock": 20.0, "fifo": None, "random": None}
"""Policies of memories that hold 1/2, 1/4 ... 1/128 of the pages, and their goals; references are counted once for all
of them."""
UNIT = "M/CPU-s"
Numbers = NDArray[np.uint64]


@dataclass(frozen=True)
class References:
    """Page numbers, out of ``footprint``, and how many references there are to each in a row where that is not one."""

    name: str
    pages: Numbers
    counts: Numbers | None = None
    footprint: int = PAGES

    @property
    def one_size(self) -> int:
        """Frames of the memory of one size."""
        return self.footprint // 2


def zipf(references: int, pages: int = PAGES, exponent: float = 0.9) -> Numbers:
    """Independent references; the rank-to-page map is a random permutation (seed 42)."""
    rng = np.random.default_rng(42)
    weights = np.cumsum(np.arange(1, pages + 1, dtype=float) ** -exponent)
    permutation = rng.permutation(pages).astype(np.uint64)
    pieces = [
        permutation[np.searchsorted(weights / weights[-1], rng.random(min(5_000_000, references - start)))]
        for start in range(0, references, 5_000_000)
    ]
    return np.concatenate(pieces)


def sweep(references: int) -> Numbers:
    """All pages in turn, again and again."""
    return np.arange(references, dtype=np.uint64) % np.uint64(PAGES)


def uniform(references: int, pages: int) -> Numbers:
    """Independent references to pages of equal probability (seed 42)."""
    return np.random.default_rng(42).integers(pages, size=references, dtype=np.uint64)


def page_runs(bench: Bench) -> References:
    """References of a compiler that compiles one of the programs here."""
    from pagelab.trace.files import Trace

    path = bench.scratch / "gcc.trace"
    compiled = [need("gcc"), "-O1", "-c", str(HERE / "frames_faults.c"), "-o", "/dev/null"]
    capture = [sys.executable, "-m", "pagelab", "trace", "-o", str(path), "--", *compiled]
    subprocess.run(capture, check=True, capture_output=True)
    batches = list(Trace(path).runs())
    pages = [batch.page | batch.asid.astype(np.uint64) << np.uint64(52) for batch in batches]
    return References("page runs of gcc", np.concatenate(pages), np.concatenate([batch.count for batch in batches]))


def measure(bench: Bench) -> Iterator[Result]:
    """Every work on every trace, the peer's among them in turns; then one processor against both."""
    traces = [
        References("Zipf 0.9", zipf(REFERENCES)),
        References("sweep", sweep(REFERENCES)),
        References("Zipf 0.8, 1 million pages", zipf(REFERENCES, MILLION, 0.8), footprint=MILLION),
        References("uniform, 4 million pages", uniform(REFERENCES, 4 * MILLION), footprint=4 * MILLION),
        page_runs(bench),
    ]
    for trace in traces:
        sides: dict[str, Callable[[], float]] = {}
        if trace.counts is None:
            run = libcachesim_lru(trace, bench.scratch)
            ours, theirs = one_size(trace)[1][0][2], run()[0] * len(trace.pages)
            assert round(theirs) == ours, f"{ours} faults here, {theirs} there"
            sides["libcachesim"] = lambda run=run, trace=trace: rate(trace, run)
            sides["one size, LRU"] = lambda trace=trace: rate(trace, lambda: one_size(trace))
            sides["all sizes, one colour"] = lambda trace=trace: rate(trace, lambda: stacks(trace, (1,)))
        sides["all sizes × 7 colour counts"] = lambda trace=trace: rate(trace, lambda: stacks(trace, PAPER_COLOURS))
        samples = interleave(sides, min(bench.rounds, ROUNDS))
        peer = samples.pop("libcachesim", None)
        for work, values in samples.items():
            goal = GOALS.get((work, trace.name))
            yield absolute(f"{work}, {trace.name}", UNIT, values, goal=goal, at_least=True)
        if peer is not None:
            yield compare(f"one size, LRU, {trace.name}: libcachesim, pagelab", UNIT, peer, samples["one size, LRU"])
    yield from at_levels(min(bench.rounds, ROUNDS))
    for trace in traces:
        yield from both_cores(trace, min(bench.rounds, ROUNDS))


def policies(bench: Bench) -> Iterator[Result]:
    """Seven sizes under each policy but LRU."""
    traces = [
        References("Zipf 0.8, 1 million pages", zipf(LONG, MILLION, 0.8), footprint=MILLION),
        References("uniform, 4 million pages", uniform(REFERENCES, 4 * MILLION), footprint=4 * MILLION),
    ]
    for trace in traces:
        sides = {
            policy: lambda policy=policy, trace=trace: rate(trace, lambda: seven(trace, policy)) for policy in SEVEN
        }
        for policy, values in interleave(sides, min(bench.rounds, ROUNDS)).items():
            title = f"{policy}, seven sizes, {len(trace.pages) // 10**6} million references, {trace.name}"
            yield absolute(title, UNIT, values, goal=SEVEN[policy], at_least=True)


def at_levels(rounds: int) -> Iterator[Result]:
    """The stacks by code for older processors; each in a process, in turns, on traces that it makes itself."""
    example = built_example("paging_speed")
    inputs = {
        "zipf:0.9:100000": "Zipf 0.9",
        "sweep:100000": "sweep",
        "zipf:0.8:1000000": "Zipf 0.8, 1 million pages",
        "uniform:4000000": "uniform, 4 million pages",
    }
    samples: dict[str, list[float]] = {}
    for _, (given, trace), (level, what) in itertools.product(range(rounds), inputs.items(), LEVELS.items()):
        done = subprocess.run(["env", level, example, given, "1"], check=True, capture_output=True, text=True)
        for found in map(json.loads, done.stdout.splitlines()):
            work = "all sizes, one colour" if found["colour_counts"] == 1 else "all sizes × 7 colour counts"
            samples.setdefault(f"{work} ({what}), {trace}", []).append(found["m_per_cpu_s"])
    for name, values in samples.items():
        yield absolute(name, UNIT, values)


def both_cores(trace: References, rounds: int) -> Iterator[Result]:
    """The trace several times over, because threads pay where there is much to do."""
    times = -(-LONG // len(trace.pages))
    for colours in (1,), PAPER_COLOURS:
        sides = {
            threads: lambda threads=threads, colours=colours: stacks(trace, colours, threads, times)
            for threads in (1, 2)
        }
        yield from threads_compared(f"all sizes, {len(colours)} colour count(s), {trace.name}", sides, rounds)


def threads_compared(name: str, sides: dict[int, Callable[[], object]], rounds: int) -> Iterator[Result]:
    """Real time of one thread over that of two, which means something only where nothing else runs.

    Noted: processor time of two over that of one, and what the machine gives two works of one thread each that have
    nothing to do with each other (twice the time of one over that of both).
    """
    used: dict[str, list[float]] = {}

    def timed(side: str, work: Callable[[], object]) -> float:
        wall, cpu = time.perf_counter(), processor_s()
        work()
        used.setdefault(side, []).append(processor_s() - cpu)
        return time.perf_counter() - wall

    works = {"one": sides[1], "two": sides[2], "apart": lambda: side_by_side(sides[1])}
    timings = {side: lambda side=side, work=work: timed(side, work) for side, work in works.items()}
    samples = interleave(timings, rounds)
    more = compare("", "", used["one"], used["two"]).median
    apart = 2 * compare("", "", samples["apart"], samples["one"]).median
    yield compare(
        f"one thread over two, {name}",
        "s",
        samples["two"],
        samples["one"],
        goal=max(1.0, round(OF_APART * apart, 2)),
        at_least=True,
        note=f"{more:.2f}× the processor time; apart {apart:.2f}",
    )


def side_by_side(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rate(trace: References, run: Callable[[], object]) -> float:
    """Millions of references (or runs) a second of processor time, the system's included."""
    before = processor_s()
    run()
    return len(trace.pages) / (processor_s() - before) / 1e6


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def seven(trace: References, policy: str) -> object:
    memories = [(1, trace.footprint >> shift) for shift in range(1, 8)]
    simulation = _native.Paging.memories(policy, "modulo", [], memories, 0)
    feed([simulation], trace.pages)
    return simulation.faults()


def stacks(trace: References, colours: tuple[int, ...], threads: int = 1, times: int = 1) -> object:
    simulation = _native.Paging.stacks("modulo", [], list(colours), 1, threads)
    for _ in range(times):
        feed([simulation], trace.pages if trace.counts is None else [(trace.pages, trace.counts)])
    return simulation.curves()


def one_size(trace: References) -> tuple[int, list[tuple[int, int, int]]]:
    simulation = _native.Paging.memories("lru", "modulo", [], [(1, trace.one_size)], 1)
    feed([simulation], trace.pages)
    return simulation.faults()


def libcachesim_lru(trace: References, scratch: Path) -> Callable[[], tuple[float, float]]:
    """Its LRU at the same size over the same references, which it reads from its own format (oracleGeneral)."""
    try:
        import libcachesim as lcs
    except ImportError:
        raise SystemExit("bench needs libcachesim; run: pip install 'pagelab[bench]'") from None

    pages = trace.pages
    records = np.empty(len(pages), np.dtype([("t", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    records["t"], records["id"], records["size"], records["next"] = 0, pages + np.uint64(1), 1, -1
    path = scratch / "trace.oracleGeneral"
    records.tofile(path)

    def run() -> tuple[float, float]:
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
        return lcs.LRU(trace.one_size).process_trace(reader)

    return run
