"""A trace file, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pagelab._native import TraceBatches
from pagelab.trace.data import DEMAND, KINDS, References, Runs, kind_codes, page_bits
from pagelab.trace.errors import native
from pagelab.trace.operations import info

if TYPE_CHECKING:
    import polars as pl


class Trace:
    """A trace file; nothing of it is kept in memory but the batch in hand."""

    def __init__(self, path: Path | str) -> None:
        """Raises :class:`~pagelab.trace.TraceError` where the file is no trace."""
        self.path = Path(path)
        self._info = info(self.path)
        self.header: dict[str, Any] = self._info["header"]
        """What the trace says of itself: content, sampling, reduction, provenance."""

    @property
    def page_bytes(self) -> int | None:
        """The page size of its runs; ``None`` where it has full references."""
        bits = self.header.get("page_bits")
        return None if bits is None else 1 << int(bits)

    @property
    def exact(self) -> bool:
        """Whether it has every reference (it may be reduced, though: ``header["reduction"]``)."""
        return self.header.get("sampling") is None

    def __len__(self) -> int:
        """Records in whole chunks: references, or runs."""
        return int(self._info["records"])

    def references(self, kinds: Iterable[str] = KINDS, *, shard: tuple[int, int] | None = None) -> Iterator[References]:
        """Batches of full references of ``kinds``; ``shard=(i, n)`` gives the i-th of n parts.

        A torn or damaged trace gives all that is whole before, then raises :class:`~pagelab.trace.TraceError`.
        """
        with native(self.path):
            batches = TraceBatches(self.path, None, kind_codes(kinds), shard)
            while (columns := batches.references()) is not None:
                address, kind, size, thread, asid = columns
                yield References(
                    np.frombuffer(address, np.uint64),
                    np.frombuffer(kind, np.uint8),
                    np.frombuffer(size, np.uint16),
                    np.frombuffer(thread, np.uint32),
                    np.frombuffer(asid, np.uint16),
                )

    def runs(
        self,
        page_bytes: int | str | None = None,
        kinds: Iterable[str] = DEMAND,
        *,
        shard: tuple[int, int] | None = None,
    ) -> Iterator[Runs]:
        """Batches of page runs, of the trace's page size (references: 4 KiB) or a larger one; else as references()."""
        bits = page_bits(page_bytes or self.page_bytes or 4096)
        with native(self.path):
            batches = TraceBatches(self.path, bits, kind_codes(kinds), shard)
            while (columns := batches.runs()) is not None:
                page, asid, count = columns
                yield Runs(
                    np.frombuffer(page, np.uint64), np.frombuffer(asid, np.uint16), np.frombuffer(count, np.uint64)
                )

    def frame(self, rows: int = 1_000_000) -> pl.DataFrame:
        """At most the first ``rows`` records as a polars frame, one column a field (``kind`` by name)."""
        import polars as pl

        parts: list[pl.DataFrame] = []
        left = rows
        batches = self.runs() if self.page_bytes else self.references()
        for batch in batches:
            part = pl.DataFrame(batch.columns()).head(left)
            left -= len(part)
            parts.append(part)
            if left <= 0:
                break
        names = [field.name for field in fields(Runs if self.page_bytes else References)]
        frame = pl.concat(parts) if parts else pl.DataFrame({name: [] for name in names})
        if "kind" in frame.columns:
            frame = frame.with_columns(pl.col("kind").replace_strict(dict(enumerate(KINDS)), return_dtype=pl.String))
        return frame
