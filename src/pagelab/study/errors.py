"""Errors of studies. Each has the exit code of the command line (docs/architecture/contracts.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInputError, MachineError, PagelabError, quoted


class StudyError(BadInputError):
    """A study cannot be started or continued as requested; the message names the object and the next command."""


class NothingStartsError(StudyError):
    """No run of a session's first block could be started, so it tries no later one."""

    def __init__(self, reason: str, resume: str) -> None:
        self.reason = reason
        """Without the commands that go on."""
        super().__init__(
            f"{reason}; mend it, then continue with: {resume}; or, if study.toml has to change, start again with: "
            "pagelab study run SPEC --into ANOTHER"
        )


class TooLongError(StudyError):
    """A study does not fit the time that it was given."""

    def __init__(self, reason: str, directory: Path, more: str, in_all: str) -> None:
        self.reason = reason
        self.minutes = in_all
        """The minutes that a new study would need; ``more``: the minutes that this one still lacks. Both are written as
        ``--minutes`` takes them."""
        super().__init__(f"{reason}; go on with: pagelab study resume {quoted(directory)} --minutes {more}")


class StudyInterruptedError(PagelabError):
    """The study was asked to stop; every run that had finished is in the store."""

    exit_code = 130

    def __init__(self, message: str, stopped: str = "stopped") -> None:
        super().__init__(message)
        self.stopped = stopped
        """``stopped by SIGINT``: for commands that keep nothing, or continue in another way."""


class FullDiskError(MachineError):
    """A run could not be stored; every run that had finished is in the store."""

    def __init__(self, reason: str, kept: str, directory: Path, resume: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; {kept}; make room (see: df -h {quoted(directory)}), then continue with: {resume}")

    def without_study(self, place: Path) -> MachineError:
        """The error of a command that keeps no study; ``place``: what lies on the full disk."""
        return MachineError(
            f"{self.reason}; nothing is kept; make room (see: df -h {quoted(place)}), "
            "or name a directory on another disk: --into DIR"
        )


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a specification."""

    key: str
    message: str
    line: int | None = None


class SpecError(StudyError):
    """A study.toml that cannot be used: every problem found, with file and, where known, line."""

    def __init__(self, path: Path | str, problems: list[Problem]) -> None:
        self.path = str(path)
        self.problems = sorted(problems, key=lambda problem: problem.line or 1 << 30)
        super().__init__("\n".join(self._show(problem) for problem in self.problems))

    def without_file(self) -> str:
        """The problems of a file that pagelab wrote, for users who never saw it."""
        told = (f"{one.key}: {one.message}" if one.key else one.message for one in self.problems)
        return "; ".join(dict.fromkeys(told))

    def _show(self, problem: Problem) -> str:
        where = self.path if problem.line is None else f"{self.path}:{problem.line}"
        return f"{where}: {problem.key}: {problem.message}" if problem.key else f"{where}: {problem.message}"


class ImpossibleError(MachineError):
    """This machine cannot do some conditions of a study: which, and why."""

    def __init__(self, which: str) -> None:
        super().__init__(f"{which}; or leave these conditions out of the study with: --skip-impossible")
        self.which = which
        """The conditions and reasons alone, for commands that make a study of their own and have no such option."""
