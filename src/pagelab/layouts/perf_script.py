"""Reads sampled TLB misses from the text of ``perf script`` after ``perf record -d`` (PEBS, IBS, SPE)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pagelab.errors import BadInputError

# Before the event: the command, pid or pid/tid, the processor, the time, a period; not all of them everywhere. After
# it: the address of the data, and for memory events what perf made of the processor's data source:
# |OP LOAD|...|TLB L2 miss|...
_EVENT = r"(?P<event>[A-Za-z][^\s]*):\s+(?P<address>[0-9a-f]+)\b(?P<rest>.*)$"
_TIMED = re.compile(rf"^.*?\b\d+\.\d+:\s+(?:(?P<period>\d+)\s+)?{_EVENT}")
_UNTIMED = re.compile(rf"^.*?{_EVENT}")
_TLB = re.compile(r"\|TLB (?P<what>[^|]*)")
_MISS_EVENT = re.compile(r"(d?tlb|stlb)[^:]*(miss|walk|refill)|(miss|walk|refill)[^:]*tlb|page.?walk", re.IGNORECASE)


@dataclass
class Read:
    """Counts of what was read: the samples of each event, those of them that missed, and those without an address."""

    events: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    without_address: int = 0


def samples(lines: Iterable[str], read: Read | None = None) -> Iterator[tuple[int, float]]:
    """(data address, weight) of each sample of a TLB miss. The weight is the sample's period, 1 where no
    time and period are printed.

    A sample is a miss where its data source says so (``TLB ... miss`` without a hit of the second level, ``Walker``,
    ``Fault``), and without a data source where its event is one of TLB misses (``mem_inst_retired.stlb_miss_loads``,
    ``tlb-miss``). Address 0 means that the processor had none: such samples are counted and left out. Comments and
    lines of call chains are no samples.

    Raises :class:`BadInputError` at the end where no sample is a miss, with the events that there were.
    """
    told = read if read is not None else Read()
    for line in lines:
        found = None if line.startswith("#") else _TIMED.match(line) or _UNTIMED.match(line)
        if found is None:
            continue
        event = found["event"]
        told.events[event] += 1
        if not _is_miss(event, found["rest"]):
            continue
        address = int(found["address"], 16)
        if address == 0:
            told.without_address += 1
            continue
        told.misses[event] += 1
        yield address, float(found.groupdict().get("period") or 1)
    if not told.misses:
        events = ", ".join(f"{count} of {event}" for event, count in told.events.most_common(5)) or "no samples"
        raise BadInputError(
            f"no sample is a TLB miss with an address ({events}); record them with: perf record -d -e "
            "mem_inst_retired.stlb_miss_loads:P -- CMD (AMD: perf mem record), then: perf script > FILE"
        )


def _is_miss(event: str, rest: str) -> bool:
    source = _TLB.search(rest)
    if source is None or source["what"].strip() in ("N/A", "None"):
        return _MISS_EVENT.search(event) is not None
    what = source["what"]
    return "Walker" in what or "Fault" in what or ("miss" in what and "L1 miss" not in what)
