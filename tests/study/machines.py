"""A machine that boots, without one: units in a directory, processes that are really killed, boots that are counted.

Each process of a boot is a fork of the test's, so that ``kill -9`` ends it as a power cut would: files stay.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import record, tools

from pagelab.errors import PagelabError
from pagelab.record import Record
from pagelab.study import systemd_units as units
from pagelab.study import this_boot
from pagelab.study.plan import Condition
from pagelab.study.progress import Silent
from pagelab.study.reboots import arming, boot
from pagelab.study.store import Store
from pagelab.study.systemd import Systemd

Behave = Callable[[Condition], Record]


PROGRAM_AND_POLICIES = """\
[[workload]]
name = "a"
command = "true"

[[policy]]
name = "kernel"

[[policy]]
name = "4K"
pages = "4K"
"""
"""The end of a study of two conditions."""


@dataclass
class Machine:
    """``cut``: the power goes off at so many noted moments, counted from 0 over all boots; None: never."""

    root: Path
    behave: Behave = record
    cut: int | None = None
    boots: int = 0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "system").mkdir(parents=True)
        (self.root / "system" / "default.target").write_text("untouched")
        (self.root / "net" / "lo").mkdir(parents=True)
        (self.root / "net" / "eth0").mkdir()
        self.start()

    @property
    def systemd(self) -> Systemd:
        return Systemd(self.root / "system", self._called, self.root / "net")

    def start(self) -> None:
        """A new boot: another id, and the network comes up."""
        self.boots += 1
        (self.root / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.root / "calls").write_text("")
        (self.root / "net" / "lo" / "flags").write_text("0x9\n")
        (self.root / "net" / "eth0" / "flags").write_text("0x1003\n")

    def calls(self) -> list[str]:
        """What ``systemctl`` was asked for in this boot."""
        return (self.root / "calls").read_text().splitlines()

    def _called(self, words: list[str]) -> str:
        with (self.root / "calls").open("a") as file:
            file.write(" ".join(words) + "\n")
        self.moment()
        return ""

    def moment(self) -> None:
        """A moment at which the power can go off."""
        path = self.root / "moments"
        now = int(path.read_text()) if path.exists() else 0
        path.write_text(str(now + 1))
        if now == self.cut:
            os.kill(os.getpid(), signal.SIGKILL)

    def moments(self) -> int:
        return int((self.root / "moments").read_text())

    def boot(self, directory: Path) -> str:
        """One boot to its end: usual, restarted, cut, failed (restarted by its unit), or stays (nobody restarts)."""
        self.start()
        if self.systemd.armed() is None:
            return "usual"
        ended = self._process(lambda: boot.begin(directory, self.systemd, print))
        if ended < 0:
            return "cut"
        if f"--no-block isolate {units.TARGET}" not in self.calls():
            return "usual"
        ended = self._process(lambda: boot.runs(directory, self.systemd, tools(self._behave), print))
        if ended < 0:
            return "cut"
        if ended > 0:
            return "failed"
        return "restarted" if "reboot" in self.calls() else "stays"

    def until_usual(self, directory: Path, most: int = 60) -> list[str]:
        """The boots, until one that is a usual one or needs a person."""
        ends: list[str] = []
        while not ends or ends[-1] in ("restarted", "cut", "failed"):
            assert len(ends) < most, f"it restarts for ever: {ends}"
            ends.append(self.boot(directory))
        return ends

    def _behave(self, condition: Condition) -> Record:
        with (self.root / "ran").open("a") as file:
            file.write(f"{condition.name}\n")
        self.moment()
        done = self.behave(condition)
        self.moment()
        return done

    def _process(self, work: Callable[[], None]) -> int:
        """Its exit code; negative: the signal that ended it."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            except (PagelabError, OSError) as error:
                print(f"error: {error}", flush=True)
            except BaseException:
                traceback.print_exc()
                code = 99
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code != 99, "an error that is no error of pagelab's"
        return code


def machine_in(root: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """With a boot id of its own; every write of the store and of the count is a moment at which it can be cut."""
    made = Machine(root)
    monkeypatch.setattr(this_boot, "_ID", made.root / "boot_id")
    monkeypatch.setattr("pagelab.study.reboots.permission.refuse", lambda *_: None)
    monkeypatch.setattr(os, "sync", lambda: None)  # of the whole machine: seconds, where others write
    for owner, name in (
        *((Store, name) for name in ("begin_session", "begin_attempt", "commit_runs", "take_back", "end_session")),
        (boot.count, "write"),
        (Systemd, "_sync"),
    ):
        monkeypatch.setattr(owner, name, _between_moments(made, getattr(owner, name)))
    return made


def _between_moments(machine: Machine, function: Callable[..., object]) -> Callable[..., object]:
    def called(*arguments: object, **named: object) -> object:
        machine.moment()
        found = function(*arguments, **named)
        machine.moment()
        return found

    return called


def begun(machine: Machine, directory: Path, text: str) -> Path:
    """A study that is ready for its first boot; the user's command asked for the restart."""
    cut, machine.cut = machine.cut, None
    spec = directory / "s.toml"
    spec.write_text(text)
    out = directory / "out"
    arming.run(spec, out, tools(), machine.systemd, Silent())
    assert machine.calls()[-1] == "reboot"
    (machine.root / "moments").write_text("0")
    machine.cut = cut
    return out
