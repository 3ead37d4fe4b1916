"""Calls systemd for a study that restarts the machine: installs and removes units, stops services, restarts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import whole_file
from ..disk import sync_directory
from ..errors import MachineError, system_reason
from . import systemd_units as units

_IFF_UP = 1
"""Flag of a network interface that is up (netdevice(7))."""
Call = Callable[[list[str]], str]
"""Runs ``systemctl`` with these words and returns its output. Raises :class:`MachineError`."""


def _systemctl(words: list[str]) -> str:
    command = ["systemctl", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise MachineError(f"cannot start systemctl: {system_reason(error)}; is this system run by systemd?") from None
    if done.returncode != 0:
        raise MachineError(f"{' '.join(command)} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


@dataclass(frozen=True)
class Systemd:
    """The study's units in ``directory``, and calls of ``systemctl``."""

    directory: Path = Path("/etc/systemd/system")
    call: Call = _systemctl
    interfaces: Path = Path("/sys/class/net")

    def armed(self) -> Path | None:
        """Directory of the study that the next boot continues; None without one."""
        try:
            self._link.lstat()
            return units.directory_in((self.directory / units.BEGIN).read_text(encoding="utf-8"))
        except OSError:
            return None

    def is_whole(self) -> bool:
        """Whether all units are installed; after an interrupted removal some are missing."""
        return all((self.directory / name).exists() for name in units.NAMES)

    def install(self, texts: dict[str, str]) -> None:
        """Writes the units, and last the link by which a boot starts them. Raises :class:`MachineError`."""
        try:
            for name, text in texts.items():
                whole_file.put(self.directory / name, text, mode=0o644)
            self._link.parent.mkdir(exist_ok=True)
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(Path("..") / units.BEGIN)
            self._sync()
        except OSError as error:
            raise MachineError(
                f"cannot write units in {self.directory}: {system_reason(error)}; nothing restarts the machine"
            ) from None
        self.call(["daemon-reload"])

    def remove(self) -> None:
        """Removes the units, even if only some of them are there. Raises :class:`MachineError`.

        The unit that begins a boot is removed last: after an interrupted removal, it removes the rest
        (:meth:`is_whole`).
        """
        begin = (self._link, self.directory / units.BEGIN)
        others = tuple(self.directory / name for name in (units.TARGET, units.RUNS))
        if not any(os.path.lexists(path) for path in (*begin, *others)):
            return
        try:
            for paths in (others, begin):
                for path in paths:
                    path.unlink(missing_ok=True)
                self._sync()
        except OSError as error:
            raise MachineError(
                f"cannot remove {self._link}: {system_reason(error)}; remove it by hand, or each boot goes on with the "
                "study"
            ) from None
        self.call(["daemon-reload"])

    @property
    def _link(self) -> Path:
        return self.directory / f"{units.WANTED_BY}.wants" / units.BEGIN

    def _sync(self) -> None:
        for directory in (self.directory, self._link.parent):
            if directory.is_dir():
                sync_directory(directory)

    def leave_to_study(self) -> None:
        """Isolates the study's target: systemd stops everything else."""
        self.call(["--no-block", "isolate", units.TARGET])

    def restart_machine(self) -> None:
        """Requests a restart, after everything written is on the disk."""
        os.sync()
        self.call(["reboot"])

    def take_network_down(self) -> list[str]:
        """Takes down every network interface but the loopback; returns their names. Raises OSError."""
        found = []
        for flags in sorted(self.interfaces.glob("*/flags")):
            now = int(flags.read_text(), 16)
            if flags.parent.name != "lo" and now & _IFF_UP:
                flags.write_text(f"{now & ~_IFF_UP:#x}\n")
                found.append(flags.parent.name)
        return found

    def stop_the_rest(self) -> None:
        """Isolates the study's target a second time, after the boot has settled.

        After the first time, a service that a socket starts may still run: systemd keeps it for the socket while it
        stops the socket.
        """
        self.wait_until_idle()
        self.leave_to_study()
        self.wait_until_idle()

    def wait_until_idle(self, limit_s: float = 120.0) -> None:
        """Waits until systemd starts and stops no unit any more, or for ``limit_s`` at most."""
        deadline = time.monotonic() + limit_s
        while self.call(["list-jobs", "--no-legend"]).strip() not in ("", "No jobs running."):
            if time.monotonic() >= deadline:
                return
            time.sleep(0.5)

    def stop_runs(self) -> bool:
        """Ends the runs of this boot; returns whether there were any."""
        active = self.call(["show", "--property=ActiveState", "--value", units.RUNS]).strip() == "active"
        if active:
            self.call(["stop", units.RUNS])
        return active

    def running_services(self) -> list[str]:
        """Names of the services that run now."""
        shown = self.call(["list-units", "--type=service", "--state=running", "--plain", "--no-legend"])
        return [line.split()[0] for line in shown.splitlines() if line.strip()]

    def knows_mount(self, point: Path) -> bool:
        """Whether a unit or fstab mounts ``point``, so that it is there after the next boot."""
        return bool(self.call(["show", "--property=FragmentPath", "--value", str(point)]).strip())

    def boot_s(self) -> float | None:
        """Seconds that this boot took, from power-on until it had finished; None where that is not known."""
        names = ("FinishTimestampMonotonic", "FirmwareTimestampMonotonic")
        shown = self.call(["show", *(f"--property={name}" for name in names)])
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        times = [int(found.get(name, "0") or 0) for name in names]
        return sum(times) / 1e6 if times[0] else None
