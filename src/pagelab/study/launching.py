"""Makes the runs of a study on this machine, through :mod:`pagelab.runner`."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from .. import foreign_files, machine
from ..errors import BadInputError, MachineError, PagelabError, quoted, system_reason
from ..launcher import end_running
from ..paths import launcher
from ..record import Record, RunWarning, WarningKind
from ..runner import run, scarce
from .feasible import cannot
from .job import RunNotStarted
from .plan import Condition, Plan
from .primary import is_disturbed, may_wait
from .tools import Tools

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TABLE_S = 20.0
"""How long the launcher may take to tell its events."""


class LocalRunner:
    """Runs one condition once on this machine."""

    def run(self, condition: Condition, stderr: Path) -> Record:
        try:
            if not condition.keeps_stderr:
                return run(condition.request)
            with _error_output(stderr) as descriptor:
                return run(condition.asking(stderr="inherit").request, stderr=descriptor)
        except (BadInputError, MachineError) as error:
            # The launcher refused this run alone (a device is gone, a pool is empty): it is recorded, and others go on.
            raise RunNotStarted(str(error)) from error

    def give_up(self) -> None:
        """Ends the runs in progress in all threads."""
        end_running()


@contextmanager
def _error_output(path: Path) -> Iterator[int]:
    """A descriptor of a new file at ``path``.

    It is opened with this process's rights: the program may run as a user who can open nothing in the study.
    """
    try:
        directory = foreign_files.open_directory(path.parent)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=directory)
            opened = os.open(path.name, _NEW, 0o644, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise MachineError(
            f"cannot make {path} for the program's error output: {system_reason(error)}; run: ls -ld "
            f"{quoted(path.parent)}"
        ) from None
    try:
        yield opened
    finally:
        os.close(opened)


def describe_machine() -> dict[str, Any]:
    """The machine as a session finds it, as plain data."""
    return {"machine": machine.describe(), "provenance": machine.provenance()}


NOISE = ("the machine was not quiet", "the machine was almost quiet")
"""Beginnings of the messages of :func:`noise_now`."""


def tells_noise(text: str) -> bool:
    """Whether ``text`` is a message of :func:`noise_now`, or such a message as a sentence of a report."""
    return text.lower().startswith(NOISE)


def noise_now(plan: Plan, *, by_option: bool = False) -> RunWarning | None:
    """Measures the machine's noise briefly, before a session's first run; a warning where it can disturb the compared
    metrics. ``by_option``: the command has ``--metric``, and no study.toml that its user could edit.
    """
    from ..machine import noise
    from ..machine.sysfs import Tree

    if not any(is_disturbed(condition.metric) for condition in plan.active()):
        return None
    found = noise.measure(Tree())
    wall = any(may_wait(condition.metric) for condition in plan.active())
    how = noise.BY_OPTION if by_option else noise.IN_A_STUDY
    verdict = noise.judge(found, wall=wall, how=how)
    if verdict.quiet:
        return None
    much = any(one.much for one in verdict.disturbances)
    told = "; ".join(one.text for one in verdict.disturbances)
    # The load of other programs takes no processor time away, so the machine may be quiet and busy.
    for_what = "" if wall else " for processor time"
    return RunWarning(
        kind=WarningKind.NOISY_MACHINE,
        severity="warning" if much else "info",
        message=f"{NOISE[0 if much else 1]}{for_what} when the session began: {told}; {verdict.disturbances[0].advice}",
        data={**asdict(found), "load": verdict.load, "disturbed_by": [one.what for one in verdict.disturbances]},
    )


def limits_now(plan: Plan) -> list[RunWarning]:
    """Warnings of limits too tight for a policy of the plan; each limit once, for the policy that needs most."""
    policies = {(condition.request.policy_toml, condition.request.preload): condition for condition in plan.active()}
    worst: dict[str, RunWarning] = {}
    for condition in policies.values():
        for warning in scarce(condition.request):
            name = str(warning.data["resource"])
            if name not in worst or worst[name].data["adds"] < warning.data["adds"]:
                worst[name] = warning
    return list(worst.values())


def colours_now(plan: Plan) -> str | None:
    """Measures and stores whether frame numbers decide places in this machine's caches; returns a message or None.

    It measures where the plan places frames and this boot has no verdict yet; without one, a policy of frames cannot be
    judged.
    """
    from ..machine.colours.colour_warnings import governs_frames, sentence
    from ..machine.colours.store import store
    from ..machine.probe_colours import probe

    if not any(governs_frames(condition.request.policy_toml) for condition in plan.active()):
        return None
    if machine.describe()["colour_verdict"] is not None:
        return None
    try:
        store(probe())
    except PagelabError as error:
        return f"warning: whether frame numbers reach this machine's caches was not measured: {error}"
    found = machine.describe()["colour_verdict"]
    return None if found is None else sentence(found)


def has_event(name: str) -> bool:
    """Whether the launcher's table of events has this one for this processor; False if it does not answer."""
    try:
        done = subprocess.run([str(launcher()), "--counters"], capture_output=True, timeout=_TABLE_S, check=True)
        return any(row["role"] == name for row in json.loads(done.stdout)["events"])
    except (OSError, subprocess.SubprocessError, ValueError):
        return False


def local_tools(*, by_option: bool = False) -> Tools:
    """The :class:`Tools` of a session on this machine; ``by_option`` as in :func:`noise_now`."""
    described = machine.describe()
    return Tools(
        LocalRunner(),
        lambda condition: cannot(condition, described),
        describe_machine,
        partial(noise_now, by_option=by_option),
        limits_now,
        colours_now,
        has_event,
    )
