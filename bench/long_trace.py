"""Memory and time of simulations of a billion references, each in a process of its own.

``python -m bench.long_trace DIR [--references N] [--address-space BYTES] [--json FILE]``. The trace is written once, in
pieces, to DIR/long.trace: visits to pages by Zipf's law (0.9) over 2¹⁸ pages (1 GiB) in random order, eight loads of
eight bytes each. They lie in the pool of anonymous memory, so that layouts of page sizes apply. ``--address-space``
lets no simulation have more (RLIMIT_AS), whether or not it touches it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import layouts, trace
from pagelab.layouts.layout import PLACES

PAGES = 1 << 18
VISIT = 8
ANON = PLACES[1]
_PIECE = 1 << 22
WORKS = {
    "paging, all sizes × 7 colour counts": ["paging", "--colors", "1,2,4,8,16,32,64"],
    "the same, two threads": ["paging", "--colors", "1,2,4,8,16,32,64", "--threads", "2"],
    "the same, at most 8192 pages sampled": ["paging", "--colors", "1,2,4,8,16,32,64", "--sample-pages", "8192"],
    "clock, 7 sizes": ["paging", "--colors", "1", "--policy", "clock"],
    "caches of Zen 3, one execution": ["cache", "--hierarchy", "zen-3", "-n", "1", "--threads", "1", "--memory", "2G"],
    "TLB of Zen 3, 4K pages": ["tlb", "--processor", "zen-3", "--pages", "4K", "--threads", "1"],
    "TLB of Zen 3, 1 layout": ["tlb", "--processor", "zen-3", "--threads", "1", "--layouts", "1"],
    "TLB of Zen 3, 8 layouts": ["tlb", "--processor", "zen-3", "--threads", "1", "--layouts", "8"],
    "TLB of Zen 3, 8 layouts, page runs": ["tlb", "--processor", "zen-3", "--threads", "1", "--layouts", "8"],
}
"""Options of ``pagelab simulate``; ``--layouts N`` stands for N policies of a campaign's layouts, evenly chosen."""


@dataclass(frozen=True)
class Row:
    """One simulation."""

    work: str
    references: int
    peak_bytes: int
    cpu_s: float
    wall_s: float
    exit_code: int

    def line(self) -> str:
        rate = self.references / self.cpu_s / 1e6
        failed = f", exit code {self.exit_code}" if self.exit_code else ""
        return (
            f"{self.work:<40} {self.peak_bytes / (1 << 20):8.0f} MiB {self.cpu_s:8.1f} CPU-s {self.wall_s:8.1f} s"
            f" {rate:7.1f} Mref/CPU-s{failed}"
        )


def visits(references: int) -> Iterator[NDArray[np.uint64]]:
    """Addresses in pieces; deterministic."""
    rng = np.random.default_rng(42)
    weights = np.cumsum(np.arange(1, PAGES + 1, dtype=float) ** -0.9)
    weights /= weights[-1]
    pages = rng.permutation(PAGES).astype(np.uint64) << np.uint64(12)
    within = np.arange(VISIT, dtype=np.uint64) * np.uint64(8)
    for start in range(0, references, _PIECE):
        count = min(_PIECE, references - start) // VISIT
        page = pages[np.searchsorted(weights, rng.random(count))]
        offset = rng.integers(0, 4096 // (8 * VISIT), count, dtype=np.uint64) * np.uint64(8 * VISIT)
        yield (np.uint64(ANON.start) + (page + offset)[:, None] + within).ravel()


def policies(directory: Path, count: int) -> list[str]:
    """``--policy FILE`` of so many of a campaign's 54 layouts over the trace's memory, written to ``directory``."""
    space = layouts.Footprint(tuple(("anon", tile << 21) for tile in range(PAGES >> 9)))
    every = layouts.campaign(space).layouts
    options = []
    for layout in every[len(every) // (2 * count) :: len(every) // count][:count]:
        path = directory / f"{layout.name}.toml"
        path.write_text(layout.toml())
        options += ["--policy", str(path)]
    return options


def page_runs(path: Path) -> Path:
    """The same trace as runs of references to a page, as `pagelab model run` captures it."""
    runs = path.with_name("runs.trace")
    if not runs.exists():
        trace.convert(path, runs, page_bytes=4096)
    return runs


def simulate(work: str, path: Path, references: int, limit: int | None) -> Row:
    """Runs ``pagelab simulate``; the peak is of its resident pages, as the kernel counts them."""
    kind, *options = WORKS[work]
    if "--layouts" in options:
        options = [*options[:-2], *policies(path.parent, int(options[-1]))]
    used = page_runs(path) if work.endswith("page runs") else path
    command = [sys.executable, "-m", "pagelab", "simulate", kind, str(used), *options]

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limited)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return Row(work, references, usage.ru_maxrss << 10, cpu, wall, child.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.long_trace", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--references", type=int, default=1_000_000_000)
    parser.add_argument("--only", action="append", choices=list(WORKS))
    parser.add_argument("--address-space", type=int, help="RLIMIT_AS of each simulation, in bytes")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    path = arguments.directory / "long.trace"
    if not path.exists():
        start = time.perf_counter()
        trace.write(path, visits(arguments.references), level=1, pools=PLACES)
        print(f"{path}: {path.stat().st_size / (1 << 20):.0f} MiB in {time.perf_counter() - start:.0f} s", flush=True)
    references = int(trace.info(path)["references"])
    rows = []
    for work in arguments.only or WORKS:
        rows.append(simulate(work, path, references, arguments.address_space))
        print(rows[-1].line(), flush=True)
    if arguments.json is not None:
        document = {"address_space": arguments.address_space, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return max(row.exit_code != 0 for row in rows)


if __name__ == "__main__":
    sys.exit(main())
