"""Feeds references to the simulations of paging: from a trace file, a NumPy array, or an iterator of arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelab.errors import BadInputError, MachineError, quoted

if TYPE_CHECKING:
    from pagelab._native import Paging

Batch = ArrayLike | tuple[ArrayLike, ArrayLike]
"""Virtual page numbers, one a reference; or a pair (page numbers, how many references to each in a row)."""
Trace = str | PathLike[str] | NDArray[Any] | Iterable[Batch]
"""A trace file's path, an array of page numbers, or an iterator (or list) of batches."""
Report = Callable[[int, int | None], None]
"""Told the references taken so far, and how many there are in all where that is known."""

_PIECE = 1 << 16
"""Elements of an array passed at once: they are copied, and stay in the cache; Ctrl-C takes effect between two."""
_MOST = 2**64 - 1
"""Most references that are counted."""

Require = Callable[[dict[str, Any]], None]
"""Told a trace file's header before anything is read from it; raises :class:`BadInputError` to refuse it."""


def feed(
    simulations: Sequence[Paging],
    trace: Trace,
    *,
    page_bytes: int = 4096,
    require: Require | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Gives every reference of ``trace`` to every simulation; returns the trace's header (empty for arrays).

    Page numbers have the address space in bits 52 to 63. ``page_bytes`` matters for trace files only.

    Raises :class:`BadInputError` where the trace cannot be read, is a sample, or is refused by ``require``.
    """
    if isinstance(trace, str | PathLike):
        return _feed_file(simulations, fspath(trace), page_bytes, require, report)
    batches: Iterable[Batch] = [trace] if isinstance(trace, np.ndarray) else trace
    total = int(trace.size) if isinstance(trace, np.ndarray) else None
    done = 0
    for batch in batches:
        pages, counts = _arrays(batch)
        for start in range(0, len(pages), _PIECE):
            piece = slice(start, start + _PIECE)
            done += len(pages[piece]) if counts is None else _sum(counts[piece])
            if done > _MOST:
                raise BadInputError(f"the counts of the pages add up to {done}; at most {_MOST}")
            for simulation in simulations:
                simulation.feed_array(pages[piece], None if counts is None else counts[piece])
            if report is not None:
                report(done, total)
    return {}


def no_references(trace: Trace) -> BadInputError:
    """The error of a trace in which there is nothing to simulate."""
    if isinstance(trace, str | PathLike):
        return BadInputError(
            f"trace {fspath(trace)}: it has no references that use pages; see what it has: "
            f"pagelab trace info {quoted(Path(trace))}"
        )
    return BadInputError("the trace has no references: no page numbers were given")


def _arrays(batch: Batch) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
    if isinstance(batch, tuple):
        if len(batch) != 2:
            raise BadInputError(f"a batch is an array, or a pair (pages, counts): this tuple has {len(batch)} parts")
        pages, counts = _integers(batch[0], "page numbers"), _integers(batch[1], "counts")
        if pages.shape != counts.shape:
            raise BadInputError(f"{len(pages)} page numbers, but {len(counts)} counts")
        return pages, counts
    return _integers(batch, "page numbers"), None


def _sum(counts: NDArray[np.uint64]) -> int:
    """The sum of a piece's counts, which may need more than 64 bits."""
    return (int((counts >> np.uint64(32)).sum()) << 32) + int((counts & np.uint64(0xFFFF_FFFF)).sum())


def _integers(values: ArrayLike, what: str) -> NDArray[np.uint64]:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise BadInputError(f"{what} must be integers, not {array.dtype}")
    if array.ndim != 1:
        raise BadInputError(f"{what} must be a one-dimensional array, not one of shape {array.shape}")
    if array.dtype.kind == "i" and int(array.min()) < 0:
        raise BadInputError(f"{what} must not be negative: {int(array.min())}")
    return np.ascontiguousarray(array, dtype=np.uint64)


def _feed_file(
    simulations: Sequence[Paging], path: str, page_bytes: int, require: Require | None, report: Report | None
) -> dict[str, Any]:
    from pagelab._native import PageRuns

    if page_bytes < 1 or page_bytes & (page_bytes - 1):
        raise BadInputError(f"page size {page_bytes}: not a power of two")
    try:
        with Path(path).open("rb"):  # Python's errors have the errno
            pass
        runs = PageRuns(path, page_bytes.bit_length() - 1, False)
        header: dict[str, Any] = json.loads(runs.header)
        refuse_samples(path, header)
        if require is not None:
            require(header)
        done = 0
        while (count := runs.feed(list(simulations))) is not None:
            done += count
            if report is not None:
                report(done, runs.references)
    except OSError as error:
        kind = BadInputError if isinstance(error, FileNotFoundError | PermissionError) else MachineError
        raise kind(f"cannot read the trace {path}: {error.strerror} (errno {error.errno})") from error
    except ValueError as error:
        raise BadInputError(f"trace {path}: {error}") from error
    return header


def refuse_samples(path: str, header: dict[str, Any]) -> None:
    """Raises :class:`BadInputError` if the trace is a sample, in which distances have no meaning."""
    sampling = header.get("sampling")
    if sampling is not None:
        raise BadInputError(
            f"trace {path}: it is a sample ({sampling['what']}), and page faults need every reference; "
            "capture one with: pagelab trace -o FILE -- PROGRAM"
        )


def _listed(numbers: Sequence[int], between: str) -> str:
    return between.join(map(str, numbers))


def exact_from(header: dict[str, Any], colours: Sequence[int], colouring: str, page_bytes: int) -> int:
    """The smallest memory, in pages, for which a trace is exact under LRU: more than 1 if the trace was reduced.

    Raises :class:`BadInputError` for colours and page sizes for which it was not reduced. A reduction uses the page
    number modulo the number of colours; how other colourings would spread the dropped references is not known.
    """
    reduction = header.get("reduction")
    if reduction is None:
        return 1
    if page_bytes != 1 << header["page_bits"]:
        raise BadInputError(
            f"the trace was reduced for pages of {1 << header['page_bits']} bytes, not of {page_bytes}; simulate the "
            "whole trace"
        )
    others = [count for count in colours if count not in reduction["colours"]]
    if others:
        given = [int(count) for count in reduction["colours"]]
        raise BadInputError(
            f"the trace was reduced for {_listed(given, ', ')} {'colour' if given == [1] else 'colours'}: {others[0]} "
            f"colours are not exact; simulate those (--colors {_listed(given, ',')}), or reduce the whole trace with: "
            f"pagelab trace reduce --colors {_listed(colours, ',')} …"
        )
    if colouring != "modulo" and any(count > 1 for count in colours):
        raise BadInputError(
            f"the trace was reduced for colours that are page numbers modulo their number: {colouring} colours are not "
            "exact; simulate the whole trace, or one colour"
        )
    return int(reduction["memory_pages"])
