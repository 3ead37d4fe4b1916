"""The summary of one run for the terminal, made from the record's JSON document."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pagelab.cli.lines import Cell, line, paragraph, table

_ROOM_SCARCE = "room-scarce"
_SHOWN_PROCESSES = 8
_COLOURS = {"info": "cyan", "warning": "yellow", "serious": "bold red"}
_MARKS = {"info": "i", "warning": "!", "serious": "!!"}


def show(record: Mapping[str, Any]) -> None:
    """Prints outcome, times, counters, requested and actual placement, processes, warnings on standard error."""
    sys.stderr.write("".join(parts(record)))


def parts(record: Mapping[str, Any]) -> Iterator[str]:
    """The summary, in pieces of whole lines."""
    yield _headline(record)
    yield _times(record)
    counters = _shown_counters(record)
    if counters:
        yield _counters(counters)
    memory = _memory(record)
    if memory:
        yield _placement(record, memory)
    if record["frames"] is not None and record["frames"]["strategies"]:
        yield _frames(record["frames"])
    if len(record["processes"]) > 1:
        yield _processes(record)
    if record["measurements"]:
        yield _measurements(record)
    for warning in record["warnings"]:
        if warning["kind"] == _ROOM_SCARCE and record["outcome"]["status"] == "ok":
            continue  # told before the start; it may explain a failure, and has not come to one
        severity = warning["severity"]
        # What is true of the machine in every run is no news.
        style = "dim" if _about_the_machine(warning) else _COLOURS[severity]
        yield paragraph(f"{_MARKS[severity]:>2} {warning['kind']}: {warning['message']}", style)


def _about_the_machine(warning: Mapping[str, Any]) -> bool:
    """The same as :func:`pagelab.record.about_the_machine`, whose module takes long to load."""
    return bool(warning["data"].get("scope") == "machine")


def _headline(record: Mapping[str, Any]) -> str:
    outcome = record["outcome"]
    status, message = outcome["status"], outcome.get("message")
    cells: list[Cell] = [("ok", "green")]
    if status != "ok":
        cells = [(status, "bold red"), f" ({message})" if message else ""]
    command = f"  {' '.join(record['command']['argv'])[:100]}  "
    return line(*cells, (command, "bold"), (f"policy {record['policy']['name']}", "dim"))


def _times(record: Mapping[str, Any]) -> str:
    time, faults = record["time"], record["faults"]
    cells = [
        ("wall", nanoseconds(time["wall_ns"])),
        ("user", nanoseconds(time["user_ns"])),
        ("system", nanoseconds(time["system_ns"])),
        ("peak", size(record["peak_rss_bytes"])),
        ("minor faults", f"{faults['minor']:,}"),
        ("major faults", f"{faults['major']:,}"),
    ]
    if time.get("waiting_ns") is not None:
        cells.append(("waiting", nanoseconds(time["waiting_ns"])))
    if time.get("spawn_to_main_ns") is not None:
        cells.append(("start-up", nanoseconds(time["spawn_to_main_ns"])))
    return table([[name for name, _ in cells], [value for _, value in cells]], ">" * len(cells))


def _shown_counters(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The counters that this machine has; a line below the tables names the others."""
    of_machine = [warning["data"] for warning in record["warnings"] if _about_the_machine(warning)]
    absent = {name for data in of_machine if data.get("reason") == "no-pmu" for name in data["counters"]}
    return [counter for counter in record["counters"] if counter["name"] not in absent]


def _counters(counters: list[Mapping[str, Any]]) -> str:
    rows: list[list[Cell]] = [["counter", "count", "status", "code"]]
    for counter in counters:
        count = "–" if counter["count"] is None else f"{counter['count']:,}"
        rows.append([counter["name"], count, _status(counter), (counter["code"], "dim")])
    return table(rows, "<><<")


def _status(counter: Mapping[str, Any]) -> Cell:
    status = counter["status"]
    if status == "ok":
        return ("ok", "green") if counter["verified"] else "ok, code not verified"
    if status == "multiplexed" and counter.get("running_ns") and counter.get("enabled_ns"):
        return f"multiplexed, ran {counter['running_ns'] / counter['enabled_ns']:.0%}", "yellow"
    return status, "yellow"


class _Memory:
    """All regions of one kind with the same request, over all processes."""

    def __init__(self) -> None:
        self.resident_bytes = 0
        self.given_back_bytes = 0
        self.tiles = 0
        self.as_asked = 0
        self.by_size: Counter[int] = Counter()

    def add(self, region: Mapping[str, Any]) -> None:
        self.resident_bytes += region["resident_bytes"]
        self.given_back_bytes += region.get("given_back_bytes") or 0
        self.tiles += region.get("whole_touched_tiles") or 0
        self.as_asked += region.get("tiles_as_asked") or 0
        for part in region["by_size"]:
            self.by_size[part["page_bytes"]] += part["bytes"]


