"""Every tool on every pair of commands, repeatedly, in the same minutes; each answer is a line of a file.

A repetition takes every pair of commands, in random order, and asks every tool, in random order again, each for the
same time. What a killed campaign has answered stays: the next one goes on after it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from .tools import BY_NAME, TOOLS, Answer, Asked, Tool, ToolError, versions
from .work import KINDS, Ran, Work, calibrated, compiled, execute

MAIN = (0.0, 0.05)
"""Planted differences of every repetition."""
ALSO = (0.02, 0.1)
"""Planted differences of one repetition in five."""
EVERY = 5
_LATEST = 9
"""Answers of a tool by which the size of its next question is chosen."""


@dataclass(frozen=True)
class Place:
    """One question of the campaign."""

    repetition: int
    kind: str
    planted: float
    tool: str


def places(repetitions: int, seed: int, tools: Collection[str] = BY_NAME) -> Iterator[Place]:
    """Questions to these tools in order; the same seed gives the same order, however many repetitions and tools."""
    for repetition in range(repetitions):
        order = random.Random(f"{seed} {repetition}")
        planted = [*MAIN, *(ALSO if repetition % EVERY == 0 else ())]
        pairs = [(kind, share) for kind in KINDS for share in planted]
        order.shuffle(pairs)
        for kind, share in pairs:
            names = [tool.name for tool in TOOLS]
            order.shuffle(names)
            yield from (Place(repetition, kind, share, name) for name in names if name in tools)


@dataclass(frozen=True)
class Row:
    """An answer, or the reason for its absence, with the machine's load meanwhile."""

    place: Place
    seconds: float
    """Requested time."""
    size: float
    took_s: float
    answer: Answer | None
    error: str | None
    at: str
    load: tuple[float, float]
    """Load before and after."""
    others: float
    """Share of all processors' time that other programs than the tool's took."""

    def line(self) -> str:
        return json.dumps({"row": asdict(self)}) + "\n"

    @classmethod
    def read(cls, found: dict[str, Any]) -> Row:
        answer = found["answer"]
        return cls(
            **{
                **found,
                "place": Place(**found["place"]),
                "answer": None if answer is None else Answer(**answer),
                "load": tuple(found["load"]),
            }
        )


def rows_of(file: Path, seconds: float | None = None) -> list[Row]:
    """The rows that are there, of this time a tool; a line that a kill cut off is not one."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if "row" in found and seconds in (None, found["row"]["seconds"]):
            rows.append(Row.read(found["row"]))
    return rows


def begun(file: Path) -> dict[str, Any] | None:
    """The file's first line: how much work the commands do, and with what they are compared."""
    if not file.exists():
        return None
    with file.open() as lines:
        first = lines.readline()
    found = json.loads(first)["campaign"] if first.endswith("\n") else None
    return dict(found) if found else None


def next_size(tool: Tool, before: Sequence[Row], seconds: float, pair_s: float) -> float:
    """So large that the tool is likely to take ``seconds`` in all, by what its latest answers for this kind took."""
    latest = [row for row in before if row.answer is not None][-_LATEST:]
    if not latest:
        return tool.size(seconds - tool.first if tool.by_time else tool.first * min(1, seconds / (tool.first * pair_s)))
    if tool.by_time:
        return tool.size(seconds - median(row.took_s - row.size for row in latest))
    return tool.size(seconds / median(row.took_s / row.size for row in latest))


def run(
    file: Path,
    scratch: Path,
    seconds: float,
    repetitions: int,
    seed: int,
    until_s: float | None,
    tools: Collection[str] = BY_NAME,
) -> None:
    """Runs the missing questions to these tools; none begins later than ``until_s`` (monotonic)."""
    work = _work(file, scratch, tools)
    done = rows_of(file, seconds)
    answered = {row.place for row in done}
    pair_s = {kind: sum(_quickest(words) for words in work.commands(kind, 0.0)) for kind in KINDS}
    for place in places(repetitions, seed, tools):
        if place in answered:
            continue
        if until_s is not None and time.monotonic() > until_s:
            return
        tool = BY_NAME[place.tool]
        same = [row for row in done if (row.place.tool, row.place.kind) == (place.tool, place.kind)]
        size = next_size(tool, same, seconds, pair_s[place.kind])
        asked = Asked(work.commands(place.kind, place.planted), size, scratch, seed + place.repetition)
        row = _asked(place, tool, asked, seconds)
        done.append(row)
        _append(file, row.line())
        print(_line(row), flush=True)


def _quickest(words: list[str]) -> float:
    found: list[Ran] = [execute(words) for _ in range(5)]
    return min(one.wall_s for one in found)


def _work(file: Path, scratch: Path, tools: Collection[str]) -> Work:
    """The same amounts of work throughout a campaign, also when it goes on on another day."""
    program = compiled(scratch)
    before = begun(file)
    if before is not None:
        return Work(program, before["work"]["steps_per_run"])
    work = calibrated(program)
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"work": {**work.document(), "program": "work"}, "versions": versions(tools)}
    file.write_text(json.dumps({"campaign": document}) + "\n")
    return work


def _append(file: Path, line: str) -> None:
    with file.open("a+b") as out:
        # Behind a line that a kill cut off a new one would be lost with it.
        if out.tell() and (out.seek(-1, os.SEEK_END), out.read(1))[1] != b"\n":
            out.write(b"\n")
        out.write(line.encode())
        out.flush()
        os.fsync(out.fileno())


def _asked(place: Place, tool: Tool, asked: Asked, seconds: float) -> Row:
    at, load, busy, own = datetime.now(UTC), os.getloadavg()[0], _busy(), _own()
    began = time.monotonic()
    answer, error = None, None
    try:
        answer = tool.ask(asked)
    except ToolError as found:
        error = str(found)
    took = time.monotonic() - began
    all_s = took * (os.cpu_count() or 1)
    others = max(0.0, (_busy() - busy - (_own() - own)) / all_s)
    return Row(place, seconds, asked.size, took, answer, error, at.isoformat(), (load, os.getloadavg()[0]), others)


def _busy() -> float:
    """Processor time of everything since boot, in seconds."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = (int(word) for word in words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Processor time of this process and of what it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def _line(row: Row) -> str:
    place = row.place
    head = f"{place.repetition:3} {place.kind:7} {place.planted:4.0%} {place.tool:9} {row.took_s:5.1f} s"
    if row.answer is None:
        return f"{head}  {row.error}"
    found = row.answer
    return (
        f"{head} {found.executions:4} executions {100 * found.change:+6.2f}% ({100 * found.low:+.2f} … "
        f"{100 * found.high:+.2f}) {found.decision}; others took {row.others:.0%}"
    )
