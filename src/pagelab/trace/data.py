"""Batches of a trace as arrays, kinds of references, page sizes, and the errors of traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.sizes import size_bytes


class TraceError(BadInputError):
    """A trace, or a request for it, cannot be accepted.

    ``kind``: ``torn``, ``damaged``, ``sampled``, ``reduced``, ``not-a-trace``, ``io`` or ``invalid``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@contextmanager
def native(path: Path | str | None = None) -> Iterator[None]:
    """Turns errors of the native part into :class:`TraceError`, which begins with the trace's name."""
    from pagelab._native import TraceRefused

    where = f"{path}: " if path is not None else ""
    try:
        yield
    except TraceRefused as error:
        kind, message = error.args
        raise TraceError(kind, f"{where}{message}") from None
    except OSError as error:
        raise TraceError("io", f"{where}{error.strerror or error}") from None


KINDS = ("load", "store", "fetch", "other")
"""Kinds of references; ``References.kind`` holds the position in this tuple."""

DEMAND = ("load", "store", "fetch")
"""Kinds that can fault."""


@dataclass(frozen=True)
class _Columns:
    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class References(_Columns):
    """Full references in the trace's order, one element each."""

    address: NDArray[np.uint64]
    """Virtual address, 56 bits."""
    kind: NDArray[np.uint8]
    """Position in :data:`KINDS`."""
    size: NDArray[np.uint16]
    """Bytes of the access; 0 where it is not known."""
    thread: NDArray[np.uint32]
    """Thread, numbered within its address space."""
    asid: NDArray[np.uint16]
    """Address space."""


@dataclass(frozen=True)
class Runs(_Columns):
    """Page runs in the trace's order, one element each."""

    page: NDArray[np.uint64]
    """Virtual page number."""
    asid: NDArray[np.uint16]
    """Address space."""
    count: NDArray[np.uint64]
    """Number of consecutive references to the page."""


def bytes_of(text: str | int) -> int:
    """The bytes of ``4K``, ``2M``, ``1G``, or of a plain number."""
    try:
        return size_bytes(text, "size")
    except BadInputError as error:
        raise TraceError("invalid", str(error)) from None


def page_bits(size: str | int) -> int:
    """The binary logarithm of a page size: 12 for ``4K``. Raises :class:`TraceError` for an invalid page size."""
    number = bytes_of(size)
    bits = number.bit_length() - 1
    if number <= 0 or number != 1 << bits or not 4 <= bits <= 40:
        raise TraceError("invalid", f"page size {size}: a power of two from 16 bytes to 1T")
    return bits


def kind_codes(kinds: Iterable[str]) -> int:
    """A bit mask with a bit for each kind. Raises :class:`TraceError` for an unknown kind."""
    codes = 0
    for kind in kinds:
        if kind not in KINDS:
            raise TraceError("invalid", f"kind {kind!r}: none of {', '.join(KINDS)}")
        codes |= 1 << KINDS.index(kind)
    if not codes:
        raise TraceError("invalid", f"no kind of reference is wanted; kinds are {', '.join(KINDS)}")
    return codes
