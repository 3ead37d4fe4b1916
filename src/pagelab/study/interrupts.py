"""Handles Ctrl-C and SIGTERM during a study: the study stops where only the run in progress is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A context manager that installs signal handlers on entry and restores the old ones on exit.

    A signal always sets :attr:`seen`. Inside :meth:`abandonable` it also raises KeyboardInterrupt at once; elsewhere (a
    commit, a tear-down) the session finishes its step and then checks :attr:`seen`. A second signal always raises.
    """

    def __init__(self) -> None:
        self.seen: str | None = None
        self._abandonable = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            # nohup and background jobs of shells ignore some signals on purpose; those stay ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """A context in which a signal raises KeyboardInterrupt at once."""
        self._abandonable = True
        try:
            if self.seen is not None:  # the signal came between two runs
                raise KeyboardInterrupt
            yield
        finally:
            self._abandonable = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        again = self.seen is not None
        self.seen = signal.Signals(number).name
        if self._abandonable or again:
            self._abandonable = False
            raise KeyboardInterrupt
