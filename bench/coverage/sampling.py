"""How often the 95% intervals of sampled faults hold the exact value: the table of docs/method/paging.md.

``python -m bench.coverage.sampling`` makes it anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.coverage.tables import put
from pagelab.simulate.page_faults import paging
from pagelab.simulate.sampling import T95, sample

DOCUMENT = Path(__file__).parents[2] / "docs/method/paging.md"
COLOURS = (1, 4, 16, 64)


def zipf(length: int, pages: int, exponent: float, rng: np.random.Generator) -> NDArray[np.int64]:
    weights = 1 / np.arange(1, pages + 1) ** exponent
    return rng.permutation(pages)[rng.choice(pages, length, p=weights / weights.sum())]


def traces() -> dict[str, tuple[NDArray[np.int64], tuple[int, ...]]]:
    """Traces with memory sizes: far from jumps of their curves, near them, and right beside them."""
    rng = np.random.default_rng(3)
    loop = np.arange(300_000) % 10_000
    jumps = (40_000 * rng.beta(0.6, 3.0, 300_000)).astype(np.int64)
    phases = [np.arange(120_000) % 6000, 6000 + np.arange(100_000) % 4000, 3000 + np.arange(120_000) % 8000]
    return {
        "loop": (loop, (4992, 8000, 9472, 9984, 10_048, 10_240, 11_008, 16_384)),
        "phases": (np.concatenate(phases), (2048, 3968, 4096, 5952, 6080, 7936, 8064, 9984, 16_384)),
        "Zipf 0.9": (zipf(400_000, 40_000, 0.9, rng), (2048, 4096, 8192, 16_384, 32_768)),
        "loop and jumps": (
            np.where(rng.random(300_000) < 0.5, loop, jumps),
            (4096, 8192, 9984, 12_032, 16_384, 24_576),
        ),
    }


@dataclass
class Cell:
    """Results of the samples for a trace, a number of colours and a memory size."""

    held: int = 0
    shown: int = 0
    asked: int = 0
    wide: float = 0.0
    """Sum of the intervals' half widths, relative to the exact value."""


def cells(
    name: str, seeds: range, how: dict[str, float], colours: tuple[int, ...] = COLOURS
) -> dict[tuple[int, int], Cell]:
    """Results by number of colours and memory size."""
    trace, memory = traces()[name]
    exact = {
        (row["colours"], row["memory_pages"]): row["faults_per_million"]
        for row in paging(trace, colours, memory=memory).iter_rows(named=True)
    }
    found: dict[tuple[int, int], Cell] = {key: Cell() for key in exact}
    for seed in seeds:
        one = sample(trace, memory, colours, seed=seed, **how)  # type: ignore[arg-type]  # a rate, or pages
        for key in one.unsure:
            found[key].asked += 1
        for row in one.faults.iter_rows(named=True):
            key = (row["colours"], row["memory_pages"])
            half = T95 * row["standard_error"]
            cell = found[key]
            cell.asked += 1
            cell.shown += 1
            cell.held += abs(row["faults_per_million"] - exact[key]) <= half + 1e-6
            cell.wide += half / exact[key]
    return found


def lines(count: int) -> Iterator[str]:
    """The table in Markdown, with ``count`` samples of each trace."""
    yield "| trace | sample | colours | held: all | least of a size | half width, mean | shown |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name in traces():
        for how in ({"rate": 0.1}, {"rate": 0.02}, {"most_pages": 4096}):
            by_size = cells(name, range(count), how)  # type: ignore[arg-type]  # as above
            for colours in COLOURS:
                sizes = [cell for (of, _), cell in by_size.items() if of == colours and cell.asked]
                asked, shown = sum(cell.asked for cell in sizes), sum(cell.shown for cell in sizes)
                words = " ".join(f"{key.replace('_', ' ')} {value}" for key, value in how.items())
                if not shown:
                    yield f"| {name} | {words} | {colours} | | | | {'none' if asked else 'too few frames'} |"
                    continue
                often = [cell.held / cell.shown for cell in sizes if cell.shown >= count / 4]
                least = f"{min(often):.0%}" if often else ""
                yield (
                    f"| {name} | {words} | {colours} | {sum(cell.held for cell in sizes) / shown:.0%} | {least} "
                    f"| {sum(cell.wide for cell in sizes) / shown:.0%} | {shown / asked:.0%} |"
                )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage.sampling", description=__doc__)
    parser.add_argument("--samples", type=int, default=60, help="of each trace")
    put("coverage of sampled faults", "\n".join(lines(parser.parse_args().samples)), DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
