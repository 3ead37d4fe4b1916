"""Results of a campaign, tool by tool: widths, false alarms, misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import beta

from .campaign import Row
from .tools import CO_RUN, TOOLS, Decision

READ = "hyperfine, as printed"
GOAL_WIDTH = 0.5
"""Goal: largest ratio of pagelab's half-width to hyperfine's."""
GOAL_ALARMS = 0.05
MAIN = 0.05
"""The planted difference that a tool should find."""


@dataclass(frozen=True)
class Count:
    """A count out of a total, with the exact interval (Clopper and Pearson, 95%) of the share."""

    found: int
    of: int

    @property
    def share(self) -> float:
        return self.found / self.of

    @property
    def interval(self) -> tuple[float, float]:
        low = 0.0 if self.found == 0 else float(beta.ppf(0.025, self.found, self.of - self.found + 1))
        high = 1.0 if self.found == self.of else float(beta.ppf(0.975, self.found + 1, self.of - self.found))
        return low, high

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.found} of {self.of} ({100 * low:.0f}–{100 * high:.0f}%)"


@dataclass(frozen=True)
class Cell:
    """One tool on one pair of commands with one planted difference."""

    tool: str
    kind: str
    planted: float
    half_width: float
    """Median; NaN for decisions without an interval of their own."""
    executions: float
    took_s: float
    change: float
    """Median estimate."""
    wrong: Count
    """False alarms where nothing is planted; else misses: all but the answer "slower", no answer among them."""
    held: Count
    """Number of intervals that contain the planted difference."""
    silent: int
    """Number of questions without an answer."""


def cells(rows: Sequence[Row]) -> list[Cell]:
    """In the order of kinds, planted differences and tools; of tools that answered at all."""
    keys = sorted({(row.place.kind, row.place.planted) for row in rows})
    found = []
    for kind, planted in keys:
        here = [row for row in rows if (row.place.kind, row.place.planted) == (kind, planted)]
        for tool in TOOLS:
            own = [row for row in here if row.place.tool == tool.name]
            if not any(row.answer for row in own):
                continue
            found.append(_cell(tool.name, own, lambda answer: answer.decision))
            if tool.name == "hyperfine":
                found.append(_cell(READ, own, lambda answer: answer.read))
    return found


def _cell(name: str, rows: Sequence[Row], decision: Callable[..., Decision | None]) -> Cell:
    place = rows[0].place
    answers = [row.answer for row in rows if row.answer is not None]
    silent = len(rows) - len(answers)
    if place.planted == 0:
        wrong = Count(sum(decision(one) != "none" for one in answers), len(answers))
    else:
        wrong = Count(silent + sum(decision(one) != "slower" for one in answers), len(rows))
    return Cell(
        tool=name,
        kind=place.kind,
        planted=place.planted,
        half_width=float("nan") if name == READ else median(one.half_width for one in answers),
        executions=median(one.executions for one in answers),
        took_s=median(row.took_s for row in rows),
        change=median(one.change for one in answers),
        wrong=wrong,
        held=Count(sum(one.low <= place.planted <= one.high for one in answers), len(answers)),
        silent=silent,
    )


def against_hyperfine(rows: Sequence[Row], kind: str) -> tuple[float, int]:
    """Median over repetitions of pagelab's half-width over hyperfine's, of the same pair in the same minutes."""
    width = {row.place: row.answer.half_width for row in rows if row.answer is not None and row.place.kind == kind}
    ratios = []
    for place, own in width.items():
        if place.tool == "pagelab":
            other = [
                value
                for one, value in width.items()
                if one.tool == "hyperfine" and (one.repetition, one.planted) == (place.repetition, place.planted)
            ]
            ratios += [own / value for value in other if value > 0]
    return (median(ratios), len(ratios)) if ratios else (float("nan"), 0)


def error_of(rows: Sequence[Row], kind: str, tool: str) -> tuple[float, Count]:
    """Within how much of what was planted 95% of the tool's estimates are, and how many of its intervals hold it.

    The width of an interval says how exact a tool is only where its intervals hold the truth as often as they say.
    """
    answers = [
        (row.answer, row.place.planted)
        for row in rows
        if row.answer is not None and (row.place.kind, row.place.tool) == (kind, tool)
    ]
    held = Count(sum(one.low <= planted <= one.high for one, planted in answers), len(answers))
    return float(np.quantile([abs(one.change - planted) for one, planted in answers], 0.95)), held


def verdicts(rows: Sequence[Row]) -> list[str]:
    """The goals, kind by kind."""
    verdict_lines = []
    found = cells(rows)
    for kind in sorted({cell.kind for cell in found}):
        ratio, pairs = against_hyperfine(rows, kind)
        if pairs:
            met = "met" if ratio <= GOAL_WIDTH else "**missed**"
            verdict_lines.append(
                f"{kind}: pagelab's half-width is {ratio:.2f} of hyperfine's (median of {pairs} repetitions; goal ≤ "
                f"{GOAL_WIDTH:g}: {met})"
            )
            (own, held), (other, others_held) = (error_of(rows, kind, tool) for tool in ("pagelab", "hyperfine"))
            verdict_lines.append(
                f"{kind}: 95% of pagelab's estimates are within {100 * own:.2f}% of what was planted, of hyperfine's "
                f"within {100 * other:.2f}%; intervals hold it in {held} and {others_held}"
            )
        of_kind = {(cell.tool, cell.planted): cell.wrong for cell in found if cell.kind == kind}
        if ("pagelab", 0.0) in of_kind:
            verdict_lines.append(f"{kind}: false alarms of pagelab {_alarms(of_kind['pagelab', 0.0])}")
        others = [
            count.share
            for (tool, planted), count in of_kind.items()
            if planted == MAIN and tool not in ("pagelab", CO_RUN)
        ]
        if ("pagelab", MAIN) in of_kind and others:
            verdict_lines.append(
                f"{kind}: of {100 * MAIN:g}% pagelab missed {of_kind['pagelab', MAIN]}, the others "
                f"{100 * min(others):.0f}–{100 * max(others):.0f}%"
            )
    alarms = [cell.wrong for cell in found if (cell.tool, cell.planted) == ("pagelab", 0.0)]
    if len(alarms) > 1:
        together = Count(sum(one.found for one in alarms), sum(one.of for one in alarms))
        verdict_lines.append(f"all kinds: false alarms of pagelab {_alarms(together)}")
    return verdict_lines


def _alarms(count: Count) -> str:
    low, high = count.interval
    if count.share <= GOAL_ALARMS:
        verdict = "met" if high <= GOAL_ALARMS else "met, as far as so many tell"
    else:
        verdict = "**missed**" if low > GOAL_ALARMS else "**missed**, which may be chance"
    return f"{count} (goal ≤ {100 * GOAL_ALARMS:g}%: {verdict})"


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown, a part a pair of commands."""
    lines: list[str] = []
    part = None
    for cell in cells(rows):
        if part != (cell.kind, cell.planted):
            part = (cell.kind, cell.planted)
            wrong = "false alarms" if cell.planted == 0 else "misses"
            lines += [
                "",
                f"## {cell.kind}, {100 * cell.planted:g}% planted",
                "",
                f"| tool | half-width | estimate | {wrong} | intervals that hold {100 * cell.planted:g}% "
                "| no answer | executions of each | seconds |",
                "|---|--:|--:|--:|--:|--:|--:|--:|",
            ]
        own = cell.tool != READ
        width, held = (f"{100 * cell.half_width:.2f}%", str(cell.held)) if own else ("", "")
        lines.append(
            f"| {cell.tool} | {width} | {100 * cell.change:+.2f}% | {cell.wrong} | {held} | {cell.silent} "
            f"| {cell.executions:.0f} | {cell.took_s:.1f} |"
        )
    return [*lines, ""]
