"""Writes a report completely or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pagelab.analysis import Analysis, StudyData, analyse
from pagelab.errors import BadInputError, MachineError, quoted, system_reason

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


@dataclass(frozen=True)
class Written:
    """The written files."""

    directory: Path
    page: Path | None
    analysis: Analysis


def write_report(data: StudyData, out: Path, formats: tuple[str, ...] = FORMATS) -> Written:
    """Analyses *data* and puts the report into the directory *out*, replacing an older report there.

    Files of an older report stay where they belong to formats that are not written.
    Everything is built in a temporary directory beside *out* and renamed, so that *out* never holds half a report.
    Raises `BadInputError` where *out* exists and is not a report.
    """
    _refuse_foreign(out)
    analysis = analyse(data)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise BadInputError(
            f"cannot write a report to {out}: {error.strerror} (errno {error.errno}); choose a place with --out"
        ) from None
    try:
        if out.exists():
            _keep(out, building, formats)
        _build(building, analysis, data, formats)
        building.chmod(0o755 & ~_umask())
        _swap(building, out)
    except OSError as error:
        shutil.rmtree(building, ignore_errors=True)
        kept = "the existing report is kept; " if out.exists() else ""
        raise MachineError(
            f"cannot write a report to {out}: {error.filename or building}: {system_reason(error)}; "
            f"{kept}make room, or choose a place with --out; run: df -h {quoted(out.absolute().parent)}"
        ) from None
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return Written(out, out / "index.html" if "html" in formats else None, analysis)


def _refuse_foreign(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInputError(f"cannot write a report to {out}: it is a file; name a directory with --out")
    if any(out.iterdir()) and not (out / _MARK).exists():
        raise BadInputError(f"cannot write a report to {out}: it holds other files; name a new directory with --out")


def _keep(older: Path, building: Path, formats: tuple[str, ...]) -> None:
    """Copies the files of an older report that belong to formats that are not written."""
    endings = [ending for format_ in FORMATS if format_ not in formats for ending in _ENDINGS[format_]]
    for file in sorted(older.rglob("*")):
        if file.suffix in endings and file.is_file():
            kept = building / file.relative_to(older)
            kept.parent.mkdir(exist_ok=True)
            shutil.copy2(file, kept)


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


def _swap(new: Path, out: Path) -> None:
    """Replaces *out* by *new*; the older report is removed last."""
    if not out.exists():
        new.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
    out.rename(old / "report")
    new.rename(out)
    shutil.rmtree(old)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
