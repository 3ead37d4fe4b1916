"""Reads trace files into arrays and writes them from arrays."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelab._native import TraceBatches
from pagelab.errors import quoted, system_reason
from pagelab.trace.data import DEMAND, KINDS, References, Runs, TraceError, kind_codes, native, page_bits
from pagelab.trace.pools import Pool, in_header

if TYPE_CHECKING:
    import polars as pl

    from pagelab._native import TraceFile

    Batch = References | Runs | Mapping[str, ArrayLike] | pl.DataFrame | NDArray[Any]


def provenance(parameters: dict[str, Any]) -> dict[str, Any]:
    """The origin of a new trace: command line, machine, software, time, and the operation's parameters."""
    from pagelab.machine.provenance import provenance as of_machine

    return {"argv": list(sys.argv), "parameters": parameters, "machine": of_machine()}


def ask(request: dict[str, Any], path: Path | str | None = None) -> dict[str, Any]:
    """Carries out an operation in the native part; returns its answer. Raises :class:`~pagelab.trace.TraceError`."""
    from pagelab._native import trace_work

    try:
        with native(path):
            answer: dict[str, Any] = json.loads(trace_work(json.dumps(request)))
    except TraceError as error:
        if error.kind == "io" and "cannot write" in str(error) and "output" in request:
            raise _unwritten(error, Path(request["output"]["path"])) from None
        raise
    return answer


def _unwritten(error: TraceError, target: Path) -> TraceError:
    reason = system_reason(OSError(str(error)))
    return TraceError(error.kind, f"{reason} (into {target}); run: df -h {quoted(target.absolute().parent)}")


def info(path: Path | str, *, thorough: bool = False) -> dict[str, Any]:
    """Describes a trace; ``thorough`` reads all of it, checks every chunk, and counts kinds, threads and pages."""
    return ask({"work": "info", "input": str(path), "thorough": thorough}, path)


def killed(path: Path | str) -> str:
    """What is missing where a program was killed while its trace was captured: ``its program was killed``; else
    empty."""
    images = (info(path)["ending"] or {}).get("images") or ()
    number = sum(image["ended"] == "killed" for image in images)
    if not number:
        return ""
    return "its program was killed" if len(images) == 1 else f"{number} of its {len(images)} processes were killed"


