"""Writes a report completely or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pagelab.analysis import Analysis, StudyData, analyse
from pagelab.errors import BadInputError, MachineError, quoted, system_reason
from pagelab.foreign_files import PrivateDirectory, open_directory, open_file

FORMATS = ("html", "svg", "png", "data")
"""Formats of a report; ``data`` means CSV, Parquet and JSON."""
_ENDINGS = {
    "html": (".html",),
    "svg": (".svg",),
    "png": (".png",),
    "data": (".csv", ".parquet", ".json", ".jsonl"),
}
"""Format → endings of its files."""
_MARK = ".pagelab-report"
"""A file in every report, by which a directory is known as a report that may be replaced."""


class _ExchangedError(OSError):
    """While a report was built, another one, or something else, took the name that it was to have."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ESTALE, "another process changed it meanwhile", name)


@dataclass(frozen=True)
class Written:
    """The written files."""

    directory: Path
    page: Path | None
    analysis: Analysis


def write_report(data: StudyData, out: Path, formats: tuple[str, ...] = FORMATS) -> Written:
    """Analyses *data* and puts the report into the directory *out*, replacing an older report there.

    Files of an older report stay where they belong to formats that are not written.
    Everything is built in a temporary directory beside *out* and renamed, so that *out* never holds half a report. The
    directory around *out* may be another user's: names there are not trusted, only descriptors.
    Raises `BadInputError` where *out* exists and is not a report of the caller.
    """
    place = out.absolute()
    if os.path.isdir(place.parent):  # noqa: PTH112 - false where it may not be looked at
        with _opened(place.parent, out) as parent, _older(parent, place.name, out):
            pass
    analysis = analyse(data)
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
    with (
        _opened(place.parent, out) as parent,
        _older(parent, place.name, out) as older,
        _new(parent, place.name, out) as building,
    ):
        try:
            if older is not None:
                _keep(older, building.path, formats)
            _build(building.path, analysis, data, formats)
            os.fchmod(building.descriptor, 0o755 & ~_umask())
            _swap(parent, building, place.name, older)
        except _ExchangedError:
            building.remove()
            raise MachineError(
                f"cannot write a report to {out}: another process changed it meanwhile, perhaps another report of the "
                "same study; what is there is kept; try again, or choose a place with --out"
            ) from None
        except OSError as error:
            building.remove()
            kept = "the existing report is kept; " if out.exists() else ""
            file = str(error.filename or building.path).replace(
                f"{building.path}", f"{place.parent / building.name}", 1
            )
            raise MachineError(
                f"cannot write a report to {out}: {file}: {system_reason(error)}; "
                f"{kept}make room, or choose a place with --out; run: df -h {quoted(place.parent)}"
            ) from None
        except BaseException:
            building.remove()
            raise
    return Written(out, out / "index.html" if "html" in formats else None, analysis)


def _no_place(out: Path, error: OSError) -> BadInputError:
    return BadInputError(
        f"cannot write a report to {out}: {error.strerror} (errno {error.errno}); choose a place with --out"
    )


@contextmanager
def _opened(directory: Path, out: Path) -> Iterator[int]:
    try:
        descriptor = open_directory(directory)
    except OSError as error:
        raise _no_place(out, error) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _new(parent: int, name: str, out: Path) -> Iterator[PrivateDirectory]:
    try:
        directory = PrivateDirectory(parent, f".{name}-")
    except OSError as error:
        raise _no_place(out, error) from None
    try:
        yield directory
    finally:
        directory.close()


@contextmanager
def _older(parent: int, name: str, out: Path) -> Iterator[int | None]:
    """A descriptor of the caller's report that is there, or of an empty directory; None: nothing is there."""
    cannot = f"cannot write a report to {out}"
    if not name:
        raise BadInputError(f"{cannot}: it holds other files; name a new directory with --out")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        older = os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        yield None
        return
    except NotADirectoryError:
        raise BadInputError(f"{cannot}: it is a file or a link; name a directory with --out") from None
    except OSError as error:
        raise _no_place(out, error) from None
    try:
        if os.fstat(older).st_uid != os.geteuid():
            raise BadInputError(f"{cannot}: it belongs to another user; name a new directory with --out")
        names = os.listdir(older)  # noqa: PTH208 - of a descriptor
        if names and _MARK not in names:
            raise BadInputError(f"{cannot}: it holds other files; name a new directory with --out")
        yield older
    finally:
        os.close(older)


