"""The result of the design over kinds of memory, in words: a verdict, tables and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.analysis import wording
from pagelab.errors import quoted
from pagelab.model_run.answer import measured
from pagelab.models.base import number
from pagelab.study.budget import MOST_OF_A_COMMAND

if TYPE_CHECKING:
    from pagelab.model_run.document import Asked, Campaign
    from pagelab.model_run.kinds_document import Combination, Effect, Kind, KindsDocument


_MINOR = 0.2
"""A kind whose effect is below this share of the largest effect is named after the kinds that decide."""


def verdict(kinds: Sequence[Kind], effects: Sequence[Effect], blocks: int, fewest: int) -> str:
    """One sentence: kinds that decide, kinds with smaller effects, with none, and kinds left out of the design.

    With fewer than ``fewest`` whole blocks no effect can be found, however large, and the sentence says that.
    """
    if blocks < fewest:
        return f"cannot tell: {blocks} blocks are whole, and {fewest} are the fewest with which an effect can be found"
    main = [one for one in effects if len(one.kinds) == 1]
    seen = sorted((one for one in main if one.seen), key=lambda one: -abs(one.percent))
    unseen = [one for one in main if not one.seen]
    large = [one for one in seen if abs(one.percent) >= _MINOR * abs(seen[0].percent)]
    parts = [_decided(large, alone=len(main) == 1) if seen else _nothing(main)]
    parts += [f"{one.kinds[0]}: {change(one)}" for one in seen if one not in large]
    if seen and unseen:
        parts.append(f"{_names(unseen)}: no effect seen")
    parts += [_together(one) for one in effects if len(one.kinds) > 1 and one.seen]
    for why in dict.fromkeys(one.left_out for one in kinds if one.left_out is not None):
        parts.append(f"{wording.listing([one.kind for one in kinds if one.left_out == why])}: {why}")
    return "; ".join(parts)


def _names(effects: Sequence[Effect]) -> str:
    return wording.listing([one.kinds[0] for one in effects])


def _decided(large: Sequence[Effect], *, alone: bool) -> str:
    if len(large) == 1:
        return f"{large[0].kinds[0]} {'in 2M pages' if alone else 'decides it'}: {change(large[0])}"
    return f"{_names(large)} decide it: " + ", ".join(f"{one.kinds[0]} {change(one)}" for one in large)


def _nothing(main: Sequence[Effect]) -> str:
    each = wording.listing([f"{one.kinds[0]} {_interval(one)}" for one in main])
    return f"no effect of 2M pages was seen: {each}"


def _together(one: Effect) -> str:
    size = wording.percent(abs(one.percent) / 100, signed=False)
    more = "less" if one.percent < 0 else "more"
    return f"{wording.listing(one.kinds)} together take {size} {more} than their own effects make"


def change(one: Effect) -> str:
    """``−14.0% (−16.2% to −11.9%)``."""
    return f"{wording.percent(one.percent / 100)} ({_interval(one)})"


def _interval(one: Effect) -> str:
    if one.low_percent is None or one.high_percent is None:
        return "no interval"
    return f"{wording.end(one.low_percent / 100)} to {wording.end(one.high_percent / 100)}"


def following(campaign: Campaign, effects: Sequence[Effect], directory: Path) -> tuple[str, str]:
    """The next command and its purpose."""
    command, minutes = shlex.join(campaign.asked.argv), campaign.asked.minutes
    gains = [one.kinds[0] for one in effects if len(one.kinds) == 1 and one.seen and one.percent < 0]
    if gains:
        return f"pagelab advise --minutes {max(5.0, minutes):g} -- {command}", f"which part of {gains[0]} gains it"
    if any(one.seen for one in effects):
        return f"pagelab report {quoted(directory / 'runs')}", "every execution; 4K pages are the fastest"
    if minutes >= MOST_OF_A_COMMAND:
        return f"pagelab report {quoted(directory / 'runs')}", "every execution"
    into = directory.with_name(f"{directory.stem}-longer{directory.suffix}")
    longer = min(4 * minutes, MOST_OF_A_COMMAND)
    words = ["pagelab", "model", "kinds", "--minutes", f"{longer:g}", *_options(campaign.asked), "--into", str(into)]
    return f"{shlex.join(words)} -- {command}", f"{longer / minutes:g} times the executions, to see smaller effects"


def _options(asked: Asked) -> list[str]:
    """The options of what is measured, as they are typed."""
    given = {
        "--counts": None if asked.counts == "auto" else asked.counts,
        "--processor": asked.processor,
        "--window": asked.window,
        "--timeout": None if asked.timeout_s is None else f"{asked.timeout_s:g}",
        "--seed": None if asked.seed == 1 else str(asked.seed),
    }
    return [word for option, value in given.items() if value is not None for word in (option, value)]


def text(found: KindsDocument) -> str:
    """The whole result as printed text."""
    lines = [found.verdict, "", *columns(effect_rows(found)), "", *columns(combination_rows(found)), ""]
    lines += facts(found)
    lines += [f"warning: {one.message}" for one in found.told]
    return "\n".join([*lines, f"next: {found.next}", f"      ({found.why})"])


def effect_rows(found: KindsDocument) -> list[list[str]]:
    """Header and rows of the effects."""
    rows = [["2M pages for", "change of R", f"{wording.level(found.level)} interval", "after Holm"]]
    for one in found.effects:
        p = wording.p_value(one.p_holm)
        rows.append([" × ".join(one.kinds), wording.percent(one.percent / 100), _interval(one), p])
    return rows


def combination_rows(found: KindsDocument) -> list[list[str]]:
    """Header and rows of the combinations: R, and H, M and C if known."""
    counts = ["H", "M", "C"] if found.counts is not None else []
    rows = [["in 2M pages", f"R ({found.unit})", "runs", *counts]]
    for one in found.combinations:
        rows.append([_large(one), number(one.r), str(one.runs), *_counts(one, with_them=bool(counts))])
    return rows


def _large(one: Combination) -> str:
    return " + ".join(one.large) or "nothing"


def _counts(one: Combination, *, with_them: bool) -> list[str]:
    return [number(value or 0.0) for value in (one.h, one.m, one.c)] if with_them else []


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def facts(found: KindsDocument) -> list[str]:
    """Sentences on the size of each kind, the meaning of R, and the source of the counts."""
    used = ", ".join(
        f"{one.kind} {wording.size(one.touched_bytes)}" + (f" ({one.left_out})" if one.left_out else "")
        for one in found.kinds
    )
    what = measured(found.window, counted=found.counts == "counted")
    lines = [
        f"touched: {used}",
        f"R: {what}, the {found.estimator} of the repeats; effects are Hodges–Lehmann estimates over {found.blocks} "
        "blocks",
    ]
    if found.counts is None:
        return [*lines, f"H, M, C: none ({found.counts_why}); simulated with: --counts simulated"]
    return [*lines, f"H, M, C: {found.counts} ({found.counts_why})"]
