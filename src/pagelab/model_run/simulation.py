"""Simulates counts of layouts from one trace of the program and one processor description; caches them by layout."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from pagelab.errors import BadInputError
from pagelab.layouts import Footprint, Layout, Profile, footprint
from pagelab.layouts import profile as profiles
from pagelab.model_run.document import Asked, Simulated
from pagelab.models.document import put
from pagelab.simulate import calibration, hardware
from pagelab.simulate.tlb_runs import TlbRuns, tlb
from pagelab.trace import Trace
from pagelab.trace.capture import capture
from pagelab.trace.files import info
from pagelab.trace.pools import of_header

TRACE = "program.trace"
COUNTS = "counts.json"
BATCH = 8
"""Number of layouts in one pass over the trace; counts are saved after each pass."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Counts:
    """Simulated H, M and C of a layout; ``active``: cycles with at least one walk."""

    h: float
    m: float
    c: float
    active: float
    table_reads: float


def needed(asked: Asked, directory: Path, window: str | None, report: Report) -> tuple[Simulated, Footprint]:
    """Captures the trace if there is none; returns how counts are simulated, and the tiles that the program touches.

    Raises `BadInputError` if the trace is of another command, has no references, or fits no layout.
    """
    processor = asked.processor or calibration.this_machine()
    described = hardware.load(processor)
    described.needed("tlb")
    if asked.caches:
        described.needed("caches")
    full = asked.caches or asked.references or needs_references(described)
    path = directory / TRACE
    if asked.trace is not None:
        path = Path(asked.trace)
        refuse_other_run(path, asked, window, full=full)
    elif not path.exists():
        report("trace: one execution in the emulator")
        _capture(asked, path, marker=window is not None, full=full)
    space = footprint.of_trace(path)
    simulated = Simulated(
        processor=str(processor),
        description=digest(described),
        caches=asked.caches,
        trace=str(path.resolve()) if asked.trace is not None else TRACE,
        references=int(info(path)["references"]),
    )
    return simulated, space


def needs_references(described: hardware.Processor) -> bool:
    """Whether the trace must have references: page runs do not suffice if loads and stores have separate entries."""
    tables = described.needed("tlb")
    arrays = [*tables.get("first", []), *tables.get("second", [])]
    return any(array.get("serves", "data") in ("load", "store") for array in arrays)


def digest(described: hardware.Processor) -> str:
    """SHA-256 of the described processor; the file's name does not matter."""
    text = json.dumps([described.caches, described.tlb], sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


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
    else:
        return
    raise BadInputError(
        f"--trace {path}: {told}; leave --trace out, or capture it with: pagelab trace {options} -o {path.name} -- "
        f"{shlex.join(asked.argv)}"
    )


def _capture(asked: Asked, path: Path, *, marker: bool, full: bool) -> None:
    part = path.with_name(f".{path.name}-{os.urandom(8).hex()}").resolve()
    with _silent(asked.cwd):
        found = capture(list(asked.argv), part, marker=marker, pools=True, full=full, force=True)
    if found.status != 0 or found.references == 0:
        part.unlink(missing_ok=True)
        what = f"ended with status {found.status} in the emulator" if found.status else "made no reference there"
        raise BadInputError(
            f"cannot simulate counts of {asked.argv[0]}: it {what}; see what happens: pagelab trace --pools -- "
            f"{shlex.join(asked.argv)}"
        )
    part.replace(path)


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
    _known: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            document = json.loads((self.directory / COUNTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if document.get("description") == self.how.description and document.get("caches") == self.how.caches:
            self._known = document["counts"]

    @property
    def trace(self) -> Path:
        """The trace's path."""
        return self.directory / self.how.trace

    def counts(self, layouts: Sequence[Layout], report: Report | None = None) -> list[Counts]:
        """Counts of each layout, in order. Raises `BadInputError` as :func:`pagelab.simulate.tlb_runs.tlb` does."""
        wanted = {key_of(one): one for one in layouts}
        missing = [one for key, one in wanted.items() if key not in self._known]
        for first in range(0, len(missing), BATCH):
            batch = missing[first : first + BATCH]
            if report is not None:
                report(f"simulate: {first} of {len(missing)} layouts")
            # Layouts may have one name each only, and two campaigns' names are not told apart here.
            found = self._simulated(batch)
            for one, row in zip(batch, found.executions.iter_rows(named=True), strict=True):
                self._known[key_of(one)] = {
                    "h": row["h"],
                    "m": row["m"],
                    "c": row["c"],
                    "active": row["active_cycles"],
                    "table_reads": row["table_reads"],
                }
            self._keep()
        return [Counts(**{name: float(value) for name, value in self._known[key_of(one)].items()}) for one in layouts]

    def seconds_a_layout(self, layout: Layout) -> float:
        """Seconds that one layout's simulation takes, measured with this layout unless known already."""
        if key_of(layout) in self._known:
            return 0.0
        began = monotonic()
        self.counts([layout])
        return monotonic() - began

    def profile(self, space: Footprint) -> Profile:
        """Misses by tile, with base pages."""
        runs = tlb(self.trace, self.how.processor, Layout("4K", ()).policy(), caches=self.how.caches)
        return profiles.of_windows(runs.windows, space, of_header(Trace(self.trace).header))

    def _simulated(self, layouts: Sequence[Layout]) -> TlbRuns:
        policies = [Layout(f"layout-{at}", one.tiles).policy() for at, one in enumerate(layouts)]
        return tlb(self.trace, self.how.processor, policies, caches=self.how.caches)

    def _keep(self) -> None:
        document: dict[str, Any] = {
            "processor": self.how.processor,
            "description": self.how.description,
            "caches": self.how.caches,
            "counts": self._known,
        }
        put(self.directory / COUNTS, json.dumps(document, indent=1) + "\n")


def key_of(layout: Layout) -> str:
    """A key of the layout that does not depend on its name."""
    return " ".join(f"{one.pool}:{one.start:#x}-{one.end:#x}:{one.page_bytes >> 10}K" for one in layout.tiles) or "4K"