def _keep(older: int, building: Path, formats: tuple[str, ...]) -> None:
    """Copies the files of an older report that belong to formats that are not written."""
    endings = [ending for format_ in FORMATS if format_ not in formats for ending in _ENDINGS[format_]]
    for below, _, names, directory in os.fwalk(dir_fd=older, follow_symlinks=False):
        for name in sorted(names):
            if Path(name).suffix not in endings or not stat.S_ISREG(os.lstat(name, dir_fd=directory).st_mode):
                continue
            kept = building / below / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            with open_file(name, directory) as source, kept.open("xb") as copy:
                shutil.copyfileobj(source, copy)
                state = os.fstat(source.fileno())
                os.fchmod(copy.fileno(), stat.S_IMODE(state.st_mode) & 0o777)
            os.utime(kept, ns=(state.st_atime_ns, state.st_mtime_ns))


def _build(directory: Path, analysis: Analysis, data: StudyData, formats: tuple[str, ...]) -> None:
    from pagelab.analysis.following import following_of
    from pagelab.report import export, page
    from pagelab.report.shell import beside, download

    (directory / _MARK).write_text(f"{analysis.created_by}\n", encoding="utf-8")
    if "data" in formats:
        export.write_tables(directory, analysis, data)
    images = tuple(f for f in formats if f in ("svg", "png"))
    if images:
        export.write_plots(directory, analysis, images)
    if "html" in formats:
        is_there = "data" in formats
        downloads = [
            download(f"{name}.csv", frame.write_csv().encode(), "text/csv", _NOTES[name])
            if frame.height <= _MOST_ROWS
            else beside(f"{name}.csv", _NOTES[name], is_there=is_there)
            for name, frame in export.frames(analysis, data).items()
            if frame.height
        ]
        text = export.analysis_json(analysis).encode()
        downloads.append(download("analysis.json", text, "application/json", "the contents of this page"))
        note = "the records, one a line"
        if data.record_lines.bytes > _MOST_RECORD_BYTES:
            downloads.append(beside("records.jsonl", note, is_there=is_there))
        elif data.record_lines.bytes:
            lines = export.records_jsonl(data).encode()
            downloads.append(download("records.jsonl", lines, "application/jsonl", note))
        (directory / "index.html").write_text(
            page.render(analysis, downloads, following_of(analysis, data)), encoding="utf-8"
        )


_MOST_ROWS = 200_000
_MOST_RECORD_BYTES = 32 << 20
"""Most bytes of records in a page: more would be too large even compressed, and would take long to compress."""
_NOTES = {
    "runs": "one row an execution",
    "measurements": "one row a measurement inside an execution",
    "contrasts": "one row a comparison, with shift, intervals and p",
    "set": "one row a policy and quantity: the answer over all programs",
    "set_programs": "one row a program and policy: its part of the set",
}


def _swap(parent: int, new: PrivateDirectory, name: str, older: int | None) -> None:
    """Gives *new* the report's name; the older report is removed last."""
    if older is None:
        try:
            os.rename(new.name, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise _ExchangedError(name) from None
            raise
        return
    aside = PrivateDirectory(parent, f".{name}-old-")
    try:
        os.rename(name, "report", src_dir_fd=parent, dst_dir_fd=aside.descriptor)
        moved = os.stat("report", dir_fd=aside.descriptor, follow_symlinks=False)
        if not os.path.samestat(moved, os.fstat(older)):
            os.rename("report", name, src_dir_fd=aside.descriptor, dst_dir_fd=parent)
            raise _ExchangedError(name)
        os.rename(new.name, name, src_dir_fd=parent, dst_dir_fd=parent)
        aside.remove()
    except BaseException:
        with suppress(OSError):
            os.rmdir(aside.name, dir_fd=parent)
        raise
    finally:
        aside.close()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
