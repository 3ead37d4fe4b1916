"""Describes a restart of the machine before it happens, and refuses where it is not safe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...errors import MachineError, another_would_do, quoted
from ...machine.probe import own_command
from ...machine.sysfs import Tree
from ...machine.virtual import container
from .. import programs
from .. import systemd_units as units
from ..plan import Plan
from ..progress import shown_duration
from ..resuming import sudo
from ..schedule import Slot, boots
from ..systemd import Systemd

_GONE = ("tmpfs", "ramfs", "overlay", "devtmpfs", "squashfs")
_OF_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "glusterfs", "virtiofs", "lustre")
_OF_LOGIN = ("ecryptfs",)
STOP = "study stop-reboots"
_SHOWN_SERVICES = 6
_STAYING = ("systemd-journald.", "systemd-udevd.", "getty@", "serial-getty@", "console-getty.")
"""Beginnings of the names of services that keep running beside a study."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Mount:
    """A mounted file system, as /proc/self/mountinfo lists it."""

    point: Path
    kind: str
    device: str
    """major:minor"""


def mount_of(path: Path, mountinfo: str) -> Mount:
    """The mount that holds ``path``, an absolute path; the latest one where several are at the same place."""
    found = Mount(Path("/"), "unknown", "0:0")
    for line in mountinfo.splitlines():
        fields, _, after = line.partition(" - ")
        device, point = fields.split()[2], Path(_unescaped(fields.split()[4]))
        if path.is_relative_to(point) and point.is_relative_to(found.point):
            found = Mount(point, after.split()[0], device)
    return found


