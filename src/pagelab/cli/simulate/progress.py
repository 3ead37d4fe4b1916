"""Progress of a simulation: a bar on a terminal, a line from time to time elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pagelab import terminal
from pagelab.simulate.traces import Report

_EVERY_S = 30.0


@dataclass(frozen=True)
class Unit:
    """The counted unit, and the format of its numbers."""

    each: float
    text: str

    def of(self, done: int, total: int | None) -> str:
        share = f" of {total / self.each:,.0f}" if total else ""
        return f"{done / self.each:,.0f}{share} {self.text}"


REFERENCES = Unit(1e6, "M references")
TASKS = Unit(1, "tasks")


@contextmanager
def shown(title: str, unit: Unit = REFERENCES) -> Iterator[Report]:
    """A function that shows progress on standard error, for :func:`pagelab.simulate.curves` and similar functions."""
    if sys.stderr.isatty():
        with _bar(title, unit) as report:
            yield report
    else:
        yield _lines(title, unit)


@contextmanager
def _bar(title: str, unit: Unit) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal.console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, done="")

        def report(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total, done=unit.of(done, total))

        yield report


def _lines(title: str, unit: Unit) -> Report:
    last = time.monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY_S:
            last = time.monotonic()
            terminal.say(f"{title}: {unit.of(done, total)}\n")

    return report
