"""Starts, continues and stops a study that restarts the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ... import environment
from ...errors import BadInputError, MachineError, quoted
from .. import systemd_units as units
from ..boot_session import STOPPED
from ..control import resume_study, run_study
from ..plan import Plan
from ..prepare import Prepared, prepare
from ..progress import Progress
from ..resuming import resume_command, sudo
from ..schedule import schedule
from ..store import Store
from ..systemd import Systemd
from ..tools import Tools
from . import count, permission

_KEPT = (
    *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "SHELL", "TMPDIR", "TZ", "USER"),
    *("SUDO_GID", "SUDO_UID"),
)
"""Variables that keep the values from the start of the study in all boots, in addition to _KEPT_PREFIXES.

The launcher runs programs as the user SUDO_UID: without it, the programs of a boot would run as root.
"""
_KEPT_PREFIXES = ("LC_", "PAGELAB_")


def describe(prepared: Prepared, systemd: Systemd) -> str:
    """Describes what the study would do to this machine, for ``--dry-run`` and before the start."""
    plan = prepared.plan
    slots = schedule(len(plan.active()), plan.executions, plan.warmups, plan.seed, plan.together, plan.each_boot)
    return permission.told(plan, permission.restarts(slots, set(), plan), systemd)


def run(
    spec: Path,
    directory: Path,
    tools: Tools,
    systemd: Systemd,
    progress: Progress,
    *,
    skip_impossible: bool = False,
    quick: bool = False,
) -> None:
    """Prepares the study, installs its units and restarts the machine.

    Raises MachineError where that is impossible, before anything is written; other errors as
    :func:`..control.run_study`.
    """
    prepared = prepare(spec, directory, tools.check, skip_impossible=skip_impossible, quick=quick, is_here=True)
    typed = f"study run {quoted(spec)} --into {quoted(directory)}{' --quick' * quick}"
    permission.refuse(prepared.plan, directory, systemd, f"{typed}{' --skip-impossible' * skip_impossible} --reboot")
    run_study(
        spec,
        directory,
        tools,
        progress=progress,
        skip_impossible=skip_impossible,
        quick=quick,
        instead=_armed(directory, systemd, progress),
    )
    _restart(directory, systemd)


def resume(
    directory: Path,
    tools: Tools,
    systemd: Systemd,
    progress: Progress,
    *,
    executions: int | None = None,
    as_begun: bool = False,
) -> None:
    """Continues the study in ``directory``, or extends it, in boots of its own; otherwise as :func:`run`."""
    with Store.open(directory, write=False) as store:
        more = "" if executions is None else f" --executions {executions}"
        typed = f"study resume {quoted(directory)}{more}{' --as-begun' * as_begun} --reboot"
        permission.refuse(store.plan(), directory, systemd, typed)
    resume_study(
        directory,
        tools,
        progress=progress,
        executions=executions,
        as_begun=as_begun,
        instead=_armed(directory, systemd, progress),
    )
    _restart(directory, systemd)


def asked_by(directory: Path) -> bool:
    """Whether the study in ``directory`` restarts the machine."""
    with Store.open(directory, write=False) as store:
        return store.plan().reboots is not None


def _restart(directory: Path, systemd: Systemd) -> None:
    try:
        systemd.restart_machine()
    except MachineError as error:
        raise MachineError(
            f"{error}\nthe study in {directory} goes on at the next boot, whoever restarts the machine; to prevent it: "
            f"{sudo(permission.STOP)}"
        ) from None
    except KeyboardInterrupt:
        systemd.remove()
        raise


def _armed(directory: Path, systemd: Systemd, progress: Progress) -> Callable[[Store], None]:
    """A function that installs the units for a study's remaining runs, before the machine is restarted."""

    def arm(store: Store) -> None:
        plan = store.plan()
        number = permission.restarts(store.slots(), store.finished(), plan)
        if not number:
            raise BadInputError(
                f"all runs of {directory} are done; for more: "
                f"{resume_command(quoted(directory), {}, plan, ' --executions N')}"
            )
        progress.note(permission.told(plan, number, systemd))
        note = permission.encrypted(permission.needed_paths(plan, directory))
        if note:
            progress.note(f"warning: {note}")
        store.put_meta(STOPPED, "")
        count.write(directory, count.Count(analysed=count.analysed(directory)))
        try:
            systemd.install(unit_texts(plan, directory))
            progress.note("restarting the machine")
        except BaseException:
            # Nobody was told that the next boot would be the study's.
            with suppress(MachineError):
                systemd.remove()
            raise

    return arm


def unit_texts(plan: Plan, directory: Path) -> dict[str, str]:
    """The texts of this study's units, with the interpreter and the environment of this process."""
    assert plan.reboots is not None
    return units.texts(
        directory.resolve(),
        sys.executable,
        permission.needed_paths(plan, directory),
        plan.reboots.keep,
        {name: value for name, value in environment.inherited().items() if _is_kept(name, value)},
    )


def _is_kept(name: str, value: str) -> bool:
    return (name in _KEPT or name.startswith(_KEPT_PREFIXES)) and units.is_one_line(name + value)


def stop(systemd: Systemd) -> tuple[Path | None, bool]:
    """Stops the study: no further boot continues it. Returns its directory, and whether runs in progress were ended.

    Raises MachineError where the units cannot be removed.
    """
    directory = systemd.armed()
    if os.geteuid() != 0:
        raise MachineError("only root can change what the next boot does; run: " + sudo(permission.STOP))
    systemd.remove()
    running = directory is not None and systemd.stop_runs()
    return directory, running
