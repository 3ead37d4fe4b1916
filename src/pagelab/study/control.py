"""Starts and continues a study: the functions of ``pagelab study run`` and ``resume``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import whole_file
from ..errors import another_would_do, quoted, system_reason
from . import programs
from .boot_session import BootSession
from .budget import add_minutes
from .cluster import ClusterSession, refuse_unfit
from .edited import between, refuse_edited, told
from .errors import StudyError
from .extend import add_executions
from .lock import DirectoryLock
from .plan import Plan, digest_of
from .prepare import SPEC_COPY, Prepared, check_destination, create, prepare
from .progress import Progress, Silent, as_note
from .resuming import ADDRESS, MARK, repeat_unstarted, resume_command, sudo
from .session import Finished, Session
from .store import NAME, Store
from .tools import Tools


def run_study(
    spec: Path,
    directory: Path,
    tools: Tools,
    *,
    progress: Progress | None = None,
    skip_impossible: bool = False,
    quick: bool = False,
    minutes: float | None = None,
    cluster: str | None = None,
    change: Callable[[Prepared], Prepared] | None = None,
    instead: Callable[[Store], None] | None = None,
) -> Finished:
    """Plans ``spec``, creates ``directory`` and runs the study to its end.

    With ``minutes`` the study makes as many executions as fit (:mod:`pagelab.study.budget`). ``change`` may alter the
    plan before anything is stored. ``cluster``: the address of a Dask scheduler, or a number of workers here, on whose
    hosts the blocks are run (:mod:`pagelab.study.cluster`). ``instead`` is called with the store in place of the runs,
    which other boots make later (:mod:`pagelab.study.reboots`).

    Raises the errors of :func:`pagelab.study.prepare.prepare`, StudyError when the directory is in use or holds a
    study, StudyInterruptedError when stopped.
    """
    progress = progress or Silent()
    # On a cluster, each host checks for itself.
    check = tools.check if cluster is None else lambda _condition: None
    prepared = prepare(
        spec,
        directory,
        check,
        skip_impossible=skip_impossible,
        quick=quick,
        minutes=minutes,
        is_here=cluster is None,
    )
    prepared = change(prepared) if change else prepared
    if cluster is not None:
        refuse_unfit(prepared.plan)
    if instead is None:
        refuse_restarts(prepared.plan, f"study run {quoted(spec)} --into {quoted(directory)}{' --quick' * quick}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise another_would_do(StudyError(f"cannot make {directory}: {system_reason(error)}")) from None
    with DirectoryLock(directory):
        _refuse_another(prepared, directory)
        check_destination(directory, prepared.text)
        told = None if cluster else tools.colours(prepared.plan)
        notes = [*prepared.notes, *([told] if told else [])]
        machine = tools.machine()
        extra: dict[str, Any] = {"programs": programs.fingerprints(prepared.plan), "machine": machine}
        if cluster is not None:
            extra |= {MARK: "1", ADDRESS: cluster}
        with create(prepared, directory, extra) as store:
            for note in notes:
                progress.note(note)
            for warning in [*prepared.warnings, *([] if cluster else tools.limits(prepared.plan))]:
                progress.note(as_note(warning))
            return _work(store, directory, tools, machine, progress, cluster, instead=instead)


def _work(
    store: Store,
    directory: Path,
    tools: Tools,
    machine: dict[str, Any],
    progress: Progress | None,
    cluster: str | None,
    *,
    instead: Callable[[Store], None] | None = None,
    again: bool = False,
) -> Finished:
    if cluster is not None:
        return ClusterSession(store, directory, tools.runner, machine, progress, cluster).work()
    if instead is not None:
        instead(store)
        return Finished(len(store.finished()), 0, None)
    if store.plan().reboots is not None:
        return BootSession(store, directory, tools, machine, progress).work()
    # A study that begins was checked as a whole.
    session = Session(store, directory, tools.runner, machine, progress, tools.check if again else None)
    return session.work(tools.noise(store.plan()))


def refuse_restarts(plan: Plan, command: str) -> None:
    """Refuses a study that restarts the machine, and names pagelab's ``command`` by which a user agrees to that."""
    if plan.reboots is not None:
        raise StudyError(
            f'{plan.name} has between = "reboot": it restarts this machine, which needs your consent; to give it: '
            f"{sudo(command)} --reboot"
        )


def _refuse_other_place(directory: Path, meta: dict[str, str], plan: Plan, cluster: str | None) -> None:
    """Refuses to continue a study of a cluster without one, or the reverse: blocks belong to their hosts."""
    if MARK in meta and cluster is None:
        raise StudyError(
            f"{directory} runs on a cluster, and its blocks belong to their hosts; continue it with: "
            f"{resume_command(quoted(directory), meta, plan)}"
        )
    if MARK not in meta and cluster is not None:
        raise StudyError(
            f"{directory} was begun on one machine, without --cluster; continue it there with: "
            f"{resume_command(quoted(directory), meta, plan)}; or start anew: pagelab study run SPEC --into ANOTHER "
            f"--cluster {cluster}"
        )


