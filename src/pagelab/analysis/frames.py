"""Summarises frame placement in a study: the placement under each policy, and the effect of colours on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pagelab.analysis.data import StudyData
    from pagelab.record import FramesStrategy, Record

UNKNOWN = (
    "Whether frame numbers reach this machine’s caches was not measured, so neither a difference nor its absence can "
    "be put down to colours; measure it with: sudo pagelab doctor --probe-colours"
)
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class FramesSummary:
    """One strategy of one condition, over the analysed executions that reported it. A page has 4096 bytes."""

    condition: str
    strategy: str
    colours: int
    executions: int
    requested_pages: float
    """Median over executions, as is ``out_of_reach``."""
    placed_least: float | None
    """Share of the requested pages that were placed as requested: of the worst execution, and the median."""
    placed_median: float | None
    fallback_pages: int
    """Sum over executions, as is ``zero_pages``."""
    zero_pages: int
    out_of_reach: tuple[tuple[str, float], ...]
    """Reason and bytes."""
    kept: float | None
    """Share of the placed pages resident at exit that were still on their frame; None where none was measured."""
    placed_by_colour: tuple[float, ...]
    """Mean over executions, as is ``fallback_by_colour``; index i is colour i, or all colours that are i modulo the
    length."""
    fallback_by_colour: tuple[float, ...]


@dataclass(frozen=True)
class FramesPart:
    """The part of a report on frame placement."""

    verdict: str | None
    """The verdict of ``pagelab doctor --probe-colours`` on the machine; None where it was not measured."""
    sentence: str
    """The verdict in words, and its consequence for the differences that were found."""
    summaries: tuple[FramesSummary, ...]


def frames_of(
    data: StudyData, of_condition: Mapping[str, Sequence[int]], differing: Collection[str]
) -> FramesPart | None:
    """The part on frame placement; None for a study in which no policy placed frames.

    ``of_condition``: the runs to analyse, by condition, in the order of the design. ``differing``: conditions for which
    a difference from their baseline was found.
    """
    records = {run: record for run, record in data.records if record.frames is not None}
    found = []
    for condition, runs in of_condition.items():
        mine = [records[run] for run in runs if run in records]
        found += _summaries(condition, mine)
    if not found:
        return None
    verdict, sentence = _verdict(list(records.values()))
    differs = any(one.condition in differing for one in found)
    if differs and verdict is not None and verdict != "effective":
        sentence += (
            " A difference found under a policy that places frames is then one of how its pages came in (faults, "
            "zeroing, page size), not of where they lie."
        )
    return FramesPart(verdict, sentence, tuple(found))


def _summaries(condition: str, records: Sequence[Record]) -> list[FramesSummary]:
    by_number: dict[int, list[FramesStrategy]] = {}
    for record in records:
        for strategy in record.frames.strategies if record.frames is not None else ():
            by_number.setdefault(strategy.number, []).append(strategy)
    return [_summary(condition, found) for _, found in sorted(by_number.items())]


def _summary(condition: str, found: Sequence[FramesStrategy]) -> FramesSummary:
    shares = [one.placed_pages / one.requested_pages for one in found if one.requested_pages]
    reasons = sorted({reason for one in found for reason in one.out_of_reach_bytes})
    kept, moved = sum(one.kept_pages for one in found), sum(one.moved_pages for one in found)
    return FramesSummary(
        condition=condition,
        strategy=found[0].kind,
        colours=found[0].colours,
        executions=len(found),
        requested_pages=float(median(one.requested_pages for one in found)),
        placed_least=min(shares, default=None),
        placed_median=float(median(shares)) if shares else None,
        fallback_pages=sum(one.fallback_pages for one in found),
        zero_pages=sum(one.zero_pages for one in found),
        out_of_reach=tuple(
            (reason, float(median(one.out_of_reach_bytes.get(reason, 0) for one in found))) for reason in reasons
        ),
        kept=kept / (kept + moved) if kept + moved else None,
        placed_by_colour=_mean([one.by_colour.placed_pages for one in found if one.by_colour]),
        fallback_by_colour=_mean([one.by_colour.fallback_pages for one in found if one.by_colour]),
    )


def _mean(tables: Sequence[Sequence[int]]) -> tuple[float, ...]:
    if not tables:
        return ()
    return tuple(sum(column) / len(tables) for column in zip(*tables, strict=True))


def _verdict(records: Sequence[Record]) -> tuple[str | None, str]:
    """The verdict in the last execution's record (and its words): a study can begin before colours are measured."""
    from pagelab.machine.colours import colour_warnings

    told_by = [(record.machine or {}).get("colour_verdict") for record in records]
    known = [verdict for verdict in told_by if verdict]
    if not known:
        return None, f"{UNKNOWN}."
    sentence = colour_warnings.sentence(known[-1])
    different = {one["verdict"] for one in known}
    changed = " The verdict changed while the study ran (see Warnings)." if len(different) > 1 else ""
    return known[-1]["verdict"], f"{sentence[:1].upper()}{sentence[1:]}.{changed}"