class Trace:
    """A trace file, read in batches; only the present batch is in memory."""

    def __init__(self, path: Path | str) -> None:
        """Raises :class:`~pagelab.trace.TraceError` where the file is no trace."""
        self.path = Path(path)
        self._info = info(self.path)
        self.header: dict[str, Any] = self._info["header"]
        """The trace's description: content, sampling, reduction, provenance."""

    @property
    def page_bytes(self) -> int | None:
        """The page size of the trace's runs; ``None`` where the trace has full references."""
        bits = self.header.get("page_bits")
        return None if bits is None else 1 << int(bits)

    @property
    def exact(self) -> bool:
        """Whether every reference was captured; the trace may have been reduced since (``header["reduction"]``)."""
        return self.header.get("sampling") is None

    def __len__(self) -> int:
        """Number of records in whole chunks: references, or runs."""
        return int(self._info["records"])

    def references(self, kinds: Iterable[str] = KINDS, *, shard: tuple[int, int] | None = None) -> Iterator[References]:
        """Batches of full references of ``kinds``; ``shard=(i, n)`` gives the i-th of n parts.

        For a torn or damaged trace it yields everything before the damage, then raises
        :class:`~pagelab.trace.TraceError`.
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
        kinds: Iterable[str] | None = None,
        *,
        shard: tuple[int, int] | None = None,
    ) -> Iterator[Runs]:
        """Batches of page runs, of the trace's page size or a larger one; otherwise like :meth:`references`.

        The default page size is the trace's own, or 4 KiB for a trace of full references. ``kinds``: of full
        references, by default those that can fault; page runs do not tell them apart, and a choice that would leave
        some of theirs out is refused.
        """
        bits = page_bits(page_bytes or self.page_bytes or 4096)
        chosen = DEMAND if kinds is None else tuple(kinds)
        codes = kind_codes(chosen)
        if kinds is not None and self.page_bytes is not None:
            self._refuse_choice(chosen)
        with native(self.path):
            batches = TraceBatches(self.path, bits, codes, shard)
            while (columns := batches.runs()) is not None:
                page, asid, count = columns
                yield Runs(
                    np.frombuffer(page, np.uint64), np.frombuffer(asid, np.uint16), np.frombuffer(count, np.uint64)
                )

    def _refuse_choice(self, chosen: Sequence[str]) -> None:
        known = (self._info["ending"] or {}).get("run_kinds", self.header.get("kinds"))
        left = [kind for kind in known or () if kind not in chosen]
        if left:
            raise TraceError(
                "invalid",
                f"{self.path}: its page runs do not tell {' and '.join(left)} from other references, and none can be "
                "left out; make runs of full references: pagelab trace convert --page SIZE --kinds LIST FULL NEW",
            )

    def frame(self, rows: int = 1_000_000) -> pl.DataFrame:
        """The first ``rows`` records at most, as a polars frame with a column per field (``kind`` by name)."""
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
        frame = pl.concat(parts) if parts else pl.DataFrame((_NO_RUNS if self.page_bytes else _NONE).columns())
        if "kind" in frame.columns:
            frame = frame.with_columns(pl.col("kind").replace_strict(dict(enumerate(KINDS)), return_dtype=pl.String))
        return frame


def _no(of: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    return np.empty(0, of)


_NONE = References(_no(np.uint64), _no(np.uint8), _no(np.uint16), _no(np.uint32), _no(np.uint16))
_NO_RUNS = Runs(_no(np.uint64), _no(np.uint16), _no(np.uint64))
_REFERENCES = ("address", "kind", "size", "thread", "asid")
_RUNS = ("page", "asid", "count")


def write(
    path: Path | str,
    batches: Iterable[Batch],
    *,
    page_bytes: int | str | None = None,
    level: int = 3,
    force: bool = False,
    sampled: str | None = None,
    pools: Sequence[Pool] = (),
) -> int:
    """Writes batches as a trace; returns the number of its records.

    Without ``page_bytes``, batches are references: arrays of addresses (then all are loads), or anything with columns
    ``address`` and, where they are known, ``kind`` (codes of :data:`~pagelab.trace.KINDS`), ``size``, ``thread``,
    ``asid``. With ``page_bytes`` they are page runs: arrays of page numbers, or columns ``page``, ``count`` (default
    1), ``asid``. ``sampled``: the reason, in words, why references are missing; ``pools``: the places of heap,
    mappings and arenas.
    """
    from pagelab._native import TraceFile

    target = Path(path)
    if target.exists() and not force:
        raise TraceError("invalid", f"{target} exists; replace it: force=True")
    parameters: dict[str, Any] = {"by": "pagelab.trace.write"} | in_header(pools)
    header: dict[str, Any] = {"content": "references", "provenance": provenance(parameters)}
    if page_bytes is not None:
        header |= {"content": "runs", "page_bits": page_bits(page_bytes)}
    if sampled is not None:
        header["sampling"] = {"what": sampled}
    # In a directory that others can write to, a predictable name could be another user's link.
    part = target.with_name(f".{target.name}-{os.urandom(8).hex()}")
    with native(target):
        file = TraceFile(part, json.dumps(header), level)
        try:
            records = sum(_append(file, batch, runs=page_bytes is not None) for batch in batches)
            file.finish("null")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return records


def _append(file: TraceFile, batch: Batch, *, runs: bool) -> int:
    names = _RUNS if runs else _REFERENCES
    columns = _columns(batch, names)
    length = len(columns[names[0]])

    def column(name: str, dtype: type[np.unsignedinteger[Any]], default: int = 0) -> NDArray[Any]:
        return _unsigned(columns[name], dtype, name) if name in columns else np.full(length, default, dtype)

    if runs:
        file.runs(column("page", np.uint64), column("asid", np.uint16), column("count", np.uint64, 1))
    else:
        file.references(
            column("address", np.uint64),
            column("kind", np.uint8),
            column("size", np.uint32),
            column("thread", np.uint32),
            column("asid", np.uint16),
        )
    return length


def _columns(batch: Batch, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if isinstance(batch, np.ndarray):
        return {names[0]: batch}
    if isinstance(batch, References | Runs):
        found: dict[str, Any] = dict(batch.columns())
    elif isinstance(batch, Mapping):
        found = dict(batch)
    elif hasattr(batch, "columns"):
        found = {name: batch[name].to_numpy() for name in batch.columns}
    else:
        kind = type(batch).__name__
        raise TraceError("invalid", f"a batch is an array, a mapping of arrays or a polars frame, not a {kind}")
    unknown = [name for name in found if name not in names]
    if unknown or names[0] not in found:
        others = ", ".join(names[1:])
        raise TraceError("invalid", f"columns {', '.join(found)}: {names[0]} is needed, others are {others}")
    return {name: np.asarray(values) for name, values in found.items()}


def _unsigned(values: NDArray[Any], dtype: type[np.unsignedinteger[Any]], name: str) -> NDArray[Any]:
    """The numbers as ``dtype``. A number that the type cannot hold is refused, not truncated."""
    if values.dtype == dtype:
        return np.ascontiguousarray(values)
    most = np.iinfo(dtype).max
    if values.dtype.kind not in "ui" or (len(values) and (values.min() < 0 or values.max() > most)):
        raise TraceError("invalid", f"column {name}: integers from 0 to {most}")
    return np.ascontiguousarray(values, dtype=dtype)
