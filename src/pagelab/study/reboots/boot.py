"""The steps of a study's boot: count it, leave the machine to the study, make its runs, restart.

pagelab-study-begin.service calls :func:`begin` before any other service has started; pagelab-study.service calls
:func:`runs`. Whatever ends either of them, the next boot finds the store and the count on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import quoted
from ..errors import NothingStartsError, StudyError, StudyInterruptedError
from ..systemd import Systemd
from . import count

if TYPE_CHECKING:
    from ..tools import Tools

Say = Callable[[str], None]


def begin(directory: Path, systemd: Systemd, say: Say) -> None:
    """Counts this boot and leaves it to the study.

    After three boots in a row that finished nothing, it ends the study's boots instead, and this boot is an ordinary
    one. Raises StudyError where the store or the count cannot be read, which ends the study's boots, and OSError where
    this boot cannot be counted, which makes it an ordinary boot.
    """
    if not systemd.is_whole():
        systemd.remove()
        return
    try:
        if not _restarts(directory):
            systemd.remove()
            say(f"the study in {directory} is another one, which restarts no machine: this boot is an ordinary one")
            return
        before = count.read(directory).after(count.analysed(directory))
    except StudyError:
        systemd.remove()
        raise
    if before.failed >= count.LIMIT:
        last = f"; the last ended with: {before.error}" if before.error else "; see them with: journalctl --list-boots"
        stop(directory, systemd, f"{before.failed} boots in a row finished no analysed execution{last}", say)
        return
    now = before.next()
    count.write(directory, now)
    say(f"boot {now.boots} of the study in {directory}; {now.analysed} analysed executions are finished")
    systemd.leave_to_study()


def runs(directory: Path, systemd: Systemd, tools: Tools, say: Say) -> None:
    """Makes the runs of this boot, and restarts the machine: into the next boot of the study, or the ordinary system.

    An error is stored in the count and raised. The unit then restarts the machine, and after three such boots
    :func:`begin` ends the study's boots.
    """
    from ..boot_session import UsedBootError
    from ..control import resume_study
    from ..progress import Lines

    if systemd.armed() != directory:
        say(f"the study in {directory} requests no boot; nothing is done")
        return
    try:
        systemd.stop_the_rest()
        say(f"services that run: {', '.join(systemd.running_services())}")
        if not _kept(directory):
            down = systemd.take_network_down()
            say(f"network: {', '.join(down)} taken down" if down else "network: nothing is up")
        resume_study(directory, tools, progress=Lines(), as_begun=True, in_boot=True)
    except UsedBootError as error:
        say(f"{error}: restarting")
    except StudyInterruptedError as error:
        say(str(error))
        return
    except NothingStartsError as error:
        stop(directory, systemd, str(error), say)
    except Exception as error:
        count.write(directory, replace(count.read(directory), error=str(error)))
        raise
    else:
        _end_if_over(directory, systemd, say)
    # A user may have stopped the study meanwhile, and then wants no restart.
    if systemd.armed() is not None or _ended(directory):
        systemd.restart_machine()


def _end_if_over(directory: Path, systemd: Systemd, say: Say) -> None:
    if _ended(directory):
        systemd.remove()
        say(f"the study is finished; see it with: pagelab report {quoted(directory)}")


def _restarts(directory: Path) -> bool:
    from ..store import Store

    with Store.open(directory, write=False) as store:
        return store.plan().reboots is not None


def _kept(directory: Path) -> list[str]:
    from ..store import Store

    with Store.open(directory, write=False) as store:
        reboots = store.plan().reboots
    return reboots.keep if reboots else []


def _ended(directory: Path) -> bool:
    """Whether every run is done, a look has ended the study, or the study was stopped."""
    from ..boot_session import STOPPED, unfinished
    from ..interim_looks import looks_of
    from ..store import Store

    with Store.open(directory, write=False) as store:
        return not unfinished(store) or looks_of(store).stopped is not None or bool(store.meta().get(STOPPED))


def stop(directory: Path, systemd: Systemd, why: str, say: Say) -> None:
    """Makes this the study's last boot, and stores the reason in the study."""
    from ..boot_session import STOPPED
    from ..store import Store

    try:
        with Store.open(directory) as store:
            store.put_meta(STOPPED, why)
    finally:
        systemd.remove()
    say(f"the study is stopped: {why}")
