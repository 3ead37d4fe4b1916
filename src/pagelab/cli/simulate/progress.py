"""How a simulation shows that it is getting on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pagelab.simulate.traces import Report

_EVERY_S = 30.0


@contextmanager
def shown(title: str) -> Iterator[Report]:
    """A report for :func:`pagelab.simulate.curves` and its like, on standard error."""
    if sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    else:
        yield _lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, done="")

        def report(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total, done=f"{done / 1e6:,.0f} M references")

        yield report


def _lines(title: str) -> Report:
    last = time.monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY_S:
            last = time.monotonic()
            share = f" of {total / 1e6:,.0f} M" if total else ""
            sys.stderr.write(f"{title}: {done / 1e6:,.0f} M references{share}\n")

    return report
