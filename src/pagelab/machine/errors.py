"""Errors of this package; each carries the exit code that ``docs/architecture.md`` gives it."""

from __future__ import annotations


class DoctorError(RuntimeError):
    """Something the user is told, with the next command to type."""

    exit_code = 4


class BadSettingError(DoctorError):
    """A key or value that does not exist; the message lists the allowed ones."""

    exit_code = 2


class MachineError(DoctorError):
    """The machine, or the rights of this process, do not allow it."""

    exit_code = 3
