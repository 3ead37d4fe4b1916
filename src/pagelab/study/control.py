"""Starting and continuing a study: what ``pagelab study run`` and ``resume`` do, as functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..record import RunWarning
from . import programs
from .errors import StudyError
from .job import Runner
from .lock import DirectoryLock
from .plan import Plan, digest_of
from .prepare import SPEC_COPY, Check, Prepared, create, prepare
from .progress import Progress, Silent
from .session import Finished, Session
from .store import NAME, Store


@dataclass(frozen=True)
class Tools:
    """What a session needs of the outside world; tests give their own."""

    runner: Runner
    check: Check
    machine: Callable[[], dict[str, Any]]
    """The machine as it is now, plain data (``{"machine": …, "provenance": …}``)."""
    noise: Callable[[], RunWarning | None] = lambda: None
    """A warning where the machine is not quiet enough for small effects."""
    limits: Callable[[Plan], list[RunWarning]] = lambda _plan: []
    """Limits in force that leave programs little room for what the policies take besides; each record has its own."""


def run_study(
    spec: Path,
    directory: Path,
    tools: Tools,
    *,
    progress: Progress | None = None,
    skip_impossible: bool = False,
    quick: bool = False,
    change: Callable[[Prepared], Prepared] | None = None,
) -> Finished:
    """Plans ``spec``, creates ``directory`` and runs to the end.

    ``change`` may alter the plan before anything is stored. Raises the errors of :func:`pagelab.study.prepare.prepare`,
    StudyError when the directory is in use or holds a study, StudyInterruptedError when stopped.
    """
    progress = progress or Silent()
    prepared = prepare(spec, directory, tools.check, skip_impossible=skip_impossible, quick=quick)
    prepared = change(prepared) if change else prepared
    absent = programs.missing(prepared.plan)
    if absent:
        raise StudyError("\n".join(absent))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"cannot make {directory}: {error.strerror}; choose another with: --into DIR") from None
    with DirectoryLock(directory):
        machine = tools.machine()
        extra = {"programs": programs.fingerprints(prepared.plan), "machine": machine}
        with create(prepared, directory, extra) as store:
            for note in prepared.notes:
                progress.note(note)
            for warning in [*prepared.warnings, *tools.limits(prepared.plan)]:
                progress.note(f"warning: {warning.message}")
            return Session(store, directory, tools.runner, machine, progress).work(tools.noise())


def resume_study(directory: Path, tools: Tools, *, progress: Progress | None = None) -> Finished:
    """Continues the study in ``directory`` at the run that was in progress.

    Raises StudyError where there is no study, where it is in use, or where what it measures has changed since.
    """
    if not (directory / NAME).exists():
        Store.open(directory)
    with DirectoryLock(directory), Store.open(directory) as store:
        meta = store.meta()
        if "origin" in meta:
            raise StudyError(f"{directory} was imported from {meta['origin']}; there is nothing to continue")
        _refuse_changes(directory, store.plan(), meta)
        for warning in tools.limits(store.plan()):
            (progress or Silent()).note(f"warning: {warning.message}")
        return Session(store, directory, tools.runner, tools.machine(), progress).work(tools.noise())


def _refuse_changes(directory: Path, plan: Plan, meta: dict[str, str]) -> None:
    """A study whose text, policies or programs changed is another study."""
    advice = "put it back, or start a new study with: pagelab study run SPEC --into DIR"
    copy = directory / SPEC_COPY
    found = {path: _sha256(Path(path)) for path in plan.inputs}
    for path, digest in plan.inputs.items():
        if found[path] != digest:
            raise StudyError(f"{path} has changed since the study began; {advice}")
    try:
        text = copy.read_bytes()
    except OSError as error:
        raise StudyError(f"cannot read {copy}: {error.strerror}; {advice}") from None
    files = [f"{path}\0{digest}".encode() for path, digest in sorted(plan.inputs.items())]
    if digest_of([text, *files]) != plan.digest:
        raise StudyError(f"{copy} has changed since the study began; {advice}")
    others = programs.changed(json.loads(meta.get("programs", "{}")))
    if others:
        raise StudyError(f"the measured program {others[0]} has changed since the study began; {advice}")


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
