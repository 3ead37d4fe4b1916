"""A session in one boot: it runs the first unfinished execution or block, with its warm-ups."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..record import RunWarning, WarningKind
from .errors import StudyError
from .interim_looks import looks_of
from .interrupts import Interrupts
from .progress import Progress
from .schedule import Slot, boots
from .session import Finished, Session
from .store import Store
from .this_boot import this_boot
from .tools import Tools

STOPPED = "reboots_stopped"
"""Key of ``meta``: the reason why no further boot continues the study."""


class UsedBootError(StudyError):
    """An earlier session has already run in this boot."""


class BootSession(Session):
    """A session that runs one execution or block, and leaves the next one to the next boot."""

    def __init__(
        self, store: Store, directory: Path, tools: Tools, machine: dict[str, Any], progress: Progress | None = None
    ) -> None:
        super().__init__(store, directory, tools.runner, machine, progress, tools.check)
        assert self._plan.reboots is not None
        self._reboots = self._plan.reboots
        self._noise = tools.noise

    def work(self, noise: RunWarning | None = None) -> Finished:
        """Makes the runs of this boot. Raises :class:`UsedBootError` where the boot is not a fresh one."""
        if self._store.rows("SELECT 1 FROM session WHERE boot_id = ?", (this_boot().id,)):
            raise UsedBootError("a session of this study has worked in this boot; the next one needs a fresh boot")
        return super().work(noise)

    def _run_segments(self, interrupts: Interrupts) -> None:
        if looks_of(self._store).stopped is not None:
            return
        places = next_places(self._store, self._reboots.each)
        if places:
            self._settle(interrupts)
            finished = self._store.finished()
            remaining = [slot for slot in self._store.slots() if slot.position not in finished]
            time_left = self._begin_progress(len(finished) + len(remaining), len(finished), remaining)
            self._run_segment(places, interrupts, time_left)
        self._look()

    def _settle(self, interrupts: Interrupts) -> None:
        with interrupts.abandonable():
            time.sleep(self._reboots.settle_s)
        noise = self._noise(self._plan)
        if noise is not None:
            self._warn(noise)

    def _look(self) -> None:
        """Takes the planned looks whose blocks have all finished."""
        outstanding = [slot.block for slot in unfinished(self._store)]
        for look in looks_of(self._store).planned:
            if min(outstanding, default=look.blocks) < look.blocks or self._decide(look):
                return

    def _warn(self, warning: RunWarning) -> None:
        """Stores a warning once: each boot finds the same machine. Of noise, only the first warning is stored."""
        known = self._store.study_warnings()
        if any(one.kind == warning.kind == WarningKind.NOISY_MACHINE or one == warning for one in known):
            self._progress.note(warning.message)
        else:
            super()._warn(warning)


def unfinished(store: Store) -> list[Slot]:
    """The places in the schedule of analysed executions that have no run yet."""
    finished = store.finished()
    return [slot for slot in store.slots() if not slot.warmup and slot.position not in finished]


def next_places(store: Store, each: Any) -> list[Slot]:
    """The places that the next boot runs, in order; empty at the end of the study.

    Where an execution is still outstanding, the warm-ups that an earlier boot made for it are discarded and repeated.
    """
    missing = {slot.position for slot in unfinished(store)}
    own = next((boot for boot in boots(store.slots(), each) if any(slot.position in missing for slot in boot)), [])
    conditions = {slot.condition for slot in own if slot.position in missing}
    places = [slot for slot in own if slot.position in missing or (slot.warmup and slot.condition in conditions)]
    store.take_back(sorted({slot.position for slot in places} & store.finished()))
    return places
