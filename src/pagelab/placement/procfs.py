"""Reader of ``/proc/PID``: mappings with their totals, and the name of the process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .errors import NoSuchProcessError, explained, is_alive, not_permitted

_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) *(.*)")
_KIB = re.compile(r"(\w+): +(\d+) kB$")


@dataclass(frozen=True)
class Vma:
    """One mapping as ``smaps`` shows it; ``totals`` are bytes by name (``Rss``, ``AnonHugePages`` …)."""

    start: int
    end: int
    permissions: str
    offset: int
    inode: int
    path: str
    totals: dict[str, int] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Size of the mapping's address range in bytes."""
        return self.end - self.start

    @property
    def is_hugetlb(self) -> bool:
        """Whether it is backed by the reserved huge-page pools (hugetlbfs)."""
        return "ht" in self.flags


def lines(path: str) -> list[str]:
    """The lines of a ``/proc`` file, split at newlines only; invalid UTF-8 becomes surrogates.

    Python would also split at carriage returns, form feeds, U+0085 and others. Names of files and processes may contain
    these, and the text after them would pass for a line of the kernel's. Raises :class:`OSError`.
    """
    text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def parse_smaps(lines: Iterable[str]) -> Iterator[Vma]:
    """Mappings from the lines of ``/proc/PID/smaps``, in the order of their addresses."""
    header: tuple[str, ...] | None = None
    totals: dict[str, int] = {}
    flags: frozenset[str] = frozenset()
    for line in lines:
        if match := _KIB.match(line):
            totals[match[1]] = int(match[2]) * 1024
        elif line.startswith("VmFlags:"):
            flags = frozenset(line.split()[1:])
        elif match := _HEADER.match(line):
            if header is not None:
                yield _vma(header, totals, flags)
            header, totals, flags = match.groups(), {}, frozenset()
    if header is not None:
        yield _vma(header, totals, flags)


def _vma(header: tuple[str, ...], totals: dict[str, int], flags: frozenset[str]) -> Vma:
    start, end, permissions, offset, inode, path = header
    return Vma(int(start, 16), int(end, 16), permissions, int(offset, 16), int(inode), path.strip(), totals, flags)


def mappings(pid: int, reader: str = "pagelab map") -> list[Vma]:
    """The mappings of a process. Raises the errors of :mod:`pagelab.placement.errors`, which name ``reader``."""
    _require(pid, reader)
    with explained(pid, "smaps", reader):
        found = list(parse_smaps(lines(f"/proc/{pid}/smaps")))
    if not found:
        if is_alive(pid):
            raise NoSuchProcessError(f"process {pid} has no memory of its own: it is a thread of the kernel")
        raise NoSuchProcessError(f"process {pid} has ended and waits for its parent: it has no memory any more")
    return found


def _require(pid: int, reader: str) -> None:
    if not Path(f"/proc/{pid}").exists():
        try:
            os.kill(pid, 0)
        except PermissionError as error:
            # A mount of /proc with hidepid shows only the own processes.
            raise not_permitted(f"cannot see process {pid}", pid, error, reader) from error
        except OSError:
            pass
        raise NoSuchProcessError(f"there is no process {pid}; processes are listed by: ps -e")


def command(pid: int, reader: str = "pagelab map") -> str:
    """The command line, or the kernel's name of the process if it has none."""
    with explained(pid, "the command line", reader):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        line = b" ".join(word for word in words if word).decode(errors="replace")
        return line or Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()


def executable(pid: int) -> str | None:
    """The path of the program; ``None`` if it may not be read."""
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return None


def peak_bytes(pid: int) -> int | None:
    """Peak resident bytes (VmHWM); ``None`` if the kernel does not report it."""
    return _status(pid).get("VmHWM")


def resident_bytes(pid: int) -> int | None:
    """Bytes resident now, including hugetlbfs pages; ``None`` if the kernel does not report them."""
    found = _status(pid)
    return found["VmRSS"] + found.get("HugetlbPages", 0) if "VmRSS" in found else None


def _status(pid: int) -> dict[str, int]:
    """The values of ``status`` that the kernel gives in kilobytes, in bytes."""
    try:
        status = lines(f"/proc/{pid}/status")
    except OSError:
        return {}
    parts = [line.split() for line in status if line.endswith(" kB")]
    return {name.rstrip(":"): int(count) << 10 for name, count, _unit in parts}
