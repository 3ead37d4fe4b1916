"""Checks that placements match pages of a trace: a placement that matches none would silently equal base pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInputError
from ..trace.pools import Pool, of_header
from .placements import POOLS, Design, Placement
from .references import Trace

WINDOW_BITS = 21
_BASE = 12
_SHOWN = 6


def _about(trace: Trace) -> dict[str, Any]:
    """The description of a trace file; empty for arrays, and for an unreadable file: its reader reports the reason."""
    if not isinstance(trace, str | os.PathLike):
        return {}
    from ..trace import TraceError, info

    try:
        return info(os.fspath(trace))
    except TraceError:
        return {}


def pools_of(trace: Trace) -> tuple[Pool, ...]:
    """The pools with which a trace file was captured; none for arrays."""
    return of_header(_about(trace).get("header") or {})


def require_every_reference(trace: str) -> None:
    """Raises :class:`BadInputError` for a sample, for a reduced trace, and for one without its end.

    For simulations that do not leave the reading of the file to the native part, which refuses these.
    """
    from ..trace import info

    found = info(trace)
    sampling = found["header"].get("sampling")
    if sampling is not None:
        raise BadInputError(
            f"trace {trace}: it is a sample ({sampling['what']}), and TLBs need every reference; capture one with: "
            "pagelab trace -o FILE -- CMD"
        )
    if found["header"].get("reduction") is not None:
        raise BadInputError(f"trace {trace}: it was reduced, and TLBs need every reference; simulate the whole trace")
    if not found["complete"]:
        raise BadInputError(
            f"trace {trace}: it is torn, or bytes follow its end; keep what is whole: "
            f"pagelab trace convert --recover {trace} NEW"
        )


_TOLD = {"fetch": "fetches, for which TLBs have other entries", "other": "prefetches, which TLBs do not count"}


def require_data_runs(trace: Trace) -> None:
    """Raises :class:`BadInputError` for page runs with other references than loads and stores, as far as it is known.

    Runs do not distinguish them from data.
    """
    found = _about(trace)
    if not found or found["header"]["content"] != "runs":
        return
    kinds = _kinds(found["header"], found["ending"])
    wrong = [told for kind, told in _TOLD.items() if kind in kinds]
    if wrong:
        raise BadInputError(
            f"trace {os.fspath(cast(str, trace))}: its page runs contain {' and '.join(wrong)}; make them of loads and "
            "stores alone: pagelab trace -- CMD, or, of full references: pagelab trace convert --page 4K --kinds "
            "load,store FULL NEW"
        )


def _kinds(header: Mapping[str, Any], ending: Mapping[str, Any] | None) -> set[str]:
    """The kinds of references in a trace, if it says so: found, or kept. The header of a trace of earlier versions does
    not: then all that its capture, or the captures of its sources, had."""
    told = (ending or {}).get("run_kinds", header.get("kinds"))
    if told is not None:
        return set(told)
    provenance = header.get("provenance") or {}
    options = (provenance.get("parameters") or {}).get("options") or {}
    found = set(str(options.get("kinds", "")).split("+"))
    sources = provenance.get("from") or []
    return found.union(*(_kinds(one.get("header") or {}, one.get("ending")) for one in sources))


def require_met(trace: Trace, design: Design) -> None:
    """Raises :class:`BadInputError` for a placement that matches no page of ``trace``, a file or an array.

    Iterators cannot be read before they are simulated: :func:`require_met_by` checks them afterwards.
    """
    bound = [one for one in design.placements if one.claims()]
    if not bound:
        return
    windows = _windows_of(os.fspath(trace)) if isinstance(trace, str | os.PathLike) else _of_array(trace)
    if windows is not None and len(windows):
        for one in bound:
            _require(one, windows)


def require_met_by(starts: Iterable[int], design: Design) -> None:
    """Like :func:`require_met`, by the first addresses of the windows of 2 MiB that the trace uses."""
    windows = np.unique(np.fromiter(starts, np.uint64)) >> np.uint64(WINDOW_BITS)
    for one in design.placements:
        if len(windows) and one.claims():
            _require(one, windows)


def _windows_of(path: str) -> NDArray[np.uint64] | None:
    """Windows that a trace file uses. An unchanged file is read only once: reading takes as long as a simulation."""
    try:
        found = Path(path).stat()
    except OSError:
        return None  # as in pools_of
    return _of_file(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _of_file(path: str, *_file: int) -> NDArray[np.uint64] | None:
    from ..trace import Trace as File
    from ..trace import TraceError

    found = np.empty(0, np.uint64)
    try:
        for batch in File(path).runs(page_bytes=1 << WINDOW_BITS):
            found = np.union1d(found, batch.page)
    except TraceError:
        return None  # as in pools_of
    return found


def _of_array(trace: object) -> NDArray[np.uint64] | None:
    if not isinstance(trace, np.ndarray) or trace.dtype.kind not in "iu":
        return None
    return np.unique(trace).astype(np.uint64) >> np.uint64(WINDOW_BITS)


def _require(one: Placement, windows: NDArray[np.uint64]) -> None:
    extents, _ = one.extents()
    large = [(start, end) for start, end, bits in extents if bits > _BASE and not _aligns(start, end, bits, one.pools)]
    wanted = large or [(start, end) for start, end, _ in extents]
    if any(_meets(start, end, windows) for start, end in wanted):
        return
    claims = list(dict.fromkeys(name for *_, name in one.claims()))
    named = ", ".join(f"{start:#x}-{end:#x}" for start, end in wanted[:_SHOWN])
    raise BadInputError(
        f"{one.name}: this placement meets no page of the trace: for {' and '.join(claims)} it names {named}"
        f"{_more(wanted)}, and the trace has pages in {_ranges(windows, one.pools)}; "
        f"{_next(one)}"
    )


def _next(one: Placement) -> str:
    if one.pools == POOLS:
        return "to capture one whose heap, mappings and arenas lie in pools: pagelab trace --pools -- CMD"
    return "name offsets in there, or have layouts made that fit: pagelab model layouts TRACE"


def _aligns(start: int, end: int, bits: int, pools: Sequence[Pool]) -> bool:
    """Whether an extent is the tile at a pool's end, which only aligns the pool's blocks (docs/layouts.md)."""
    return end - start == 1 << bits and any(end == pool.end for pool in pools)


def _meets(start: int, end: int, windows: NDArray[np.uint64]) -> bool:
    first = np.searchsorted(windows, start >> WINDOW_BITS)
    return bool(first < len(windows) and int(windows[first]) <= (end - 1) >> WINDOW_BITS)


def _ranges(windows: NDArray[np.uint64], pools: Sequence[Pool]) -> str:
    """Windows next to each other as ranges, with the pool that they lie in."""
    cuts = np.flatnonzero(np.diff(windows) > 1) + 1
    parts = [(int(part[0]) << WINDOW_BITS, int(part[-1]) + 1 << WINDOW_BITS) for part in np.split(windows, cuts)]
    shown = [f"{start:#x}-{end:#x}{_pool(start, pools)}" for start, end in parts[:_SHOWN]]
    return f"{', '.join(shown)}{_more(parts)}"


def _pool(address: int, pools: Sequence[Pool]) -> str:
    names = [pool.memory for pool in pools if pool.start <= address < pool.end]
    return f" ({' and '.join(names)})" if names else ""


def _more(parts: Sequence[object]) -> str:
    return f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
