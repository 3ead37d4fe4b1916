"""Millions of references a second of processor time, for simulations of paging; PyPI's libcachesim in the same run.

``python -m bench.simulate_paging [--references N] [--trace FILE] [--json FILE]``. Traces: independent Zipf 0.9 and a
cyclic sweep over 100,000 pages, and, with ``--trace``, the page runs of a real program. All are in memory before the
clock starts; libcachesim reads its own from a file in the page cache, through its reader.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import _native
from pagelab.simulate.page_faults import PAPER_COLOURS
from pagelab.simulate.traces import feed

PAGES = 100_000
ONE_SIZE = PAGES // 2
Pages = NDArray[np.uint64]


@dataclass(frozen=True)
class Row:
    """One figure: millions of references a second of processor time, and of real time."""

    work: str
    trace: str
    by: str
    per_cpu_s: float
    per_s: float
    goal: float | None


def zipf(references: int) -> Pages:
    """Independent references; the rank-to-page map is a random permutation (seed 42)."""
    rng = np.random.default_rng(42)
    weights = np.cumsum(np.arange(1, PAGES + 1, dtype=float) ** -0.9)
    permutation = rng.permutation(PAGES).astype(np.uint64)
    pieces = [
        permutation[np.searchsorted(weights / weights[-1], rng.random(min(5_000_000, references - start)))]
        for start in range(0, references, 5_000_000)
    ]
    return np.concatenate(pieces)


def sweep(references: int) -> Pages:
    """All pages in turn, again and again."""
    return np.arange(references, dtype=np.uint64) % np.uint64(PAGES)


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def best(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The least processor time of several rounds, and the least real time: what disturbs only adds."""
    times = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), processor_s()
        run()
        times.append((processor_s() - cpu, time.perf_counter() - wall))
    return min(cpu for cpu, _ in times), min(wall for _, wall in times)


def stacks(pages: Pages, counts: Pages | None, colours: tuple[int, ...], threads: int = 1) -> object:
    simulation = _native.Paging.stacks("modulo", [], list(colours), threads)
    feed([simulation], pages if counts is None else [(pages, counts)])
    return simulation.curves()


def one_size(pages: Pages) -> object:
    simulation = _native.Paging.memories("lru", "modulo", [], [(1, ONE_SIZE)], 1)
    feed([simulation], pages)
    return simulation.faults()


def libcachesim_lru(pages: Pages, scratch: Path) -> Callable[[], object]:
    """Its LRU at the same size over the same references, which it reads from its own format (oracleGeneral)."""
    import libcachesim as lcs

    records = np.empty(len(pages), np.dtype([("t", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    records["t"], records["id"], records["size"], records["next"] = 0, pages + np.uint64(1), 1, -1
    path = scratch / "trace.oracleGeneral"
    records.tofile(path)

    def run() -> object:
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
        return lcs.LRU(ONE_SIZE).process_trace(reader)

    return run


def measure(traces: dict[str, Pages], rounds: int, scratch: Path) -> list[Row]:
    goals = {
        ("one size, LRU", "zipf"): 40.0,
        ("one size, LRU", "sweep"): 40.0,
        ("all sizes, one colour", "zipf"): 20.0,
        ("all sizes, one colour", "sweep"): 60.0,
        ("all sizes × 7 colour counts", "zipf"): 6.0,
        ("all sizes × 7 colour counts", "sweep"): 15.0,
    }
    rows = []
    for name, pages in traces.items():
        works: dict[tuple[str, str], Callable[[], object]] = {
            ("one size, LRU", "pagelab"): lambda pages=pages: one_size(pages),
            ("all sizes, one colour", "pagelab"): lambda pages=pages: stacks(pages, None, (1,)),
            ("all sizes × 7 colour counts", "pagelab"): lambda pages=pages: stacks(pages, None, PAPER_COLOURS),
            ("same, two threads", "pagelab"): lambda pages=pages: stacks(pages, None, PAPER_COLOURS, 2),
        }
        try:
            works["one size, LRU", "libcachesim"] = libcachesim_lru(pages, scratch)
        except ImportError:
            print("libcachesim is not installed: pip install libcachesim", file=sys.stderr)
        for (work, by), run in works.items():
            cpu, wall = best(run, rounds)
            goal = goals.get((work, name)) if by == "pagelab" else None
            rows.append(Row(work, name, by, len(pages) / cpu / 1e6, len(pages) / wall / 1e6, goal))
            print(line(rows[-1]), flush=True)
    return rows


def real(path: Path, rounds: int, most: int) -> list[Row]:
    """All sizes and seven colour counts over the page runs of a trace, in millions of runs."""
    from pagelab.trace.reading import Trace

    pages, counts, length = [], [], 0
    for batch in Trace(path).runs():
        pages.append(batch.page | batch.asid.astype(np.uint64) << np.uint64(52))
        counts.append(batch.count)
        length += len(batch.page)
        if length >= most:
            break
    page, count = np.concatenate(pages), np.concatenate(counts)
    cpu, wall = best(lambda: stacks(page, count, PAPER_COLOURS), rounds)
    work = "all sizes × 7 colour counts, page runs"
    row = Row(work, path.name, "pagelab", length / cpu / 1e6, length / wall / 1e6, 60)
    print(line(row), flush=True)
    return [row]


def line(row: Row) -> str:
    goal = "" if row.goal is None else f", goal {row.goal:g}: {'met' if row.per_cpu_s >= row.goal else 'missed'}"
    return f"{row.work:<40} {row.trace:<12} {row.by:<12} {row.per_cpu_s:7.1f} M/CPU-s, {row.per_s:7.1f} M/s real{goal}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate_paging", description=__doc__)
    parser.add_argument("--references", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", type=Path, help="a trace file with page runs of a real program")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    load = os.getloadavg()
    traces = {"zipf": zipf(arguments.references), "sweep": sweep(arguments.references)}
    with tempfile.TemporaryDirectory(prefix="pagelab-bench-") as scratch:
        rows = measure(traces, arguments.rounds, Path(scratch))
    if arguments.trace is not None:
        rows += real(arguments.trace, arguments.rounds, arguments.references)
    if arguments.json is not None:
        document = {"references": arguments.references, "load_before": load, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
