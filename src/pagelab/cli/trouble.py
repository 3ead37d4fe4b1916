"""Unforeseen errors in one line that names the operation, the object and the errno.

A full disk, a directory that somebody removed, a database on a medium that fails: they may strike anywhere, so they are
told here, once, rather than in each place that opens a file.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from pagelab import terminal
from pagelab.errors import is_of_medium, next_step

SHOW_ALL = "PAGELAB_TRACEBACK"
"""Variable with which all of an error is shown."""
_BAD_INPUT, _MACHINE, _OWN = 2, 3, 4
_SQLITE = {"database or disk is full": errno.ENOSPC, "disk I/O error": errno.EIO, "readonly": errno.EROFS}


def reporting(work: Callable[[], None]) -> None:
    """Does the work; an unforeseen failure ends with a line and an exit code, not with a traceback."""
    try:
        work()
    except Exception as error:
        if os.environ.get(SHOW_ALL):
            raise
        message, code = explain(error)
        terminal.say(f"pagelab: {message}\n")
        sys.exit(code)


def explain(error: BaseException) -> tuple[str, int]:
    """The error's line, and its exit code."""
    for one in _chain(error):
        if isinstance(one, OSError) and one.errno is not None:
            return _system(one), _MACHINE if is_of_medium(one) else _BAD_INPUT
        if type(one).__module__ == "sqlite3":
            return _database(str(one)), _MACHINE
        if _is_lost_cluster(one):
            return (
                f"the Dask scheduler does not answer ({_first_line(one)}); finished tasks are kept; "
                "start it, and run the same command again",
                _MACHINE,
            )
    if isinstance(error, MemoryError):
        return "there is not enough memory; run: free -h; ulimit -v", _MACHINE
    return _own(error), _OWN


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, outermost first."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None and cause not in found:
        found.append(cause)
    return found


def _system(error: OSError) -> str:
    if not _is_somewhere():
        return "the working directory was removed: No such file or directory (errno 2); go to another one; run: cd"
    names = [str(name) for name in (error.filename, error.filename2) if name is not None] or _in_hand(error)
    place = _nearest_directory(names[-1]) if names else "."
    number = error.errno or 0
    object_ = " and ".join(names) or "a file"
    reason = error.strerror or os.strerror(number)
    advice = next_step(error, place)
    if number == errno.ENOENT and names and not Path(names[-1]).parent.exists():
        advice = f"there is no directory {Path(names[-1]).parent}; run: ls -ld {shlex.quote(place)}"
    return f"cannot read or write {object_}: {reason} (errno {number}); {advice}"


def _is_somewhere() -> bool:
    """Whether the working directory still exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _in_hand(error: BaseException) -> list[str]:
    """The file that the failed call was writing. The error of a write has no file name, so the frames are searched.

    The innermost frame counts that has an open file, or is a method of a path.
    """
    import traceback

    for frame in reversed([frame for frame, _ in traceback.walk_tb(error.__traceback__)]):
        held = frame.f_locals
        for one in (held.get("self"), *held.values()):
            if one is sys.stdout:
                return ["standard output"]
            name = getattr(one, "name", None)
            if isinstance(one, io.IOBase) and isinstance(name, str):
                return [_shortest(name)]
        if isinstance(held.get("self"), Path):
            return [_shortest(str(held["self"]))]
    return []


def _shortest(name: str) -> str:
    """The path, relative to the working directory if it lies below that."""
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else name


def _nearest_directory(name: str) -> str:
    path = Path(name)
    return str(next((one for one in (path, *path.parents) if one.exists()), Path()))


def _database(text: str) -> str:
    number = next((number for said, number in _SQLITE.items() if said in text), None)
    reason = f"{os.strerror(number)} (errno {number})" if number else text
    advice = next_step(OSError(number or errno.ENOENT, text), ".")
    if "locked" in text:
        advice = "to see which process holds it, run: lslocks"
    return f"cannot read or write the study's database study.db: {reason}; finished runs are kept; {advice}"


def _is_lost_cluster(error: BaseException) -> bool:
    return type(error).__module__.startswith("distributed") or type(error).__name__ in (
        "CommClosedError",
        "CancelledError",
    )


def _own(error: BaseException) -> str:
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1] if error.__traceback__ else None
    where = f" ({Path(frame.filename).name}:{frame.lineno})" if frame else ""
    return (
        f"{type(error).__name__}: {_first_line(error)}{where}: a fault of pagelab itself; "
        f"all of it is shown by: {SHOW_ALL}=1 pagelab …"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no details").splitlines()[0][:300]
