"""The published table of simulated intervals."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.coverage.precision.cells import Cell
from bench.coverage.precision.simulate import INTERVALS, SMALL_LOOKS, sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

TARGET_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
RULES = (
    ("naive", "exact", "exact"),
    ("naive-any-shape", "any-shape", "any-shape"),
    ("spent-exact", "spent-exact", "spent-exact"),
    ("plan", "spent-any-shape", "spent-any-shape"),
)
"""Rule, interval whose width is looked at, interval reported. ``plan`` is what ``decide`` does."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the CSV.

    ``n`` is empty for a rule, ``target`` (relative half-width) for fixed n; ``worst`` marks a rule's lowest coverage.
    """

    cell: str
    rule: str
    interval: str
    n: int | None
    target: float | None
    mean_executions: float | None
    share_target_met: float | None
    coverage: float
    standard_error: float
    exists: float
    """Share of the replications in which the interval exists; coverage is over those."""
    replications: int
    worst: bool = False


def rows_of(cell: Cell, results: NDArray[np.float64]) -> Iterator[Row]:
    """All lines of one cell; ``results`` is (replication, n, interval, [relative half-width, covered])."""
    for position, n in enumerate(sizes(cell)):
        for which, interval in enumerate(INTERVALS):
            if interval.startswith("spent-"):
                continue
            covered = results[:, position, which, 1]
            covered = covered[~np.isnan(covered)]
            if covered.size:
                exists = covered.size / len(results)
                yield Row(cell.name, "fixed", interval, n, None, None, None, *_coverage(covered), exists, len(results))
    looks = results[:, len(SMALL_LOOKS) :]
    for rule, judged, reported in RULES:
        rows = list(_rule_rows(cell, looks, rule, INTERVALS.index(judged), reported))
        lowest = min(row.coverage for row in rows)
        for row in rows:
            yield Row(**{**asdict(row), "worst": row.coverage == lowest})
    yield from _display_rows(cell, looks)


def _rule_rows(cell: Cell, looks: NDArray[np.float64], rule: str, judged: int, reported: str) -> Iterator[Row]:
    """The rule with every target in a grid: quantiles of the widths at each look but the last."""
    for target in _targets(looks, judged):
        stop, met = _stops(looks, judged, target)
        covered = looks[np.arange(len(looks)), stop, INTERVALS.index(reported), 1]
        exists = ~np.isnan(covered)
        executions = np.array(cell.looks)[stop].mean()
        yield Row(
            cell.name,
            rule,
            reported,
            None,
            float(target),
            float(executions),
            float(met.mean()),
            *_coverage(covered[exists]),
            float(exists.mean()),
            len(looks),
        )


def _display_rows(cell: Cell, looks: NDArray[np.float64]) -> Iterator[Row]:
    """The baseline's own intervals when the plan stopped (the mean's still at 95%), worst over targets."""
    judged = INTERVALS.index("spent-any-shape")
    for interval in ("spent-median", "mean"):
        rows = []
        for target in _targets(looks, judged):
            stop, met = _stops(looks, judged, target)
            covered = looks[np.arange(len(looks)), stop, INTERVALS.index(interval), 1]
            covered = covered[~np.isnan(covered)]
            if covered.size:
                executions = float(np.array(cell.looks)[stop].mean())
                share, exists = float(met.mean()), covered.size / len(looks)
                coverage = _coverage(covered)
                rows.append(
                    Row(cell.name, "plan", interval, None, target, executions, share, *coverage, exists, len(looks))
                )
        if rows:
            lowest = min(rows, key=lambda row: row.coverage)
            yield Row(**{**asdict(lowest), "worst": True})


def _targets(looks: NDArray[np.float64], judged: int) -> list[float]:
    widths = looks[:, :-1, judged, 0]
    return [float(t) for t in np.quantile(widths, TARGET_QUANTILES, axis=0, method="inverted_cdf").ravel()]


def _stops(looks: NDArray[np.float64], judged: int, target: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Index of the look that ends each study, and whether it met the target."""
    narrow = looks[:, :, judged, 0] <= target
    met = np.asarray(narrow.any(axis=1), dtype=np.bool_)
    stop = np.where(met, narrow.argmax(axis=1), narrow.shape[1] - 1)
    return np.asarray(stop, dtype=np.int64), met


def _coverage(covered: NDArray[np.float64]) -> tuple[float, float]:
    share = float(covered.mean())
    return share, float(np.sqrt(share * (1 - share) / covered.size))


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write beside and rename, so that a stop leaves the old table."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in rows:
            writer.writerow([_text(value) for value in asdict(row).values()])
    partial.rename(path)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read_csv(path: Path) -> list[Row]:
    """What `write_csv` wrote, to the digits written."""

    def optional(text: str) -> float | None:
        return float(text) if text else None

    with path.open(newline="") as lines:
        return [
            Row(
                cell=line["cell"],
                rule=line["rule"],
                interval=line["interval"],
                n=int(line["n"]) if line["n"] else None,
                target=optional(line["target"]),
                mean_executions=optional(line["mean_executions"]),
                share_target_met=optional(line["share_target_met"]),
                coverage=float(line["coverage"]),
                standard_error=float(line["standard_error"]),
                exists=float(line["exists"]),
                replications=int(line["replications"]),
                worst=line["worst"] == "yes",
            )
            for line in csv.DictReader(lines)
        ]
