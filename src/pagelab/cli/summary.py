"""The summary of one run, for the terminal."""

from __future__ import annotations

from collections import Counter as Counter_
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from pagelab.record import WarningKind, about_the_machine

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.record import Counter, Frames, Process, Record, Region

_SHOWN_PROCESSES = 8
_COLOURS = {"info": "cyan", "warning": "yellow", "serious": "bold red"}
_MARKS = {"info": "i", "warning": "!", "serious": "!!"}


def show(record: Record, console: Console) -> None:
    """Outcome, times, counters, requested and actual placement, processes, warnings."""
    console.print(_headline(record))
    console.print(_times(record))
    counters = _shown_counters(record)
    if counters:
        console.print(_counters(counters))
    memory = _memory(record)
    if memory:
        console.print(_placement(record, memory))
    if record.frames is not None and record.frames.strategies:
        console.print(_frames(record.frames))
    if len(record.processes) > 1:
        console.print(_processes(record))
    for line in _measurements(record):
        console.print(line)
    for warning in record.warnings:
        if warning.kind is WarningKind.ROOM_SCARCE and record.outcome.status == "ok":
            continue  # told before the start; it may explain a failure, and has not come to one
        mark = f"{_MARKS[warning.severity]:>2} "
        # What is true of the machine in every run is no news.
        style = "dim" if about_the_machine(warning.data) else _COLOURS[warning.severity]
        console.print(Text(f"{mark}{warning.kind.value}: {warning.message}", style=style))


def _headline(record: Record) -> Text:
    outcome = record.outcome
    text = Text()
    if outcome.status == "ok":
        text.append("ok", style="green")
    else:
        text.append(outcome.status, style="bold red")
        text.append(f" ({outcome.message})" if outcome.message else "")
    text.append(f"  {' '.join(record.command.argv)[:100]}  ", style="bold")
    text.append(f"policy {record.policy.name}", style="dim")
    return text


def _times(record: Record) -> Table:
    table = Table.grid(padding=(0, 2))
    time, faults = record.time, record.faults
    cells = [
        ("wall", nanoseconds(time.wall_ns)),
        ("user", nanoseconds(time.user_ns)),
        ("system", nanoseconds(time.system_ns)),
        ("peak", size(record.peak_rss_bytes)),
        ("minor faults", f"{faults.minor:,}"),
        ("major faults", f"{faults.major:,}"),
    ]
    if time.waiting_ns is not None:
        cells.append(("waiting", nanoseconds(time.waiting_ns)))
    if time.spawn_to_main_ns is not None:
        cells.append(("to main", nanoseconds(time.spawn_to_main_ns)))
    for _ in cells:
        table.add_column(justify="right")
    table.add_row(*(Text(name, style="dim") for name, _ in cells))
    table.add_row(*(value for _, value in cells))
    return table


def _shown_counters(record: Record) -> list[Counter]:
    """All but those that this machine does not have at all: one line below the tables names these."""
    of_machine = [warning.data for warning in record.warnings if about_the_machine(warning.data)]
    absent = {name for data in of_machine if data.get("reason") == "no-pmu" for name in data["counters"]}
    return [counter for counter in record.counters if counter.name not in absent]


