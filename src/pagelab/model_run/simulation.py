"""Simulates counts of layouts from one trace of the program and one processor description; caches them by layout."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import polars as pl

from pagelab.disk import sync_directory, sync_file
from pagelab.errors import BadInputError
from pagelab.layouts import Footprint, Layout, Profile, footprint
from pagelab.layouts import profile as profiles
from pagelab.model_run.document import Asked, Simulated, Trial
from pagelab.model_run.executions import TRIAL, refuse_other_windows
from pagelab.models.document import put
from pagelab.simulate import calibration, hardware
from pagelab.simulate.cache_runs import workers
from pagelab.simulate.tlb_runs import TlbRuns, tlb
from pagelab.study.progress import EVERY_S, meanwhile, shown_duration
from pagelab.trace import Trace
from pagelab.trace.capture import SLOWDOWN, capture, written_bytes
from pagelab.trace.files import info, killed
from pagelab.trace.pools import of_header

TRACE = "program.trace"
COUNTS = "counts.json"
PROCESSOR = "processor.toml"
"""The description that counts are simulated by, as it was, if it is no preset: a new probe overwrites the file."""
BATCH = 8
"""Number of layouts in one pass over the trace; counts are saved after each pass."""
PIECE_S = 5.0
"""Seconds of a pass after which the time that all of it takes is known."""
_PIECE_SHARE = 0.01
"""Least share of the references in that piece."""
Report = Callable[[str], None]
Expected = Callable[["Expectation"], None]
"""Told how long a pass takes, once a piece of it is done; may raise an error, which ends the pass."""


@dataclass(frozen=True)
class Counts:
    """Simulated H, M and C of a layout; ``active``: cycles with at least one walk."""

    h: float
    m: float
    c: float
    active: float
    table_reads: float


@dataclass(frozen=True)
class Expectation:
    """How long simulation takes, by the piece that is done."""

    layouts: int
    """Of this pass."""
    pass_s: float
    """The whole pass."""
    each_s: float
    """A layout in a pass of :data:`BATCH`; by a pass of fewer layouts the least that it can be."""


def needed(
    asked: Asked, directory: Path, trial: Trial, report: Report, known: Footprint | None = None
) -> tuple[Simulated, Footprint]:
    """Captures the trace if there is none; returns how counts are simulated, and the tiles that the program touches.

    ``known``: these tiles, if the campaign's own trace was read before; reading it takes long.

    Raises `BadInputError` if the program has other windows beside the one that is measured, and if the trace is of
    another command, has no references, or fits no layout.
    """
    refuse_other_windows(directory / TRIAL, trial.window, counted=trial.counts == "counted")
    processor = asked.processor or calibration.this_machine()
    described = _described(processor, directory, report)
    described.needed("tlb")
    if asked.caches:
        described.needed("caches")
    if processor not in hardware.presets() and not (directory / PROCESSOR).exists():
        text = Path(processor).read_text(encoding="utf-8")
        # A description without a name is called after its file.
        named = text if "name" in tomllib.loads(text) else f"name = {json.dumps(described.name)}\n{text}"
        put(directory / PROCESSOR, named)
    full = asked.caches or asked.references or hardware.needs_references(described)
    path = directory / TRACE
    if asked.trace is not None:
        path = Path(asked.trace)
        refuse_other_run(path, asked, trial.window, full=full)
    elif not path.exists() or (full and Trace(path).header.get("content") == "runs"):
        most = shown_duration(SLOWDOWN[1] * trial.run_s)
        report("trace: one execution in the emulator, {} to {} times slower, up to {}".format(*SLOWDOWN, most))
        _capture(asked, path, report, marker=trial.window is not None, full=full)
        known = None
    references = int(info(path)["references"])
    if known is None or asked.trace is not None:
        title = "trace: reading which tiles it uses"
        report(title)
        known = footprint.of_trace(path, _Pass(title, references, report, lambda _: None).report)
    simulated = Simulated(
        processor=str(processor),
        description=digest(described),
        caches=asked.caches,
        trace=str(path.resolve()) if asked.trace is not None else TRACE,
        trace_digest=trace_digest(path, references),
        references=references,
    )
    return simulated, known


def _described(processor: str, directory: Path, report: Report) -> hardware.Processor:
    """The description that the campaign began with; that of ``processor``, if it begins."""
    kept = hardware.load(processor_of(directory, processor))
    try:
        changed = digest(hardware.load(processor)) != digest(kept)
    except BadInputError:
        changed = True
    if changed:
        report(f"the description of {processor} has changed; counts are simulated by the one before: {PROCESSOR}")
    return kept


def processor_of(directory: Path, processor: str) -> str:
    """What counts of a campaign are simulated by: its copy of the description ``processor``, or the preset."""
    kept = directory / PROCESSOR
    return processor if processor in hardware.presets() or not kept.exists() else str(kept)


def uncalibrated(simulated: Simulated, directory: Path) -> str | None:
    """Why simulated C has another scale than this machine's cycles; None: it was fitted to walks that were timed."""
    if simulated.processor in hardware.presets():
        return f"{simulated.processor} as its makers describe it"
    if not hardware.load(processor_of(directory, simulated.processor)).calibrated:
        return f"{simulated.processor} has no cycles that were fitted to timed walks"
    if simulated.caches:
        return "with --caches, walks cost what the description's caches say; timed walks are fitted without them"
    return None


