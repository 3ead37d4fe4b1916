"""Shows the progress of a study: a bar on a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from pagelab import terminal

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pagelab.record import RunWarning

_PLAIN_EVERY_S = 10.0
EVERY_S = 30.0
"""Seconds between two messages about one long step."""


def as_note(warning: RunWarning) -> str:
    """A warning as a note; one that is only information has no word "warning"."""
    return warning.message if warning.severity == "info" else f"warning: {warning.message}"


class Progress(Protocol):
    """Receives the messages of a running session. ``left_s`` is None until a first run has finished.

    A study with a time limit calls ``start`` again when it knows how many runs fit.
    """

    def start(self, title: str, total: int, done: int, left_s: float | None) -> None: ...
    def running(self, condition: str) -> None: ...
    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Shows nothing."""

    def start(self, title: str, total: int, done: int, left_s: float | None) -> None: ...
    def running(self, condition: str) -> None: ...
    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Lines:
    """Prints a line now and then, for logs and pipes; every failure gets a line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = self._done = 0
        self._last = 0.0

    def start(self, title: str, total: int, done: int, left_s: float | None) -> None:
        self._total, self._done, self._last = total, done, time.monotonic()
        self._say(f"{title}: {done} of {total} runs done{_left(left_s)}")

    def running(self, condition: str) -> None: ...

    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None:
        self._done += 1
        failed = f"{condition}: {status}: {message}" if status != "ok" else ""
        if failed:
            self._say(f"[{self._done}/{self._total}] {failed}")
        if time.monotonic() - self._last >= _PLAIN_EVERY_S or self._done == self._total:
            self._last = time.monotonic()
            self._say(f"{self._done} of {self._total} runs done{_left(left_s)}")

    def note(self, text: str) -> None:
        self._say(text)

    def stop(self) -> None: ...

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Bar:
    """A rich progress bar on standard error.

    It is drawn between runs only: a thread that redraws it would take time from the program being measured.
    """

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._console = terminal.console(stderr=True)
        self._bar = RichProgress(
            TextColumn("{task.fields[title]}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[condition]}", style="dim", markup=False),
            console=self._console,
            auto_refresh=False,
        )
        self._task: TaskID | None = None

    def start(self, title: str, total: int, done: int, left_s: float | None) -> None:
        left = _left(left_s).removeprefix(", ")
        if self._task is not None:
            self._bar.update(self._task, total=total, completed=done, left=left)
            return
        self._task = self._bar.add_task("", total=total, completed=done, title=title, left=left, condition="")
        self._bar.start()

    def running(self, condition: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, condition=condition, refresh=True)

    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None:
        if status != "ok":
            self._console.print(f"{condition}: {status}: {message}", style="yellow", markup=False, highlight=False)
        if self._task is not None:
            left = _left(left_s).removeprefix(", ")
            self._bar.update(self._task, advance=1, left=left, condition="", refresh=True)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._bar.stop()


class Titled:
    """The progress of one of several phases, under the phase's name; ``notes``: whether its messages are shown."""

    def __init__(self, shown: Progress, title: str, *, notes: bool = True) -> None:
        self._shown, self._title, self._notes = shown, title, notes

    def start(self, _title: str, total: int, done: int, left_s: float | None) -> None:
        self._shown.start(self._title, total, done, left_s)

    def running(self, condition: str) -> None:
        self._shown.running(condition)

    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None:
        self._shown.finished(condition, status, message, left_s)

    def note(self, text: str) -> None:
        if self._notes:
            self._shown.note(text)

    def stop(self) -> None:
        self._shown.stop()


def for_terminal(stream: TextIO | None = None) -> Progress:
    """A bar where standard error is a terminal, lines where it is not."""
    stream = stream or sys.stderr
    return Bar() if stream.isatty() else Lines(stream)


@contextmanager
def meanwhile(note: Callable[[str], None], text: Callable[[float], str], every_s: float = EVERY_S) -> Iterator[None]:
    """Notes ``text(seconds so far)`` every ``every_s`` seconds, from a thread; the block must release Python's lock."""
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(every_s):
            note(text(time.monotonic() - began))

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


class TimeLeft:
    """Estimates the time left, from the median duration of each condition so far (set-up and flushing included)."""

    def __init__(self, durations: Iterable[tuple[int, float]], remaining: Iterable[int]) -> None:
        self._durations: dict[int, list[float]] = {}
        self._remaining: dict[int, int] = {}
        for condition in remaining:
            self._remaining[condition] = self._remaining.get(condition, 0) + 1
        for condition, duration_s in durations:
            self._durations.setdefault(condition, []).append(duration_s)

    def finished(self, condition: int, duration_s: float) -> None:
        self._durations.setdefault(condition, []).append(duration_s)
        self._remaining[condition] -= 1

    def median_s(self, condition: int) -> float | None:
        """Median duration of the condition's runs so far."""
        found = self._durations.get(condition)
        return statistics.median(found) if found else None

    def seconds(self) -> float | None:
        """Seconds left, or None before a run has finished; a condition without runs counts as the others' median."""
        medians = {condition: statistics.median(found) for condition, found in self._durations.items()}
        if not medians:
            return None
        typical = statistics.median(medians.values())
        return sum(count * medians.get(condition, typical) for condition, count in self._remaining.items())


def shown_duration(seconds: float) -> str:
    """A duration for people: ``45 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", {shown_duration(left_s)} left"
