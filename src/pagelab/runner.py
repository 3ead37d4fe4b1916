"""Runs one program under one policy: builds the request, calls ``pagelab-launch``, completes its record.

>>> from pagelab.runner import RunRequest, run
>>> record = run(RunRequest(argv=["sort", "words.txt"], policy_toml='pages = "2M"', cpus=[1]))  # doctest: +SKIP
>>> record.time.wall_ns  # doctest: +SKIP
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import launcher, machine, paths
from .contract.request import EnvChanges, Flush, Measurements, Request
from .errors import BadInputError
from .launcher import MEASURE_FD, LauncherError
from .machine.colours import colour_warnings
from .record import Record, RunWarning

_NO_VARIABLES: Mapping[str, str] = {}


class RunRequest(Request):
    """The program and its settings: a :class:`pagelab.contract.request.Request` whose nested fields have short forms.

    ``env`` (variables to set), ``unset`` and ``clear_env`` make its ``env``; ``measure_fd`` and ``measure_regex`` its
    ``measurements``; a word as ``flush``, with ``flush_files``, its ``flush``. Raises :class:`BadInputError` for an
    unknown field, and for a value of the wrong kind.
    """

    def __init__(
        self,
        *,
        argv: Sequence[str],
        env: Mapping[str, str] | EnvChanges = _NO_VARIABLES,
        unset: Sequence[str] = (),
        clear_env: bool = False,
        measure_fd: int | None = MEASURE_FD,
        measure_regex: str | None = None,
        flush: Literal["none", "files", "all"] | Flush = "none",
        flush_files: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        from pydantic import ValidationError

        try:
            if not isinstance(env, EnvChanges):
                env = EnvChanges(clear=clear_env, set=dict(env), unset=list(unset))
            if not isinstance(flush, Flush):
                flush = Flush(mode=flush, files=list(flush_files))
            measured = {"measurements": Measurements(fd=measure_fd, regex=measure_regex)}
            super().__init__(argv=list(argv), env=env, flush=flush, **{**measured, **fields})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadInputError(f"RunRequest: {where} = {first['input']!r}: {first['msg']}") from None


def run(request: Request, *, stderr: int | None = None) -> Record:
    """Runs the program and returns the record, whether or not the program succeeded.

    ``stderr``: a descriptor for a program that inherits standard error, in place of this process's. The paths of the
    library and the record, and the description of the machine, are filled in.

    Raises :class:`BadInputError` or :class:`MachineError` when the run was refused before the program started,
    and :class:`LauncherError` when pagelab itself failed. ``KeyboardInterrupt`` (or whatever else a signal
    handler raises) passes through after the launcher has ended the program and restored every setting.
    """
    described = machine.describe()
    return complete(launcher.launch(_plain(request), described, stderr=stderr), described)


def complete(written: bytes, described: dict[str, Any]) -> Record:
    """Completes the launcher's record with what it does not know: id, machine, provenance, warnings about colours.

    Raises :class:`LauncherError` for a record of another version.
    """
    import uuid

    record = _read(written)
    all_warnings = [*record.warnings, *colour_warnings.warnings(record.policy.toml, described)]
    completed = {
        "id": uuid.uuid4().hex,
        "machine": described,
        "provenance": machine.provenance(),
        "warnings": all_warnings,
    }
    return record.model_copy(update=completed)


def scarce(request: Request) -> list[RunWarning]:
    """Warnings about limits that would leave a run of this request too little room; nothing is run."""
    return [RunWarning.model_validate(warning) for warning in launcher.scarce(_plain(request))]


def document(request: Request, described: Mapping[str, Any]) -> str:
    """The request as the launcher reads it, on the machine described, without a record."""
    return launcher.document(_plain(request), described, None)


def _plain(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.model_dump_json(by_alias=True))
    return found


def _read(written: bytes) -> Record:
    from pydantic import ValidationError

    try:
        return Record.model_validate_json(written)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LauncherError(
            f"cannot read the record of {paths.launcher()} ({where}: {first['msg']}): it is of another version than"
            " this package; install both together: pip install . (from a checkout: make setup)"
        ) from None
