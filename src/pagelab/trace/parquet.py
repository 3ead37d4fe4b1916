"""Parquet: row group by row group, columns as in CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.trace.data import KINDS, TraceError

if TYPE_CHECKING:
    import polars as pl

_ROWS = 1 << 18
_COLUMNS = ("address", "kind", "size", "thread", "asid", "page", "count")


def columns(source: Path | str) -> list[str]:
    """The file's columns; raises :class:`~pagelab.trace.TraceError` where a trace has others."""
    import polars as pl

    if not Path(source).is_file():
        raise TraceError("io", f"{source}: no such file")
    try:
        names = list(pl.read_parquet_schema(source))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError("invalid", f"{source}: not a Parquet file: {error}") from None
    _check(source, names)
    return names


def _check(source: Path | str, names: list[str]) -> None:
    unknown = [name for name in names if name not in _COLUMNS]
    both = "address" in names and ("page" in names or "count" in names)
    if unknown or both or not {"address", "page"} & set(names):
        raise TraceError(
            "invalid",
            f"{source}: columns {', '.join(names)}: a trace has address, kind, size, thread, asid; "
            "or page, count, asid",
        )


def batches(source: Path | str) -> Iterator[pl.DataFrame]:
    """The file's rows, as :func:`pagelab.trace.write` takes them."""
    import polars as pl

    codes = {name: code for code, name in enumerate(KINDS)}
    frame = pl.scan_parquet(source)
    start = 0
    while len(part := frame.slice(start, _ROWS).collect()):
        start += len(part)
        if part.schema.get("kind") == pl.String:
            try:
                part = part.with_columns(pl.col("kind").replace_strict(codes, return_dtype=pl.UInt8))
            except pl.exceptions.InvalidOperationError:
                raise TraceError("invalid", f"{source}: a kind is none of {', '.join(KINDS)}") from None
        yield part
