"""Makes the texts of the systemd units of a study that restarts the machine, from plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

BEGIN = "pagelab-study-begin.service"
RUNS = "pagelab-study.service"
TARGET = "pagelab-study.target"
NAMES = (BEGIN, RUNS, TARGET)
WANTED_BY = "basic.target"
"""A target that every ordinary boot reaches, and that rescue and emergency mode do not reach."""
STOP_WORD = "pagelab.study=stop"
"""Word on the kernel's command line that makes a boot an ordinary one."""
_DIRECTORY = "X-Directory="


def texts(
    directory: Path, python: str, mounted: Iterable[Path], keep: Iterable[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Name -> text of each unit.

    ``python``: the interpreter that has pagelab. ``mounted``: paths whose file systems must be mounted. ``keep``: units
    that keep running beside the study. ``environment``: variables of the programs. Raises ValueError for a path with a
    line break.
    """
    mounts = " ".join(_quoted(str(path)) for path in mounted)
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in sorted(environment.items()))
    command = f"{_word(python)} -P -m pagelab.study.reboots"
    place = _word(str(directory))
    shown = _plain(str(directory))
    kept = " ".join(keep)
    return {
        BEGIN: f"""\
[Unit]
Description=The pagelab study in {shown} counts this boot and has it to itself
DefaultDependencies=no
After=sysinit.target local-fs.target
Before=basic.target shutdown.target
Conflicts=shutdown.target
IgnoreOnIsolate=yes
RequiresMountsFor={mounts}
ConditionKernelCommandLine=!{STOP_WORD}
ConditionPathExists={shown}/study.db

[Service]
Type=oneshot
TimeoutStartSec=5min
WorkingDirectory=/
StandardOutput=journal+console
StandardError=journal+console
{variables}ExecStart={command} begin {place}

[X-Pagelab]
{_DIRECTORY}{directory}
""",
        TARGET: f"""\
[Unit]
Description=The pagelab study in {shown}, alone on this machine
Requires=sysinit.target
After=sysinit.target
Conflicts=rescue.service rescue.target
Wants={RUNS} getty.target systemd-user-sessions.service {kept}
AllowIsolate=yes
""",
        RUNS: f"""\
[Unit]
Description=The pagelab study in {shown}, the runs of one boot
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target systemd-user-sessions.service {kept}
Before=shutdown.target
Conflicts=shutdown.target
RequiresMountsFor={mounts}
FailureAction=reboot

[Service]
Type=exec
WorkingDirectory=/
StandardOutput=journal+console
StandardError=journal+console
KillMode=mixed
TimeoutStopSec=5min
TasksMax=infinity
OOMPolicy=continue
{variables}ExecStart={command} runs {place}
""",
    }


def directory_in(begin: str) -> Path | None:
    """The study's directory, from the text of the unit :data:`BEGIN`."""
    found = re.search(rf"^{_DIRECTORY}(.+)$", begin, re.MULTILINE)
    return Path(found[1]) if found else None


def is_one_line(text: str) -> bool:
    """Whether systemd reads ``text`` as part of one line: a carriage return ends one as well."""
    return not any(mark in text for mark in "\n\r\0")


def _plain(text: str) -> str:
    """A path as part of a line, but not at its end, where a backslash joins the next line (systemd.unit(5))."""
    if not is_one_line(text):
        raise ValueError(f"{text!r} has a line break")
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A text as one of several words (systemd.syntax(7): quoting)."""
    return '"' + _plain(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _word(text: str) -> str:
    """A text as a word of a command line, where ``$`` also has a meaning (systemd.service(5): command lines)."""
    return _quoted(text).replace("$", "$$")
