"""Loads the input of an analysis: one study's plan, frames and records, read from its store at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pagelab.analysis.limits import Limit, limits_of
from pagelab.record import Record, RunWarning
from pagelab.study.plan import Plan

if TYPE_CHECKING:
    from pagelab.study.store import Store


@dataclass(frozen=True)
class RecordLines:
    """Stored records, read from the store only when used: with millions of measurements they take gigabytes."""

    store: Path
    runs: frozenset[int]
    bytes: int

    def __iter__(self) -> Iterator[str]:
        from pagelab.study.store import Store

        if self.bytes == 0:
            return
        with Store.open(self.store, write=False) as store:
            yield from (text for run, text in store.record_texts() if run in self.runs)


@dataclass(frozen=True)
class StudyData:
    """A study as stored: everything that analysis and exports need after the store is closed.

    ``runs`` and ``measurements`` have the columns of `pagelab.study.dataframes`; runs are in schedule order.
    """

    plan: Plan
    runs: pl.DataFrame
    measurements: pl.DataFrame
    records: tuple[tuple[int, Record], ...]
    """(run id, record) in schedule order; imported runs have no record. Measurements are left out: they are in the
    frame."""
    record_lines: RecordLines
    """Every record as stored, including imported ones: one JSON object each."""
    study_warnings: tuple[RunWarning, ...]
    looks: tuple[dict[str, Any], ...]
    """Looks of a precision stop, in order."""
    origin: str | None
    """Name of the file from which data were imported; None: measured by pagelab."""
    outstanding: int
    """Places of the schedule that have no run."""
    source: str | None = None
    """The study file that was run; None where it is not known."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """What else the store says of the study."""
    limits: tuple[Limit, ...] = ()
    """Limits with which two commands were compared, each with its outcome on these executions."""

    @property
    def complete(self) -> bool:
        """Whether every place of the schedule has a run, or a planned look ended the study."""
        return self.outstanding == 0 or bool(self.looks and self.looks[-1].get("stop"))

    @property
    def directory(self) -> Path:
        """The study's directory."""
        store = self.record_lines.store
        return store if store.is_dir() else store.parent


def load(store: Store) -> StudyData:
    """Reads all runs that *store* holds now; later commits are left out."""
    from pagelab.analysis.commands import as_one

    meta = store.meta()
    plan, runs = as_one(store.plan(), store.runs().sort("position"))
    known = set(runs["run_id"])
    events = store.events()
    texts = [(run, text) for run, text in store.short_record_texts() if run in known]
    return StudyData(
        plan=plan,
        runs=runs,
        measurements=_of_runs(store.measurements(), known),
        records=tuple((run, Record.model_validate_json(text)) for run, text in texts if _is_record(text)),
        record_lines=RecordLines(store.path, frozenset(known), store.record_bytes()),
        study_warnings=tuple(store.study_warnings()),
        looks=tuple(event["data"] for event in events if event["kind"] == "look"),
        origin=Path(meta["origin"]).name if "origin" in meta else None,
        source=meta.get("source"),
        meta=meta,
        limits=limits_of(events, runs.height),
        outstanding=len({slot.position for slot in store.slots()} - set(runs["position"])),
    )


def _of_runs(measurements: pl.DataFrame, runs: set[int]) -> pl.DataFrame:
    """The measurements of ``runs``, without those of runs that were committed in the meantime.

    Names and units become categories, since analysis makes several copies of millions of rows.
    """
    short = measurements.cast({"name": pl.Categorical("lexical"), "unit": pl.Categorical("lexical")})
    if set(short["run_id"].unique()) <= runs:
        return short
    return short.filter(pl.col("run_id").is_in(list(runs)))


def _is_record(text: str) -> bool:
    return '"pagelab.record/1"' in text[:200]
