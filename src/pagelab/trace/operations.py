"""Converts, combines and reduces trace files; the native part carries out the operations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pagelab.trace.data import KINDS, TraceError, bytes_of, kind_codes, page_bits
from pagelab.trace.files import ask, info, provenance, write

FORMATS = ("lackey", "dinero", "champsim", "csv", "raw", "raw-pages", "perf-script", "parquet")
"""Foreign formats that :func:`convert` reads: ``Format::ALL`` of ``crates/trace/src/foreign/mod.rs`` in its
order, and Parquet."""


def records(kinds: Iterable[str] | None, page: str | int | None) -> dict[str, Any]:
    """The description of a new trace's records for the native part. ``kinds``: None for all, and for those that can
    fault in page runs that are made of full references."""
    chosen = None if kinds is None else list(kinds)
    if chosen is not None:
        kind_codes(chosen)
    return {"kinds": chosen, "page_bits": None if page is None else page_bits(page)}


def output(path: Path | str, force: bool, level: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """The description of a new trace's file for the native part."""
    if not 1 <= level <= 19:
        raise TraceError("invalid", f"compression level {level}: 1 to 19")
    return {"path": str(path), "force": force, "level": level, "provenance": provenance(parameters)}


def convert(
    source: Path | str,
    target: Path | str,
    *,
    format: str | None = None,  # noqa: A002 (the word that users know)
    page_bytes: int | str | None = None,
    foreign_page_bytes: int | str = 4096,
    kinds: Iterable[str] | None = None,
    recover: bool = False,
    force: bool = False,
    level: int = 3,
) -> dict[str, Any]:
    """Writes a trace of a foreign ``format``, or a pagelab trace, as a new trace; returns its description.

    ``page_bytes`` makes page runs, of loads, stores and fetches unless other ``kinds`` are named: prefetches are no
    use of a page. ``recover`` keeps all whole chunks of a damaged pagelab trace.
    """
    if format is not None and format not in FORMATS:
        raise TraceError("invalid", f"format {format!r}: none of {', '.join(FORMATS)}")
    if format == "parquet":
        return _convert_parquet(
            source,
            target,
            page_bytes=page_bytes,
            foreign_page_bytes=foreign_page_bytes,
            kinds=kinds,
            force=force,
            level=level,
        )
    request = {
        "work": "convert",
        "input": str(source),
        "format": format,
        "foreign_page_bits": page_bits(foreign_page_bytes),
        "recover": recover,
        "records": records(kinds, page_bytes),
        "output": output(target, force, level, {"convert": str(source), "format": format, "recover": recover}),
    }
    return ask(request, source)


def _convert_parquet(
    source: Path | str,
    target: Path | str,
    *,
    page_bytes: int | str | None,
    foreign_page_bytes: int | str,
    kinds: Iterable[str] | None,
    force: bool,
    level: int,
) -> dict[str, Any]:
    """Like :func:`convert`, for Parquet; ``kind`` may be a name or a code."""
    from pagelab.trace.parquet import batches, columns

    wanted = None if kinds is None else list(kinds)
    # Page numbers are of the foreign size, whatever size the new trace has.
    its = foreign_page_bytes if "page" in columns(source) else None
    every_kind = wanted is None or kind_codes(wanted) == kind_codes(KINDS)
    if page_bytes is None and (its is not None or every_kind):
        written = write(target, batches(source), page_bytes=its, level=level, force=force)
        found = info(target)
        return {"records": written, "references": found["references"], "bytes": found["bytes"]}
    whole = Path(target).with_name(f".{Path(target).name}-{os.urandom(8).hex()}.whole")
    try:
        write(whole, batches(source), page_bytes=its, level=1)
        parameters = {"convert": str(source), "format": "parquet", "recover": False}
        request = {
            "work": "convert",
            "input": str(whole),
            "records": records(wanted, page_bytes),
            "output": output(target, force, level, parameters),
        }
        return ask(request, source)
    finally:
        whole.unlink(missing_ok=True)


def concat(sources: Sequence[Path | str], target: Path | str, **options: Any) -> dict[str, Any]:
    """Writes one trace after the other as a new trace; the options are those of :func:`interleave`."""
    return _mix(sources, target, 0, **options)


def interleave(sources: Sequence[Path | str], target: Path | str, *, quantum: int, **options: Any) -> dict[str, Any]:
    """Writes a new trace that takes ``quantum`` references of each source in turn.

    Each source has its own address spaces (``same_space``: all share them). A source that has ended is skipped.
    Options: ``same_space``, ``page_bytes``, ``kinds``, ``force``, ``level``.
    """
    if quantum < 1:
        raise TraceError("invalid", f"quantum {quantum}: at least 1 reference")
    return _mix(sources, target, quantum, **options)


def _mix(
    sources: Sequence[Path | str],
    target: Path | str,
    quantum: int,
    *,
    same_space: bool = False,
    page_bytes: int | str | None = None,
    kinds: Iterable[str] | None = None,
    force: bool = False,
    level: int = 3,
) -> dict[str, Any]:
    names = [str(source) for source in sources]
    request = {
        "work": "mix",
        "inputs": names,
        "quantum": quantum,
        "same_space": same_space,
        "records": records(kinds, page_bytes),
        "output": output(target, force, level, {"mix": names, "quantum": quantum, "same_space": same_space}),
    }
    return ask(request)


def reduce(
    source: Path | str,
    target: Path | str,
    *,
    memory: int | str,
    colours: Sequence[int] = (1,),
    page_bytes: int | str | None = None,
    kinds: Iterable[str] | None = None,
    force: bool = False,
    level: int = 3,
) -> dict[str, Any]:
    """Drops references that do not affect LRU memories of ``memory`` bytes or more, for each number of ``colours``.

    The result has page runs, of loads, stores and fetches unless other ``kinds`` are named. The faults of LRU and OPT
    in such memories are exact, and the counts add up to all references.
    """
    bits = page_bits(page_bytes) if page_bytes is not None else info(source)["header"].get("page_bits", 12)
    size = bytes_of(memory)
    if size % (1 << bits):
        raise TraceError("invalid", f"memory of {memory}: not a whole number of pages of {1 << bits} bytes")
    pages = size >> bits
    parameters = {"reduce": str(source), "memory_pages": pages, "colours": list(colours)}
    request = {
        "work": "reduce",
        "input": str(source),
        "memory_pages": pages,
        "colours": list(colours),
        "records": {**records(kinds, None), "page_bits": bits},
        "output": output(target, force, level, parameters),
    }
    return ask(request, source)
