"""A directory for one command alone: of two that start together, neither works in the other's or removes it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from ..errors import another_would_do, system_reason
from .errors import StudyError


@dataclass(frozen=True)
class Claimed:
    """A directory that was empty or absent, and in which no other command will work."""

    path: Path
    existed: bool
    """Whether it was there before this command."""

    def clear(self) -> None:
        """Removes all that the command wrote, and the directory unless it had been there before."""
        with suppress(OSError):
            for each in self.path.iterdir():
                if each.is_dir() and not each.is_symlink():
                    rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)
            if not self.existed:
                self.path.rmdir()


def claim(directory: Path, first: str, *, new: bool = False) -> Claimed | None:
    """Makes ``directory`` and the folder ``first`` in it: the directory belongs to the command that could make that.

    None where the directory is not empty, is a file, or belongs to another command; with ``new`` also where it existed.
    Raises StudyError where it cannot be made.
    """
    existed = directory.exists()
    if existed and (new or not directory.is_dir()):
        return None
    try:
        directory.mkdir(parents=True, exist_ok=not new)
        if any(directory.iterdir()):
            return None
        (directory / first).mkdir()
    except FileExistsError:  # another command was faster
        return None
    except OSError as error:
        raise another_would_do(StudyError(f"cannot make {directory}: {system_reason(error)}")) from None
    return Claimed(directory, existed)
