"""The evidence for advice by misses: where the TLB misses, from a trace or from samples of another execution.

Misses show where huge pages help, and not how much time they save. So no gain is promised; only the check measures it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.advise.choose import Choice
from pagelab.advise.design import Region
from pagelab.errors import BadInputError, quoted
from pagelab.layouts import Footprint, Layout, Profile, Tile, footprint, perf_script, profile
from pagelab.layouts.layout import PLACES, POOLS, TILE
from pagelab.trace import Trace
from pagelab.trace.pools import of_header

LEAST = 0.1
"""A tile is advised that has at least this share of the mean tile's misses: all that are left out together have less
than a tenth of them."""


@dataclass(frozen=True)
class Evidence:
    """The file with the misses: a trace or samples, one of the two."""

    trace: Path | None = None
    """Of the same command (``pagelab trace --pools``), to be simulated in 4K pages."""
    samples: Path | None = None
    """``perf script`` of an execution whose memory lay in pools."""
    processor: str | None = None
    """What the trace is simulated on; None: this machine's preset."""

    @property
    def option(self) -> str:
        """The options that name this file, as the user types them."""
        if self.samples is not None:
            return f"--samples {quoted(self.samples)}"
        assert self.trace is not None
        processor = "" if self.processor is None else f" --processor {quoted(self.processor)}"
        return f"--trace {quoted(self.trace)}{processor}"


def refuse_unfit(evidence: Evidence, argv: Sequence[str]) -> None:
    """Raises `BadInputError` where the header of the trace shows that no advice on this command can follow from it."""
    if evidence.trace is None:
        return
    from pagelab.simulate import hardware
    from pagelab.simulate.calibration import this_machine

    path, header = evidence.trace, Trace(evidence.trace).header
    processor = evidence.processor or this_machine()
    full = hardware.needs_references(hardware.load(processor))
    traced = _parameters(header).get("capture")
    if traced is None:
        told = "it does not say which command it is of"
    elif list(traced) != list(argv):
        told = f"it is of {shlex.join(traced)}"
    elif full and header.get("content") == "runs":
        told = f"it has page runs, and stores have entries of their own on {processor}"
    else:
        return
    raise BadInputError(
        f"--trace {path}: {told}; capture it with: pagelab trace --pools{' --full' if full else ''} -o {path.name} -- "
        f"{shlex.join(argv)}"
    )


def _parameters(header: Mapping[str, Any]) -> dict[str, Any]:
    return (header.get("provenance") or {}).get("parameters") or {}


def misses(evidence: Evidence, argv: Sequence[str], records: footprint.Records) -> tuple[Footprint, Profile]:
    """The tiles that the advice can choose from, and their misses. ``records``: of executions here.

    Raises `BadInputError` where the file cannot be read, is of another command or input, or has no miss in the pools.
    """
    if evidence.trace is not None:
        space, found = _traced(evidence.trace, evidence.processor, argv, records)
        other = "give what was traced the memory that misses, or leave --trace out"
    else:
        assert evidence.samples is not None
        space = footprint.of_record(records["2M"])
        found = _sampled(evidence.samples, space)
        other = (
            "the sampled program has to run in the same pools: pagelab run --policy pools.toml -- perf record -d -- "
            "CMD (docs/advise.md has pools.toml)"
        )
    if not found.misses.sum():
        raise BadInputError(
            f"cannot advise by {evidence.option}: none of its misses lies in heap, anonymous memory or arenas of "
            f"{shlex.join(argv)}; {other}"
        )
    return space, found


def _traced(
    path: Path, processor: str | None, argv: Sequence[str], records: footprint.Records
) -> tuple[Footprint, Profile]:
    from pagelab.simulate.calibration import this_machine
    from pagelab.simulate.placements import placement_of_pages
    from pagelab.simulate.tlb_runs import tlb

    header = Trace(path).header
    space = footprint.of_trace(path)
    whole = _parameters(header).get("options", {}).get("marker") != "on"
    footprint.refuse_other_input(space, records, argv, whole=whole)
    runs = tlb(path, processor or this_machine(), placement_of_pages("4K"))
    return space, profile.of_windows(runs.windows, space, of_header(header))


def _sampled(path: Path, native: Footprint) -> Profile:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return profile.of_samples(perf_script.samples(lines), native, PLACES, "perf samples")
    except OSError as error:
        raise BadInputError(f"cannot read --samples {path}: {error.strerror} (errno {error.errno})") from error


@dataclass(frozen=True)
class Found:
    """Regions, each of adjoining tiles that all get huge pages or all get none; and the choice of the regions."""

    regions: list[Region]
    misses: NDArray[np.float64]
    """Shape (regions,): their shares of all misses, those outside of the pools among them."""
    choice: Choice


def chosen(space: Footprint, found: Profile, budget: int | None) -> Found:
    """The tiles with most misses, as many as fit ``budget`` bytes of huge pages (None: no limit).

    Tiles are of one size, so the best set is that of the most misses (no smaller set has as many); those with less
    than :data:`LEAST` of the mean are never in it. Equal ones are taken in order of addresses, so that they adjoin.
    """
    worth = found.misses >= LEAST * found.misses.mean()
    worth &= found.misses > 0
    room = len(space) if budget is None else budget // TILE
    best = [at for at in np.argsort(-found.misses, kind="stable") if worth[at]]
    taken = np.zeros(len(space), dtype=bool)
    taken[best[:room]] = True
    regions, shares, flags = [], [], []
    for _, group in groupby(range(len(space)), key=lambda at: _run_of(space, taken, at)):
        run = list(group)
        pool, start = space.tiles[run[0]]
        regions.append(Region(pool, start, space.tiles[run[-1]][1] + TILE))
        shares.append(float(found.misses[run].sum()) / found.total)
        flags.append(bool(taken[run[0]]))
    left_out = max(0, len(best) - room)
    choice = Choice(np.array(flags), None, None, None, int(taken.sum()) * TILE, left_out)
    return Found(regions, np.array(shares), choice)


def _run_of(space: Footprint, taken: NDArray[np.bool_], at: int) -> tuple[str, int, bool]:
    """A key that is equal for adjoining tiles of one region: the pool, the place less the index, and the choice."""
    pool, start = space.tiles[at]
    return pool, start // TILE - at, bool(taken[at])


def layout(regions: Sequence[Region], name: str = "advice") -> Layout:
    """The layout with these regions in 2M pages: each kind of memory has a pool of its own, as in the trace."""
    return Layout(name, tuple(Tile(one.pool, one.start, one.end) for one in regions if one.pool in POOLS))