def _unescaped(text: str) -> str:
    """``text`` with proc(5)'s escapes of space, tab, line break and backslash replaced."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _mountinfo(tree: Tree) -> str:
    return tree.text("/proc/self/mountinfo")


def needed_paths(plan: Plan, directory: Path) -> list[Path]:
    """Paths whose file systems each boot must mount: the study, pagelab, the programs and their directories."""
    here = Path(__file__).resolve()
    found = [directory.resolve(), Path(sys.prefix).resolve(), here.parent, *map(Path, programs.fingerprints(plan))]
    found += [Path(condition.request.cwd) for condition in plan.active() if condition.request.cwd]
    return list(dict.fromkeys(found))


def refuse(plan: Plan, directory: Path, systemd: Systemd, command: str, tree: Tree | None = None) -> None:
    """Raises MachineError where this machine cannot be restarted for the study, or would not continue it after that.

    ``command``: what root has to run, from ``study`` on.
    """
    tree = tree or Tree.from_environment()
    if not tree.exists("/run/systemd/system"):
        raise MachineError('between = "reboot" needs systemd, and this system is run by another manager or none')
    box = container(tree)
    if box.kind != "none":
        raise MachineError(
            f'between = "reboot": a container ({box.kind}) cannot restart the machine; run it on the host'
        )
    if os.geteuid() != 0:
        raise MachineError(f"only root may restart the machine for a study; run: {sudo(command)}")
    mountinfo = _mountinfo(tree)
    for path in needed_paths(plan, directory):
        if not units.is_one_line(str(path)):
            error = MachineError(f"{str(path)!r} has a line break in its name; rename it")
            raise another_would_do(error) if path == directory.resolve() else error
        _refuse_mount(path, mount_of(path, mountinfo), systemd)
    armed = systemd.armed()
    if armed is not None and armed.resolve() != directory.resolve():
        raise MachineError(
            f"the study in {armed} restarts this machine already, and only one study can; end it with: {sudo(STOP)}"
        )


def _refuse_mount(path: Path, mount: Mount, systemd: Systemd) -> None:
    kind = mount.kind.partition(".")[0]
    where = f"{path} is on {mount.kind} ({mount.point})"
    if kind in _GONE:
        raise MachineError(f"{where}, which a restart empties; put it on a disk")
    if kind in (*_OF_NETWORK, "fuse"):
        raise MachineError(f"{where}, and the network is off while the study runs; put it on a disk of this machine")
    if kind in _OF_LOGIN:
        raise MachineError(f"{where}, which only a login makes readable; put it elsewhere")
    if mount.point != Path("/") and not systemd.knows_mount(mount.point):
        raise MachineError(
            f"{path} is on {mount.point}, which no boot mounts; add it to /etc/fstab, or put the study and its "
            "programs on another file system"
        )


def restarts(slots: Iterable[Slot], finished: set[int], plan: Plan) -> int:
    """Number of boots that the rest of the study takes, without the last one into the ordinary system."""
    assert plan.reboots is not None
    outstanding = {slot.position for slot in slots if slot.position not in finished and not slot.warmup}
    return sum(any(slot.position in outstanding for slot in boot) for boot in boots(list(slots), plan.reboots.each))


def told(plan: Plan, number: int, systemd: Systemd) -> str:
    """The description of what would happen, for the user who has to agree."""
    assert plan.reboots is not None
    what = "block" if plan.reboots.each == "block" else "execution"
    warm = f" and its warm-up{'s' if plan.warmups > 1 else ''}" if plan.warmups else ""
    lines = [
        f"{plan.name} restarts this machine {number + 1} times: {number} boots, each for one {what}{warm}, and one "
        "more into the usual system",
        _time(number, plan.reboots.settle_s, systemd),
        f"until the end there are {', '.join(units.NAMES)} in {systemd.directory}, and a link in "
        f"{units.WANTED_BY}.wants; the default target and the boot loader stay as they are",
        _stopped(plan.reboots.keep, systemd),
        _without_end(plan),
        f"stop it on the console, as root, with: {quoted(own_command())} {STOP}; or in the boot loader, with the word "
        f"{units.STOP_WORD} on the kernel's command line",
    ]
    return "\n".join(line for line in lines if line)


def _without_end(plan: Plan) -> str:
    endless = [condition.name for condition in plan.active() if condition.request.timeout_s is None]
    if not endless:
        return ""
    more = f" and {len(endless) - 1} more" if len(endless) > 1 else ""
    return (
        f"{endless[0]}{more} may take any time: a program that never ends keeps the machine from its services until it "
        'is stopped; write timeout = "10min" into the study'
    )


def _time(number: int, settle_s: float, systemd: Systemd) -> str:
    boot_s = _asked(systemd.boot_s)
    if boot_s is None:
        return ""
    in_all = shown_duration(number * (boot_s + settle_s))
    return f"the latest boot took {shown_duration(boot_s)}: the boots take about {in_all}, besides the runs"


def _stopped(keep: list[str], systemd: Systemd) -> str:
    found = _asked(systemd.running_services) or []
    running = [name for name in found if name not in keep and not name.startswith(_STAYING)]
    names = ", ".join(running[:_SHOWN_SERVICES])
    more = f" and {len(running) - _SHOWN_SERVICES} more" if len(running) > _SHOWN_SERVICES else ""
    services = f"{len(running)} services that run now ({names}{more})" if running else "services"
    network = f"{', '.join(keep)} stay on" if keep else "the network is down, and only the console is left for a login"
    return f"while it runs, {services}, timers and sockets are off; {network}"


def _asked(question: Callable[[], Answer]) -> Answer | None:
    """The system manager's answer; None where it does not answer, and the description then lacks it."""
    try:
        return question()
    except MachineError:
        return None


def encrypted(paths: Iterable[Path], tree: Tree | None = None) -> str | None:
    """A sentence where a path is on an encrypted device, whose passphrase each boot may ask for."""
    tree = tree or Tree.from_environment()
    mountinfo = _mountinfo(tree)
    for path in paths:
        mount = mount_of(path, mountinfo)
        if (tree.get(f"/sys/dev/block/{mount.device}/dm/uuid") or "").startswith("CRYPT-"):
            return f"{mount.point} is encrypted: each boot may wait for its passphrase"
    return None
