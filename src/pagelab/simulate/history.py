"""The history of a simulated machine before the program starts, and its free memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BadInputError

if TYPE_CHECKING:
    import polars as pl

PAGE_BYTES = 4096


@dataclass(frozen=True)
class History:
    """The simulated machine before the program starts; ``turnover=0`` is a machine that has just booted.

    A seed stands for a machine with another past of this kind, not for the next execution on the same machine.
    docs/method/cache.md has the model; shares are of memory unless noted otherwise.
    """

    memory_bytes: int = 1 << 30
    processors: int = 2
    used: float = 0.4
    """Held by other programs when the program starts."""
    cached: float = 0.5
    """Pages of files, at most."""
    turnover: float = 2.0
    """Number of times that the memory was handed out before."""
    programs: int = 64
    """Programs that lived side by side, about."""
    peak: float = 0.0
    """Most memory that programs held together before; at least the part of ``used`` that is not ``kept``."""
    kept: float = 0.0
    """Share of ``used`` that one program has from the beginning."""
    scattered: float = 0.0
    """Single pages, anywhere, that are never given back or moved: old objects of the kernel."""
    programs_differ: float = 2.0
    """Standard deviation of the binary logarithm of programs' sizes."""
    growing: int = 8
    """Programs that a processor lets grow in turns."""
    from_files: float = 0.5
    """Share of the allocated pages that hold data read from files."""
    file_bytes: int = 64 << 10
    """Median size of a file."""
    files_differ: float = 2.9
    """Standard deviation of the binary logarithm of files' sizes."""
    deleted: float = 0.2
    """Files that are deleted for each one that is read."""
    dropped: float = 0.0
    """Share of the file pages that is dropped at the end."""
    readahead_bytes: int = 128 << 10
    """The largest window of readahead."""

    @classmethod
    def of(cls, past: str, **changes: Any) -> History:
        """The history named ``past`` in :data:`PASTS`, with ``changes``. Raises :class:`BadInputError`."""
        if past not in PASTS:
            raise BadInputError(f"past {past!r} is not known; there are: {', '.join(PASTS)}")
        return cls(**{**PASTS[past], **changes})


PASTS: Mapping[str, Mapping[str, Any]] = {
    "mixed": {},
    "compile": {
        "used": 0.23,
        "cached": 0.67,
        "turnover": 0.48,
        "from_files": 0.636,
        "programs": 885,
        "growing": 39,
        "deleted": 0.94,
        "programs_differ": 3.03,
        "dropped": 0.876,
        "peak": 0.496,
        "files_differ": 3.78,
        "file_bytes": 135_750,
        "scattered": 0.0066,
    },
    "page-cache": {
        "used": 0.55,
        "cached": 0.45,
        "kept": 0.92,
        "turnover": 11.3,
        "from_files": 0.527,
        "programs": 260,
        "growing": 26,
        "deleted": 0.11,
        "files_differ": 2.71,
        "scattered": 0.0023,
    },
    "forks": {
        "used": 0.1,
        "cached": 0.67,
        "turnover": 1.12,
        "from_files": 0.678,
        "programs": 679,
        "growing": 29,
        "deleted": 0.312,
        "programs_differ": 3.46,
        "dropped": 0.893,
        "peak": 0.189,
        "files_differ": 4.3,
        "file_bytes": 183_539,
        "scattered": 0.0066,
    },
}
"""Pasts by name. All but ``mixed`` are fitted to states of a Linux machine: docs/method/cache.md."""


class AgedMemory(NamedTuple):
    """Free memory of machines with a history."""

    free: pl.DataFrame
    """``seed``, ``block_bytes``, ``free_blocks`` (as in ``/proc/buddyinfo``), and ``available``: the share of the free
    memory from which a block of this size can be had."""
    runs: pl.DataFrame
    """``seed``, ``pages``, ``runs``: the number of runs of ``pages`` consecutive frames in a fresh process."""


def aged_memory(history: History, seeds: Iterable[int] = (0,), *, pages: int = 16_384) -> AgedMemory:
    """Free memory of machines with this history, and the frames of the first ``pages`` pages of a fresh process.

    Raises :class:`BadInputError` for an impossible history.
    """
    import polars as pl

    from .. import _native

    try:
        machines = json.loads(_native.aged_memory(json.dumps(asdict(history)), list(seeds), pages))
    except ValueError as error:
        raise BadInputError(str(error)) from None
    free, runs = [], []
    for machine in machines:
        seed, blocks = machine["seed"], machine["blocks"]
        sizes = [PAGE_BYTES << order for order in range(len(blocks))]
        held = [size * count for size, count in zip(sizes, blocks, strict=True)]
        for order, (size, count) in enumerate(zip(sizes, blocks, strict=True)):
            free.append((seed, size, count, sum(held[order:]) / sum(held) if sum(held) else None))
        runs += [(seed, length, count) for length, count in runs_of(machine["frames"]).items()]
    return AgedMemory(
        pl.DataFrame(
            free,
            {"seed": pl.UInt64, "block_bytes": pl.Int64, "free_blocks": pl.Int64, "available": pl.Float64},
            orient="row",
        ),
        pl.DataFrame(runs, {"seed": pl.UInt64, "pages": pl.Int64, "runs": pl.Int64}, orient="row"),
    )


def runs_of(frames: list[int]) -> dict[int, int]:
    """Numbers of runs by length in the frames of consecutive pages; a run is frames in ascending order."""
    found: dict[int, int] = {}
    length = 1
    for before, after in pairwise([*frames, -1]):
        if after == before + 1:
            length += 1
        else:
            found[length] = found.get(length, 0) + 1
            length = 1
    return dict(sorted(found.items()))
