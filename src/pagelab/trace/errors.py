"""Errors of traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagelab.errors import BadInputError


class TraceError(BadInputError):
    """A trace, or a request for it, cannot be accepted.

    ``kind``: ``torn``, ``damaged``, ``sampled``, ``reduced``, ``not-a-trace``, ``io`` or ``invalid``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@contextmanager
def native(path: Path | str | None = None) -> Iterator[None]:
    """Errors of the native part as :class:`TraceError`, with the trace's name before them."""
    from pagelab._native import TraceRefused

    where = f"{path}: " if path is not None else ""
    try:
        yield
    except TraceRefused as error:
        kind, message = error.args
        raise TraceError(kind, f"{where}{message}") from None
    except OSError as error:
        raise TraceError("io", f"{where}{error.strerror or error}") from None