def _counters(counters: list[Counter]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("counter")
    table.add_column("count", justify="right")
    table.add_column("status")
    table.add_column("code", style="dim")
    for counter in counters:
        count = "–" if counter.count is None else f"{counter.count:,}"
        table.add_row(counter.name, count, _status(counter), counter.code)
    return table


def _status(counter: Counter) -> Text:
    if counter.status == "ok":
        return Text("ok", style="green") if counter.verified else Text("ok, code not verified")
    if counter.status == "multiplexed" and counter.running_ns and counter.enabled_ns:
        share = counter.running_ns / counter.enabled_ns
        return Text(f"multiplexed, ran {share:.0%}", style="yellow")
    return Text(counter.status, style="yellow")


@dataclass
class _Memory:
    """All regions of one kind with the same request, over all processes."""

    resident_bytes: int = 0
    given_back_bytes: int = 0
    tiles: int = 0
    as_asked: int = 0
    by_size: Counter_[int] = field(default_factory=Counter_)

    def add(self, region: Region) -> None:
        self.resident_bytes += region.resident_bytes
        self.given_back_bytes += region.given_back_bytes
        self.tiles += region.whole_touched_tiles or 0
        self.as_asked += region.tiles_as_asked or 0
        for part in region.by_size:
            self.by_size[part.page_bytes] += part.bytes


def _memory(record: Record) -> dict[tuple[str, str], _Memory]:
    """Sorted by kind and requested size; memory with a request first, then the largest."""
    summed: dict[tuple[str, str], _Memory] = {}
    for process in record.processes:
        for region in process.placement:
            asked = region.asked if region.via in (None, "thp") else f"{region.asked} {region.via}"
            summed.setdefault((region.region, asked), _Memory()).add(region)
    worth = {key: memory for key, memory in summed.items() if memory.resident_bytes or memory.given_back_bytes}
    return dict(
        sorted(
            worth.items(), key=lambda item: (item[0][1] == "kernel", -item[1].resident_bytes - item[1].given_back_bytes)
        )
    )


def _placement(record: Record, memory: dict[tuple[str, str], _Memory]) -> Table:
    title = None
    if record.placement.placed_fraction is not None:
        asked, got = record.placement.whole_touched_tiles, record.placement.tiles_as_asked
        title = f"{got:,} of {asked:,} tiles as asked ({record.placement.placed_fraction:.1%})"
    table = Table(box=None, pad_edge=False, header_style="dim", title=title, title_justify="left", title_style="")
    for name in ("memory", "asked", "at the end", "given back", "as asked"):
        table.add_column(name, justify="right" if name != "memory" else "left")
    table.add_column("got")
    for (kind, wanted), found in memory.items():
        tiles = f"{found.as_asked:,}/{found.tiles:,}" if found.tiles else ""
        parts = ", ".join(f"{size(held)} in {size(page)}" for page, held in sorted(found.by_size.items()))
        before = size(found.given_back_bytes) if found.given_back_bytes else ""
        table.add_row(kind, wanted, size(found.resident_bytes), before, tiles, parts)
    return table


def _frames(frames: Frames) -> Table:
    """One line a strategy. Shares of the requested pages; at the end, of those still resident."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("frames", no_wrap=True)
    for name in ("colours", "pages", "placed", "fallbacks", "out of reach", "kept at exit"):
        table.add_column(name, justify="right", no_wrap=True)
    for strategy in frames.strategies:
        asked, resident = strategy.requested_pages, strategy.kept_pages + strategy.moved_pages
        missed = strategy.fallback_pages + strategy.zero_pages
        beyond = sum(strategy.out_of_reach_bytes.values())
        table.add_row(
            strategy.kind,
            f"{strategy.colours:,}",
            f"{asked:,}",
            share(strategy.placed_pages, asked),
            f"{missed:,}",
            size(beyond) if beyond else "–",
            share(strategy.kept_pages, resident),
        )
    return table


def _processes(record: Record) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("process")
    for name in ("pid", "wall", "cpu", "peak", "minor faults"):
        table.add_column(name, justify="right")
    names = [counter.name for counter in record.counters if any(counter.name in p.counters for p in record.processes)]
    for name in names:
        table.add_column(name, justify="right")
    ranked = sorted(record.processes, key=_weight, reverse=True)
    for process in ranked[:_SHOWN_PROCESSES]:
        own = "" if process.governed or not record.settings.preloaded else " (ungoverned)"
        counts = [f"{process.counters[name]:,}" if name in process.counters else "–" for name in names]
        table.add_row(
            f"{process.executable.rsplit('/', 1)[-1] or '?'}{own}",
            str(process.pid),
            nanoseconds(process.wall_ns),
            nanoseconds(_cpu_ns(process)),
            "–" if process.peak_rss_bytes is None else size(process.peak_rss_bytes),
            "–" if process.minor_faults is None else f"{process.minor_faults:,}",
            *counts,
        )
    if len(ranked) > _SHOWN_PROCESSES:
        table.add_row(f"… {len(ranked) - _SHOWN_PROCESSES} more in the record")
    return table


def _cpu_ns(process: Process) -> int | None:
    if process.user_ns is None or process.system_ns is None:
        return None
    return process.user_ns + process.system_ns


def _weight(process: Process) -> int:
    return _cpu_ns(process) or sum(process.counters.values()) or process.wall_ns or 0


def _measurements(record: Record) -> Iterator[str]:
    """One line a name: how many, and the median, which needs no assumption about their distribution."""
    from statistics import median

    by_name: dict[tuple[str, str], list[float]] = {}
    for measurement in record.measurements:
        by_name.setdefault((measurement.name, measurement.unit), []).append(measurement.value)
    for (name, unit), values in by_name.items():
        yield f"{name}: {len(values):,} measurements, median {median(values):.6g} {unit}".rstrip()


def share(part: int, whole: int) -> str:
    """``99.97%``; never rounded up to 100%, because a reader looks for single missing pages."""
    if whole == 0:
        return "–"
    percent = 100 * part / whole
    return "100%" if part == whole else f"{min(percent, 99.99):.2f}%"


def nanoseconds(value: int | None) -> str:
    """``1.234 s``, ``12.3 ms``, ``45 µs``."""
    if value is None:
        return "–"
    if value >= 1_000_000_000:
        return f"{value / 1e9:.3f} s"
    return f"{value / 1e6:.1f} ms" if value >= 1_000_000 else f"{value / 1e3:.0f} µs"


def size(value: int) -> str:
    """``1.5 GiB``; page sizes come out whole: ``4 KiB``, ``2 MiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            number = value / factor
            return f"{number:.0f} {unit}" if number.is_integer() else f"{number:.1f} {unit}"
    return f"{value} B"
