"""The traces of a sweep: found by pattern, identified by their contents."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...errors import BadInputError
from ...trace.files import info


class TraceMissingError(BadInputError):
    """A trace is missing at its path, or another trace is there."""


@dataclass(frozen=True)
class TraceFile:
    """A trace as it was when the sweep was planned."""

    name: str
    path: str
    sha256: str
    size_bytes: int
    mtime_ns: int
    page_bytes: int | None
    """Of its page runs; None where it has every reference."""

    def verify(self) -> None:
        """Raises :class:`TraceMissingError` unless the same trace is at the same path on this machine now."""
        try:
            found = Path(self.path).stat()
            if (found.st_size, found.st_mtime_ns) == (self.size_bytes, self.mtime_ns):
                return
            # Copies have the contents, and times of their own.
            same = found.st_size == self.size_bytes and self.sha256 == _digest(self.path, found.st_mtime_ns)
        except OSError as error:
            raise TraceMissingError(
                f"cannot read the trace {self.path}: {error.strerror} (errno {error.errno})"
            ) from None
        if not same:
            raise TraceMissingError(f"the trace {self.path} is not the one that the sweep was planned with")


Known = Mapping[tuple[str, int, int], str]
"""Path, size and time of traces → SHA-256, from an earlier plan."""


def find(patterns: Sequence[str], base: Path) -> list[Path]:
    """The files that the patterns name, relative to ``base``, each once. Raises :class:`BadInputError`."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        # Path.glob refuses absolute patterns.
        found_here = glob.glob(pattern, root_dir=base, recursive=True)  # noqa: PTH207
        matches = sorted(found_here) if glob.has_magic(pattern) else [pattern]
        files = [path for path in (Path(base, match).absolute() for match in matches) if not path.is_dir()]
        if not files:
            raise BadInputError(f"{pattern}: no such file in {base.absolute()}; capture a trace with: pagelab trace")
        found |= dict.fromkeys(files)
    return list(found)


def read(paths: Iterable[Path], known: Known) -> dict[Path, TraceFile]:
    """Headers and digests. Raises :class:`BadInputError` for a file that is no trace, torn, or a sample."""
    paths = list(dict.fromkeys(paths))
    return {path: _read(path, name, known) for path, name in zip(paths, _names(paths), strict=True)}


def _names(paths: Sequence[Path]) -> list[str]:
    """File names without suffix, each with as many of its directories as make all names different."""
    names = [path.with_suffix("") for path in paths]
    for depth in range(1, max((len(name.parts) for name in names), default=1) + 1):
        short = ["/".join(name.parts[-depth:]) for name in names]
        if len(set(short)) == len(short):
            return short
    return [str(path) for path in paths]


def _read(path: Path, name: str, known: Known) -> TraceFile:
    try:
        found = path.stat()
    except OSError as error:
        raise BadInputError(f"cannot read the trace {path}: {error.strerror} (errno {error.errno})") from None
    about = info(path)
    header = about["header"]
    if not about["complete"]:
        raise BadInputError(
            f"trace {path} is torn, or bytes follow its end; save what is whole: "
            f"pagelab trace convert --recover {path} NEW"
        )
    if header.get("sampling") is not None:
        raise BadInputError(f"trace {path} is a sample, and simulations need every reference")
    key = (str(path), found.st_size, found.st_mtime_ns)
    digest = known.get(key) or _digest(str(path), found.st_mtime_ns)
    page_bytes = None if header["content"] == "references" else 1 << int(header["page_bits"])
    return TraceFile(name, str(path), digest, found.st_size, found.st_mtime_ns, page_bytes)


@lru_cache(maxsize=1024)
def _digest(path: str, _mtime_ns: int) -> str:
    """SHA-256 of the file; kept for as long as the process lives and the file's time stays."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
