"""Feeds full references to the simulators of caches and TLBs: from a trace file, arrays, or iterators of arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import BadInputError, MachineError

if TYPE_CHECKING:
    from .._native import PlacedSimulation

ADDRESS_BITS = 56
LOAD, STORE, FETCH = 0, 1, 2
_EXACT_SIZES = 32
"""Sizes up to this have their own code (crates/trace, ``SIZES``)."""

Batch = ArrayLike | tuple[ArrayLike, ...]
"""Addresses (loads of 8 bytes), or (addresses, kinds), or (addresses, kinds, sizes)."""
Trace = str | os.PathLike[str] | NDArray[Any] | Iterable[Batch]
Report = Callable[[int, int | None], None]
"""Told the references taken so far, and how many there are in all where that is known."""

_PIECE = 1 << 20


def pack(addresses: ArrayLike, kinds: ArrayLike = LOAD, sizes: ArrayLike = 8, *, before: int = 0) -> NDArray[np.uint64]:
    """References as words of the trace format: addresses below 2⁵⁶, kinds 0 load, 1 store, 2 fetch, sizes of 1 to 32
    bytes. ``before`` is the number of references before these.

    Raises :class:`BadInputError` for other values, with the first one's number, counted from 1.
    """
    address, kind, size = (
        _integers(value, what) for value, what in ((addresses, "addresses"), (kinds, "kinds"), (sizes, "sizes"))
    )
    for values, most, what in (
        (address, 2**ADDRESS_BITS - 1, "addresses"),
        (kind, FETCH, "kinds"),
        (size, _EXACT_SIZES, "sizes"),
    ):
        if values.size and int(values.max()) > most:
            first = int(np.argmax(values.ravel() > most))
            number = before + first + 1 if values.ndim else before + 1
            raise BadInputError(f"reference {number}: {what}: {int(values.ravel()[first])} is above {most}")
    try:
        packed = address | kind << np.uint64(ADDRESS_BITS) | size << np.uint64(ADDRESS_BITS + 2)
    except ValueError as error:
        raise BadInputError(f"addresses, kinds and sizes differ in shape: {error}") from error
    return np.ascontiguousarray(packed.ravel())


def _integers(values: ArrayLike, what: str) -> NDArray[np.uint64]:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise BadInputError(f"{what} must be integers, not {array.dtype}")
    if array.dtype.kind == "i" and int(array.min()) < 0:
        raise BadInputError(f"{what} must not be negative: {int(array.min())}")
    return array.astype(np.uint64, copy=False)


def feed(simulations: Sequence[PlacedSimulation], trace: Trace, report: Report | None = None) -> None:
    """Gives every reference of ``trace`` to every simulation.

    An array or a batch is one thread of one address space. A trace file is read once for each simulation.
    Raises :class:`BadInputError` where the trace cannot be read, is a sample, or has page runs and the simulation needs
    more.
    """
    if isinstance(trace, str | os.PathLike):
        for simulation in simulations:
            _feed_file(simulation, os.fspath(trace), report)
        return
    batches: Iterable[Batch] = [trace] if isinstance(trace, np.ndarray) else trace
    total = int(trace.size) if isinstance(trace, np.ndarray) else None
    done = 0
    for batch in batches:
        packed = pack(*batch, before=done) if isinstance(batch, tuple) else pack(batch, before=done)
        for start in range(0, len(packed), _PIECE):
            piece = packed[start : start + _PIECE]
            for simulation in simulations:
                simulation.feed_array(piece, 0, 0)
            done += len(piece)
            if report is not None:
                report(done, total)


class NoReferencesError(BadInputError):
    """Nothing of a trace was simulated."""


def require_references(taken: Iterable[int], what: str) -> None:
    """Refuses a trace without any reference that was simulated: it would look like a program without misses.

    ``taken``: references by execution; none at all is no execution, and passes.
    """
    counts = list(taken)
    if counts and not any(counts):
        raise NoReferencesError(
            f"the trace has no references {what}; see its kinds and their numbers: pagelab trace info TRACE"
        )


def _feed_file(simulation: PlacedSimulation, path: str, report: Report | None) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # the simulation's own error of opening has no errno
        simulation.feed_file(path, report)
    except OSError as error:
        kind = MachineError if error.errno == 5 else BadInputError
        raise kind(f"cannot read the trace {path}: {error.strerror or error} (errno {error.errno})") from error
    except ValueError as error:
        raise BadInputError(f"{path}: {error}") from error
