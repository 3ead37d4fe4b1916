"""Parquet: row group by row group, columns as in CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab.trace.data import KINDS, kind_codes
from pagelab.trace.errors import TraceError

if TYPE_CHECKING:
    import polars as pl

_ROWS = 1 << 18
_COLUMNS = ("address", "kind", "size", "thread", "asid", "page", "count")


def convert_parquet(
    source: Path | str,
    target: Path | str,
    *,
    page_bytes: int | str | None,
    kinds: Iterable[str],
    force: bool,
    level: int,
) -> dict[str, Any]:
    """As :func:`pagelab.trace.convert`; ``kind`` may be a name or a code."""
    import polars as pl

    from pagelab.trace.work import convert
    from pagelab.trace.writing import write

    if not Path(source).is_file():
        raise TraceError("io", f"{source}: no such file")
    try:
        names = list(pl.read_parquet_schema(source))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError("invalid", f"{source}: not a Parquet file: {error}") from None
    _check(source, names)
    if "page" in names:
        written = write(target, _batches(source), page_bytes=page_bytes or 4096, level=level, force=force)
        return {"records": written, "references": None, "bytes": Path(target).stat().st_size}
    wanted = list(kinds)
    if page_bytes is None and kind_codes(wanted) == kind_codes(KINDS):
        written = write(target, _batches(source), level=level, force=force)
        return {"records": written, "references": written, "bytes": Path(target).stat().st_size}
    whole = Path(target).with_name(f"{Path(target).name}.whole")
    try:
        write(whole, _batches(source), level=1, force=True)
        return convert(whole, target, page_bytes=page_bytes, kinds=wanted, force=force, level=level)
    finally:
        whole.unlink(missing_ok=True)


def _check(source: Path | str, names: list[str]) -> None:
    unknown = [name for name in names if name not in _COLUMNS]
    both = "address" in names and ("page" in names or "count" in names)
    if unknown or both or not {"address", "page"} & set(names):
        raise TraceError(
            "invalid",
            f"{source}: columns {', '.join(names)}: a trace has address, kind, size, thread, asid; "
            "or page, count, asid",
        )


def _batches(source: Path | str) -> Iterator[pl.DataFrame]:
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
