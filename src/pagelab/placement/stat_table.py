"""Live statistics as text and tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from .live import ProcessStat, StrategyStat
from .words import size


def engine(process: ProcessStat) -> list[str]:
    """Lines on the engine's state, its stock of pages, and how long faults waited."""
    found = process.engine
    if found is None:
        return ["engine: not started, since no governed page was touched yet"]
    if found.state == "failed":
        number = "" if found.errno is None else f" (errno {found.errno})"
        return [f"engine: failed: {found.failure}{number}; the kernel places the pages"]
    values = found.values
    state = {"off": "not started", "running": "running", "stopped": "stopped"}[found.state]
    waits = values.get("waits", 0)
    waited = f"{waits:,} faults waited {_time(values.get('wait_ns', 0))} for a refill" if waits else "no fault waited"
    lines = [
        f"engine: {state}; {waited}",
        f"pool: {size(values.get('pool_bytes', 0))} now, {size(values.get('pool_peak_bytes', 0))} at most, "
        f"budget {size(values.get('budget_bytes', 0))}; {values.get('refills', 0):,} refills of "
        f"{values.get('refill_pages', 0):,} pages took {_time(values.get('refill_ns', 0))}",
    ]
    if values.get("lost_descriptors"):
        lines.append(f"the program closed or replaced the engine's descriptor {values['lost_descriptors']:,} times")
    return lines


def strategies(process: ProcessStat) -> Table:
    """Table with one column per strategy, since strategies are few and a terminal is narrow."""
    result = Table(box=None, header_style="bold")
    result.add_column("")
    columns = []
    for strategy in process.strategies:
        result.add_column(f"{strategy.number} {strategy.kind}", justify="right")
        columns.append(_cells(strategy))
    for name in columns[0] if columns else ():
        result.add_row(name, *(cells[name] for cells in columns))
    return result


def _cells(strategy: StrategyStat) -> dict[str, str]:
    values = strategy.values
    requests, placed, faults = (values.get(name, 0) for name in ("requests", "placed", "faults"))
    share = f" ({placed / requests:.1%})" if requests else ""
    reach = [f"{reason} {size(count)}" for reason, count in strategy.out_of_reach_bytes.items()]
    return {
        "colours": f"{strategy.colours:,}",
        "pages requested": f"{requests:,}",
        "placed as asked": f"{placed:,}{share}",
        "on another colour or frame": f"{values.get('fallbacks', 0):,}",
        "filled by the kernel": f"{values.get('zero_pages', 0):,}",
        "faults answered": f"{faults:,}",
        "pages a fault": f"{values.get('demand_pages', 0) / faults:.1f}" if faults else "–",
        "placed on request": f"{values.get('eager_pages', 0):,}",
        "placed ahead": f"{values.get('ahead_pages', 0):,}",
        "existing pages moved": f"{values.get('remapped_pages', 0):,}",
        "out of reach": "\n".join(reach) or "–",
    }


def colours(strategy: StrategyStat) -> Table:
    """Table with one row per colour."""
    result = Table(box=None, header_style="bold")
    folded = strategy.colours > len(strategy.by_colour.requests)
    result.add_column(f"colour modulo {len(strategy.by_colour.requests)}" if folded else "colour", justify="right")
    for name in ("requested", "placed", "fallbacks"):
        result.add_column(name, justify="right")
    table = strategy.by_colour
    for colour, row in enumerate(zip(table.requests, table.placed, table.fallbacks, strict=True)):
        result.add_row(str(colour), *(f"{count:,}" for count in row))
    return result


def system(counts: Mapping[str, Mapping[str, int]]) -> Table:
    """Table with one column per strategy of the kernel and one row per count, without orders that gave no page."""
    words = list(dict.fromkeys(word for one in counts.values() for word in one))
    result = Table(box=None, header_style="bold")
    result.add_column("since boot")
    for name in counts:
        result.add_column(name, justify="right")
    for word in words:
        row = [one.get(word, 0) for one in counts.values()]
        if any(row) or not word.startswith("order_"):
            result.add_row(word.replace("_", " "), *(f"{count:,}" for count in row))
    return result


def _time(nanoseconds: int) -> str:
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds} ns"