def _memory(record: Mapping[str, Any]) -> dict[tuple[str, str], _Memory]:
    """Sorted by kind and requested size; memory with a request first, then the largest."""
    summed: dict[tuple[str, str], _Memory] = {}
    for process in record["processes"]:
        for region in process["placement"]:
            via = region.get("via")
            asked = region["asked"] if via in (None, "thp") else f"{region['asked']} {via}"
            summed.setdefault((region["region"], asked), _Memory()).add(region)
    worth = {key: memory for key, memory in summed.items() if memory.resident_bytes or memory.given_back_bytes}
    return dict(
        sorted(
            worth.items(), key=lambda item: (item[0][1] == "kernel", -item[1].resident_bytes - item[1].given_back_bytes)
        )
    )


def _placement(record: Mapping[str, Any], memory: dict[tuple[str, str], _Memory]) -> str:
    title, placement = None, record["placement"]
    if placement.get("placed_fraction") is not None:
        asked, got = placement["whole_touched_tiles"], placement["tiles_as_asked"]
        title = f"{got:,} of {asked:,} tiles as asked ({placement['placed_fraction']:.1%})"
    rows: list[list[Cell]] = [["memory", "asked", "at the end", "given back", "as asked", "got"]]
    for (kind, wanted), found in memory.items():
        tiles = f"{found.as_asked:,}/{found.tiles:,}" if found.tiles else ""
        sizes = ", ".join(f"{size(held)} in {size(page)}" for page, held in sorted(found.by_size.items()))
        before = size(found.given_back_bytes) if found.given_back_bytes else ""
        rows.append([kind, wanted, size(found.resident_bytes), before, tiles, sizes])
    return table(rows, "<>>>><", title)


def _frames(frames: Mapping[str, Any]) -> str:
    """One line a strategy. Shares of the requested pages; at the end, of those still resident."""
    rows: list[list[Cell]] = [["frames", "colours", "pages", "placed", "fallbacks", "out of reach", "kept at exit"]]
    for strategy in frames["strategies"]:
        asked, resident = strategy["requested_pages"], strategy["kept_pages"] + strategy["moved_pages"]
        missed = strategy["fallback_pages"] + strategy["zero_pages"]
        beyond = sum(strategy.get("out_of_reach_bytes", {}).values())
        rows.append(
            [
                strategy["kind"],
                f"{strategy['colours']:,}",
                f"{asked:,}",
                share(strategy["placed_pages"], asked),
                f"{missed:,}",
                size(beyond) if beyond else "–",
                share(strategy["kept_pages"], resident),
            ]
        )
    return table(rows, "<>>>>>>")


def _processes(record: Mapping[str, Any]) -> str:
    processes = record["processes"]
    all_names = [counter["name"] for counter in record["counters"]]
    names = [name for name in all_names if any(name in one["counters"] for one in processes)]
    rows: list[list[Cell]] = [["process", "pid", "wall", "cpu", "peak", "minor faults", *names]]
    ranked = sorted(processes, key=_weight, reverse=True)
    for process in ranked[:_SHOWN_PROCESSES]:
        own = "" if process["governed"] or not record["settings"]["preloaded"] else " (ungoverned)"
        counts = [f"{process['counters'][name]:,}" if name in process["counters"] else "–" for name in names]
        peak, faults = process.get("peak_rss_bytes"), process.get("minor_faults")
        rows.append(
            [
                f"{process['executable'].rsplit('/', 1)[-1] or '?'}{own}",
                str(process["pid"]),
                nanoseconds(process.get("wall_ns")),
                nanoseconds(_cpu_ns(process)),
                "–" if peak is None else size(peak),
                "–" if faults is None else f"{faults:,}",
                *counts,
            ]
        )
    if len(ranked) > _SHOWN_PROCESSES:
        more = f"… {len(ranked) - _SHOWN_PROCESSES} more in the record"
        rows.append([more, *[""] * (len(rows[0]) - 1)])
    return table(rows, "<" + ">" * (len(rows[0]) - 1))


def _cpu_ns(process: Mapping[str, Any]) -> int | None:
    user_ns, system_ns = process.get("user_ns"), process.get("system_ns")
    return None if user_ns is None or system_ns is None else int(user_ns + system_ns)


def _weight(process: Mapping[str, Any]) -> int:
    return _cpu_ns(process) or sum(process["counters"].values()) or process.get("wall_ns") or 0


def _measurements(record: Mapping[str, Any]) -> str:
    """One row a name: how many, and the median, which needs no assumption about their distribution."""
    from statistics import median

    by_name: dict[tuple[str, str], list[float]] = {}
    for measurement in record["measurements"]:
        by_name.setdefault((measurement["name"], measurement["unit"]), []).append(measurement["value"])
    rows: list[list[Cell]] = [["measured", "times", "median"]]
    for (name, unit), values in by_name.items():
        rows.append([name, f"{len(values):,}", _with_unit(median(values), unit)])
    return table(rows, "<>>")


def _with_unit(value: float, unit: str) -> str:
    """Seconds as times are shown; whole numbers with their thousands."""
    if unit == "s":
        return nanoseconds(round(value * 1e9))
    shown = f"{value:,.0f}" if value == int(value) else f"{value:.6g}"
    return f"{shown} {unit}".rstrip()


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
