"""Reads Parquet files row group by row group; the columns are those of CSV."""

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
    """The file's columns. Raises :class:`~pagelab.trace.TraceError` where they are not those of a trace."""
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
    """Batches of the file's rows, for :func:`pagelab.trace.write`."""
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