def trace_digest(path: Path, references: int) -> str:
    """Of a trace's header, which says when it was captured, and its length; it stays when the file is copied."""
    header = Trace(path).header if path.exists() else None
    return hashlib.sha256(json.dumps([header, references], sort_keys=True).encode()).hexdigest()


def digest(described: hardware.Processor) -> str:
    """SHA-256 of the described processor; the file's name does not matter."""
    text = json.dumps([described.caches, described.tlb], sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_changed(simulated: Simulated, directory: Path) -> None:
    """Raises `BadInputError` if the description or the trace has changed since the campaign's counts were simulated."""
    if digest(hardware.load(processor_of(directory, simulated.processor))) != simulated.description:
        what = f"the description of {simulated.processor}"
    elif simulated.trace_digest not in (None, trace_digest(directory / simulated.trace, simulated.references)):
        what = f"the trace {directory / simulated.trace}"
    else:
        return
    raise BadInputError(
        f"{what} has changed since the campaign was made, and counts of both would be mixed; put it back, or begin "
        "another: pagelab model run --into DIR"
    )


def refuse_other_run(path: Path, asked: Asked, window: str | None, *, full: bool) -> None:
    """Raises `BadInputError` if the trace's header names another command, or another part of it."""
    header = Trace(path).header
    parameters = (header.get("provenance") or {}).get("parameters") or {}
    traced = parameters.get("capture")
    options = f"--pools{' --marker' if window else ''}{' --full' if full else ''}"
    if traced is None:
        told = "it does not say which command it is of"
    elif list(traced) != list(asked.argv):
        told = f"it is of another command: {shlex.join(traced)}"
    elif (parameters.get("options", {}).get("marker") == "on") != (window is not None):
        told = "it is of the whole execution, and the program's window is measured" if window else "it is of a window"
    elif full and header.get("content") == "runs":
        told = "it has page runs, and every reference is needed here"
    elif missing := killed(path):
        told = f"it is incomplete ({missing}), and R would be of the whole"
    else:
        return
    raise BadInputError(
        f"--trace {path}: {told}; leave --trace out, or capture it with: pagelab trace {options} -o {path.name} -- "
        f"{shlex.join(asked.argv)}"
    )


def _capture(asked: Asked, path: Path, report: Report, *, marker: bool, full: bool) -> None:
    part = path.with_name(f".{path.name}-{os.urandom(8).hex()}").resolve()
    try:
        with _silent(asked.cwd), meanwhile(report, lambda so_far_s: _emulating(part, so_far_s)):
            found = capture(list(asked.argv), part, marker=marker, pools=True, full=full, force=True)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if found.status != 0 or found.references == 0:
        part.unlink(missing_ok=True)
        what = f"ended with status {found.status} in the emulator" if found.status else "made no reference there"
        raise BadInputError(
            f"cannot simulate counts of {asked.argv[0]}: it {what}; see what happens: pagelab trace --pools -- "
            f"{shlex.join(asked.argv)}"
        )
    sync_file(part)
    part.replace(path)
    sync_directory(path.parent)


def _emulating(part: Path, so_far_s: float) -> str:
    return f"trace: {shown_duration(so_far_s)} in the emulator, {written_bytes(part) >> 20} MiB written"


@contextmanager
def _silent(cwd: str) -> Iterator[None]:
    """Gives children this working directory and discards their output, since our output is the answer alone."""
    before, kept = Path.cwd(), os.dup(1)
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.chdir(cwd)
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
        os.chdir(before)


@dataclass
class Simulator:
    """Simulates counts by layout and keeps them in a file, so that no layout is simulated twice."""

    directory: Path
    how: Simulated
    note: Report | None = None
    """Receives messages of progress."""
    expected: Expected | None = None
    alone_s: float = 0.0
    """Seconds of a pass with one layout; 0 before there was one."""
    each_s: float = 0.0
    """Seconds of a layout in a pass of :data:`BATCH`; 0 before there was one."""
    _known: dict[str, dict[str, float]] = field(default_factory=dict)
    _windows: pl.DataFrame | None = None

    def __post_init__(self) -> None:
        try:
            document = json.loads((self.directory / COUNTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        made = {"description": self.how.description, "caches": self.how.caches, "trace": self._trace_digest}
        if made.items() <= document.items():
            self._known = document["counts"]
            self.alone_s, self.each_s = document.get("seconds", (0.0, 0.0))

    @cached_property
    def _trace_digest(self) -> str:
        return trace_digest(self.trace, self.how.references)

    @property
    def trace(self) -> Path:
        """The trace's path."""
        return self.directory / self.how.trace

    def counts(self, layouts: Sequence[Layout]) -> list[Counts]:
        """Counts of each layout, in order. Raises `BadInputError` as :func:`pagelab.simulate.tlb_runs.tlb` does."""
        missing = self.missing(layouts)
        for first in range(0, len(missing), BATCH):
            batch = missing[first : first + BATCH]
            title = f"simulate: {first} of {len(missing)} layouts"
            if self.note is not None and len(missing) > 1:
                left_s = self.seconds(len(missing) - first)
                self.note(title + (f", {shown_duration(left_s)} left" if left_s >= 1 else ""))
            # Layouts may have one name each only, and two campaigns' names are not told apart here.
            renamed = [Layout(f"layout-{at}", one.tiles) for at, one in enumerate(batch)]
            self._remember(batch, self._simulated(renamed, title))
        return [Counts(**{name: float(value) for name, value in self._known[key_of(one)].items()}) for one in layouts]

    def missing(self, layouts: Sequence[Layout]) -> list[Layout]:
        """The different layouts among these that were not simulated yet."""
        return [one for key, one in {key_of(one): one for one in layouts}.items() if key not in self._known]

    def measure(self, layouts: Sequence[Layout]) -> None:
        """Simulates as many of these layouts as one pass takes, for the time of a layout, unless that is known."""
        if not self.each_s:
            self.counts(self.missing(layouts)[:BATCH])

    def seconds(self, layouts: int) -> float:
        """Seconds that the simulation of so many layouts takes, by the passes so far."""
        return layouts * (self.each_s or self.alone_s / self._at_once)

    def profile(self, space: Footprint) -> Profile:
        """Misses by tile, with base pages."""
        if self._windows is None:
            title, small = "simulate: misses along the memory", Layout("4K", ())
            if self.note is not None:
                self.note(title)
            found = self._simulated([small], title)
            self._windows = found.windows
            self._remember([small], found)
        return profiles.of_windows(self._windows, space, of_header(Trace(self.trace).header))

    @property
    def _at_once(self) -> int:
        """Layouts of a pass that are simulated at the same time."""
        return min(BATCH, workers(None))

    def _simulated(self, layouts: Sequence[Layout], title: str) -> TlbRuns:
        """One pass over the trace."""
        watched = _Pass(title, self.how.references, self.note, lambda whole_s: self._expects(len(layouts), whole_s))
        found = tlb(
            self.trace,
            processor_of(self.directory, self.how.processor),
            [one.policy() for one in layouts],
            caches=self.how.caches,
            report=watched.report,
        )
        took_s = monotonic() - watched.began
        if len(layouts) == 1:
            self.alone_s = took_s
        elif len(layouts) == BATCH or not self.each_s:
            self.each_s = took_s / len(layouts)
        return found

    def _expects(self, layouts: int, pass_s: float) -> None:
        if self.expected is not None:
            each_s = pass_s / (layouts if layouts == BATCH else self._at_once)
            self.expected(Expectation(layouts, pass_s, each_s))

    def _remember(self, layouts: Sequence[Layout], found: TlbRuns) -> None:
        """Adds the counts of a pass, and writes the file of all counts."""
        for one, row in zip(layouts, found.executions.iter_rows(named=True), strict=True):
            self._known[key_of(one)] = {
                "h": row["h"],
                "m": row["m"],
                "c": row["c"],
                "active": row["active_cycles"],
                "table_reads": row["table_reads"],
            }
        document: dict[str, Any] = {
            "processor": self.how.processor,
            "description": self.how.description,
            "caches": self.how.caches,
            "trace": self._trace_digest,
            "seconds": [self.alone_s, self.each_s],
            "counts": self._known,
        }
        put(self.directory / COUNTS, json.dumps(document, indent=1) + "\n")


class _Pass:
    """Follows a pass over the trace: tells its progress from time to time, and once how long all of it takes."""

    def __init__(self, title: str, references: int, note: Report | None, expects: Callable[[float], None]) -> None:
        self.began = self._said = monotonic()
        """The first references, if any were reported: before them the trace may be read for other reasons."""
        self._title, self._references, self._note, self._expects = title, references, note, expects
        self._first: int | None = None
        self._told = False

    def report(self, done: int, _total: int | None) -> None:
        """Receives the number of references so far."""
        now = monotonic()
        if self._first is None:
            self.began, self._said, self._first = now, now, done
        elif not self._told and now - self.began >= PIECE_S and done >= _PIECE_SHARE * self._references:
            self._told = True
            self._expects((now - self.began) * self._references / (done - self._first))
        if self._note is not None and now - self._said >= EVERY_S:
            self._said = now
            self._note(f"{self._title}: {done / 1e6:,.0f} of {self._references / 1e6:,.0f} M references")


def key_of(layout: Layout) -> str:
    """A key of the layout that does not depend on its name."""
    return " ".join(f"{one.pool}:{one.start:#x}-{one.end:#x}:{one.page_bytes >> 10}K" for one in layout.tiles) or "4K"
