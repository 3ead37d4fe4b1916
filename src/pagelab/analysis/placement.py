"""Summarises placement: the page sizes that policies request, and those that the kernel gave."""

from __future__ import annotations

from statistics import median

from pagelab.analysis import wording
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Condition, Execution, PlacementSummary, SizeShare
from pagelab.record import Record


def placements_of(
    data: StudyData, conditions: tuple[Condition, ...], executions: tuple[Execution, ...]
) -> tuple[PlacementSummary, ...]:
    """One summary per condition that has records with placement, over its analysed executions."""
    records = dict(data.records)
    found = []
    for condition in conditions:
        mine = [
            records[e.run_id] for e in executions if e.condition == condition.id and e.analysed and e.run_id in records
        ]
        mine = [r for r in mine if r.placement.by_size or r.placement.whole_touched_tiles]
        if mine:
            found.append(_summary(condition, mine))
    return tuple(found)


def mostly_given_back(placement: PlacementSummary) -> bool:
    """Whether most of the memory was given back before placement was measured, so that its placement is unknown."""
    return placement.resident_bytes < 0.5 * placement.peak_bytes


def _summary(condition: Condition, records: list[Record]) -> PlacementSummary:
    fractions = [r.placement.placed_fraction for r in records if r.placement.placed_fraction is not None]
    tiles = sum(r.placement.whole_touched_tiles for r in records)
    return PlacementSummary(
        condition=condition.id,
        asked=_asked(records),
        by_size=_by_size(records),
        resident_bytes=float(median(sum(s.bytes for s in r.placement.by_size) for r in records)),
        peak_bytes=float(median(r.peak_rss_bytes for r in records)),
        tiles_asked=tiles or None,
        tiles_got=sum(r.placement.tiles_as_asked for r in records) if tiles else None,
        fraction_least=min(fractions, default=None),
        fraction_median=median(fractions) if fractions else None,
        short_runs=condition.short_placed,
        executions=len(records),
    )


def _by_size(records: list[Record]) -> tuple[SizeShare, ...]:
    sizes = sorted({s.page_bytes for r in records for s in r.placement.by_size})
    table = [{s.page_bytes: s.bytes for s in r.placement.by_size} for r in records]
    return tuple(SizeShare(size, float(median(row.get(size, 0) for row in table))) for size in sizes)


def _asked(records: list[Record]) -> str:
    """The requested page sizes by region, as the preload library reported them: ``2M in heap and anon``, or
    ``nothing``.
    """
    wanted: dict[str, list[str]] = {}
    for record in records:
        for process in record.processes:
            for region in process.placement:
                if region.asked != "kernel":
                    regions = wanted.setdefault(region.asked + (" (hugetlb)" if region.via == "hugetlb" else ""), [])
                    if region.region not in regions:
                        regions.append(region.region)
    parts = [f"{size} in {wording.listing(sorted(regions))}" for size, regions in sorted(wanted.items())]
    return "; ".join(parts) if parts else "nothing"