def _refuse_another(prepared: Prepared, directory: Path) -> None:
    """Refuses a directory that holds another study, and lists the differences of the two texts."""
    if not (directory / NAME).exists():
        return
    with Store.open(directory, write=False) as store:
        meta, plan = store.meta(), store.plan()
        found = between(meta.get("spec", ""), prepared.text)
    if found:
        raise StudyError(
            f"{directory} already holds a study, which began with another file ({told(found)}); "
            f"{prepared.source.name} as it is now: pagelab study run {quoted(prepared.source)} --into ANOTHER; "
            f"continue it with its original file: {resume_command(quoted(directory), meta, plan, ' --as-begun')}"
        )


def resume_study(
    directory: Path,
    tools: Tools,
    *,
    progress: Progress | None = None,
    executions: int | None = None,
    minutes: float | None = None,
    as_begun: bool = False,
    cluster: str | None = None,
    instead: Callable[[Store], None] | None = None,
    in_boot: bool = False,
) -> Finished:
    """Continues the study in ``directory`` at the run that was in progress.

    ``executions`` (of each condition, in all) or ``minutes`` (more) extend the study first. If the study had ended
    before, its new result is a further look, judged at half of the error rate of the look before (docs/method: adding
    executions). ``as_begun``: continues even where the file from which the study was begun has changed since.

    ``in_boot``: this boot belongs to the study, and only the runs of this boot are made (:mod:`pagelab.study.reboots`).
    ``instead`` is called in place of the runs.

    Raises StudyError where there is no study, where it is in use, or where the measured programs or files have changed.
    """
    if not (directory / NAME).exists():
        Store.open(directory)
    with DirectoryLock(directory), Store.open(directory) as store:
        meta = store.meta()
        if "origin" in meta:
            raise StudyError(
                f"{directory} was imported from {meta['origin']}; there is nothing to continue; see it with: "
                f"pagelab report {quoted(directory)}"
            )
        _refuse_other_place(directory, meta, store.plan(), cluster)
        if instead is None and not in_boot:
            more = "" if executions is None else f" --executions {executions}"
            refuse_restarts(store.plan(), f"study resume {quoted(directory)}{more}{' --as-begun' * as_begun}")
        if cluster is not None and minutes is not None:
            raise StudyError("--cluster and --minutes exclude each other: hosts differ in pace; use --executions N")
        _refuse_changes(directory, store.plan(), meta, as_begun=as_begun)
        if not as_begun:
            refuse_edited(directory, meta, executions, minutes, plan=store.plan())
        repeat_unstarted(store)
        if cluster is not None:
            store.put_meta(ADDRESS, cluster)
        if executions is not None:
            add_executions(store, executions)
        if minutes is not None:
            add_minutes(store, minutes)
        for warning in [] if cluster else tools.limits(store.plan()):
            (progress or Silent()).note(as_note(warning))
        return _work(store, directory, tools, tools.machine(), progress, cluster, instead=instead, again=True)


def _refuse_changes(directory: Path, plan: Plan, meta: dict[str, str], *, as_begun: bool) -> None:
    """Refuses a study whose text, policies or programs have changed: it would be another study.

    ``as_begun``: where only the study's copy of study.toml has changed, the copy is restored from the store.
    """
    advice = "put it back, or start a new study with: pagelab study run SPEC --into DIR"
    copy = directory / SPEC_COPY
    for path, digest in plan.inputs.items():
        if _sha256(Path(path)) != digest and not _moved_along(Path(path), digest, directory):
            raise StudyError(f"{path} has changed since the study began; {advice}")
    files = [f"{path}\0{digest}".encode() for path, digest in sorted(plan.inputs.items())]
    try:
        # As the file was read when the study began: whatever ends its lines.
        text = copy.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    except OSError as error:
        text, state = b"", f"cannot read {copy}: {error.strerror}"
    else:
        state = f"{copy} has changed since the study began"
    if digest_of([text, *files]) != plan.digest:
        spec = meta.get("spec", "")
        if digest_of([spec.encode(), *files]) != plan.digest:
            raise StudyError(f"{state}; {advice}")
        if not as_begun:
            raise StudyError(
                f"{state}; with that file as it was: {resume_command(quoted(directory), meta, plan, ' --as-begun')}; "
                f"as another study: pagelab study run {quoted(copy) if text else 'SPEC'} --into ANOTHER"
            )
        whole_file.put(copy, spec)
    others = programs.changed(json.loads(meta.get("programs", "{}")))
    if others:
        raise StudyError(f"the measured program {others[0]} has changed since the study began; {advice}")


def _moved_along(path: Path, digest: str, directory: Path) -> bool:
    """Whether a file that is no longer there came along with the study's directory, which was renamed or moved."""
    if path.exists():
        return False
    below = (directory.joinpath(*path.parts[first:]) for first in range(1, len(path.parts)))
    return any(_sha256(each) == digest for each in below)


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
