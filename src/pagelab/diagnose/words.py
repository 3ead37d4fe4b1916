"""Describes a diagnosis in words: the same sentences on the terminal, in the JSON and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagelab.analysis import wording
from pagelab.diagnose.model import Confirmation, Finding, Interval, Outcome, Pin, Settings, Value, Verdict, lowering
from pagelab.diagnose.sources import COMBINED

FEWER = "fewer where times have a long tail"
"""What the budget of an exploration, which assumes a kurtosis, does not promise (docs/diagnose.md: power)."""


def spread(fraction: float) -> str:
    """A coefficient of variation: ``31.0%``, ``2.1%``, ``0.42%``."""
    return wording.percent(fraction, signed=False)


def plus_minus(found: Interval | None) -> str:
    """An estimate with the longer side of its interval: ``−0.4% ± 0.6%``; None is ``not known``."""
    if found is None:
        return "not known"
    half = max(found.high - found.estimate, found.estimate - found.low)
    return f"{wording.percent(found.estimate)} ± {wording.percent(half, signed=False)}"


def ratio(found: Interval) -> str:
    """A ratio with its interval: ``0.43 (0.31–0.60)``."""
    return f"{_factor(found.estimate)} ({_factor(found.low)}–{_factor(found.high)})"


_LEAST, _MOST = 0.01, 1000.0
"""Ratios beyond these say no more than them."""


def _factor(ratio: float) -> str:
    if ratio < _LEAST / 2:
        return f"<{_LEAST:g}"
    return f">{_MOST:,.0f}" if ratio > _MOST else wording.fixed(ratio, about=1.0)


def outcome_of(found: Interval, confirmation: Confirmation | None, limit: float) -> Outcome:
    """The outcome of the diagnosis."""
    if confirmation is not None:
        return confirmation.result
    return "nothing-to-explain" if found.high < limit else "unexplained"


def no_confirmation(finding: Finding, pin: Pin, reason: str) -> str:
    """The sentence where too many of the fresh executions failed."""
    return f"{finding.label} looked like it, and {pin.name} could not be confirmed, because {reason}"


def mean_text(found: Confirmation) -> str:
    """The verdict on the mean: ``unchanged (−0.4% ± 0.6%)``."""
    if found.mean_shift is None:
        return "not decided (executions differ too much for an interval)"
    if found.mean == "undecided":
        return f"not decided ({plus_minus(found.mean_shift)})"
    return f"{found.mean} ({plus_minus(found.mean_shift)})"


def sentences(
    outcome: Outcome,
    findings: Sequence[Finding],
    confirmation: Confirmation | None,
    settings: Settings,
) -> list[str]:
    """The sentences after the first screen."""
    told = []
    if confirmation is not None:
        told += _of_confirmation(confirmation, settings)
    able = lowering(findings)
    alone = [one for one in findings if one.key != COMBINED]
    for verdict, words in (
        ("cause", "pinning one of these removes most of the variance: {}"),
        ("part", "pinning one of these removes part of the variance: {}"),
        ("adds", "pinning one of these adds spread: {}"),
        ("ruled-out", "not the main cause (joint level {level}): {}"),
        ("undecided", "no effect seen, and not ruled out: {}"),
    ):
        names = [one.label for one in alone if one.verdict == verdict and not (quiet(verdict) and one.values_differ)]
        if names:
            told.append(words.format(wording.listing(names), level=wording.level(settings.level)))
    matters = [
        one.label
        for one in findings
        if one.key != COMBINED and one.values_differ and one not in able and one.verdict not in ("adds", "left-out")
    ]
    if matters:
        listed = wording.listing(matters)
        told.append(f"not seen to make the spread by default, but the value matters where it changes: {listed}")
    if outcome == "unexplained":
        told.append(
            "causes that pagelab cannot switch: the program itself (sleeping, random numbers, threads, input and "
            "output) and the machine's other work; the schedule plot of the report shows drift"
        )
    return told


def quiet(verdict: Verdict) -> bool:
    """Whether the verdict is that pinning was not seen to change the spread."""
    return verdict in ("ruled-out", "undecided")


def _of_confirmation(found: Confirmation, settings: Settings) -> list[str]:
    if not found.confirmed:
        return [_not_confirmed(found)]
    change = f"from {spread(found.cv_default)} to {spread(found.cv_recommended)}"
    told = [f"pinned by {found.recommended}, the spread falls {change}, mean {mean_text(found)}"]
    if found.mean == "undecided":
        enough = found.minutes_for_mean
        told.append(
            f"to tell whether the mean stays within ± {spread(settings.unchanged)}"
            + (f" takes about --minutes {enough:g}" if enough is not None else " takes more executions")
        )
    for one in found.contrasts[1:]:
        told.append(
            f"it is the cause, not its side effects: against {one.against} ({spread(one.cv_against)}), "
            f"{gone(one.removed)} of the variance is gone"
        )
    if found.of_default.sd_ratio.high >= 1:
        typical = found.of_default.deviation_ratio
        told.append(
            "a few extreme executions make the standard deviation uncertain; the mean absolute deviation falls to "
            f"{_factor(typical.estimate)} times ({_factor(typical.low)} to {_factor(typical.high)})"
        )
    return told


def _not_confirmed(found: Confirmation) -> str:
    """A sentence on the contrast that prevented the confirmation, and the budget that would decide."""
    one = next(each for each in found.contrasts if each.result == found.result)
    other = "" if one is found.of_default else f", against {one.against} (spread {spread(one.cv_against)})"
    removed = gone(one.removed)
    if found.result == "refuted":
        return f"in the first executions {one.seen:.0%} of the variance seemed gone{other}; in fresh ones {removed}"
    halved = found.needed_for_half is not None
    executions, power = (found.needed_for_half, one.power_of_half) if halved else (found.needed, one.power)
    enough = found.minutes_for_spread
    budget = "" if enough is None else f", about --minutes {enough:g}"
    return (
        f"{removed} of the variance is gone with it{other}, which may be chance; an effect of "
        f"{one.seen / (2 if halved else 1):.0%} would need {executions:,} executions of each{budget}, to be found in "
        f"four of five diagnoses; these {found.executions} find it in {power:.0%}"
    )


def gone(removed: Interval) -> str:
    """A removed share with its interval: ``56% (31–72%)``; values below 0 are written as 0."""
    return f"{max(0.0, removed.estimate):.0%} ({shares(removed)})"


def shares(found: Interval) -> str:
    """An interval of shares: ``31–72%``; values below 0 are written as 0, and no others are."""
    low, high = (min(1.0, max(0.0, value)) for value in (found.low, found.high))
    return f"{wording.fixed(100 * low, 0)}–{wording.fixed(100 * high, 0)}%"


def value_sentences(findings: Sequence[Finding]) -> list[str]:
    """Sentences on sources whose values give different times, with figures."""
    told = []
    for one in findings:
        if not one.values_differ:
            continue
        slowest, fastest = _extremes(one)
        text = (
            f"{one.label}: the value matters: {slowest.name} is {wording.percent(slowest.mean / fastest.mean - 1)} "
            f"against {fastest.name}"
        )
        if one.share is not None:
            text += (
                f"; where the value is left to chance, it makes {gone(one.share)} of the variance, as far as "
                f"{len(one.values)} values show"
            )
        told.append(text)
    return told


def one_layout(findings: Sequence[Finding], outcome: Outcome) -> list[str]:
    """A sentence where, with fixed addresses, the time depends on the size of the environment."""
    environment = next((one for one in findings if one.key == "environment"), None)
    if environment is None or not environment.values_differ or outcome == "nothing-to-explain":
        return []
    slowest, fastest = _extremes(environment)
    return [
        "with ASLR off, the time depends on the size of the environment (one of the sizes tried takes "
        f"{slowest.mean / fastest.mean:.2f} times as long as another): a fixed layout is one draw, lucky or not"
    ]


def _extremes(one: Finding) -> tuple[Value, Value]:
    """The slowest and the fastest value."""
    return max(one.values, key=lambda value: value.mean), min(one.values, key=lambda value: value.mean)


def lost(
    settings: Settings, findings: Sequence[Finding], planned: int, blocks: int, late: Mapping[str, int]
) -> list[str]:
    """Sentences on the effect of failed and timed-out executions on the figures."""
    told = []
    ended = sum(late.values())
    if ended:
        kept = settings.metric == "wall_s"
        how = "counted with the time until then" if kept else f"without {settings.metric}, so their blocks are left out"
        told.append(
            f"{wording.count(ended, 'execution')} did not end within --timeout {settings.timeout_s:g}: {how}; spreads "
            "are larger than they are shown"
        )
    fewest = min([blocks, *(one.blocks for one in findings if one.verdict != "left-out")])
    if fewest < planned:
        told.append(
            f"executions failed: each source is judged by the blocks in which its own and its control's ended well "
            f"({fewest} to {planned} of {planned})"
        )
    return told


def extremes(findings: Sequence[Finding]) -> list[str]:
    """Sentences with the evidence for verdicts that do not follow from the interval of the SD ratio alone."""
    told = []
    for one in findings:
        ratio_, typical = one.sd_ratio, one.deviation_ratio
        if one.verdict not in ("cause", "part", "adds") or ratio_ is None or typical is None:
            continue
        if one.rests_beside and one.sd_ratio_beside is not None:
            if ratio_.low < 1 < ratio_.high:
                told.append(
                    f"{one.label}: block effects hide it in the ratio of standard deviations; "
                    f"the verdict rests on the times without that: SD ratio {ratio(one.sd_ratio_beside)}"
                )
            continue
        if ratio_.low < 1 < ratio_.high:
            change = "rises" if one.verdict == "adds" else "falls"
            told.append(
                f"{one.label}: a few extreme executions make the ratio of standard deviations uncertain; the verdict "
                f"rests on the mean absolute deviation, which {change} to {_factor(typical.estimate)} times "
                f"({_factor(typical.low)} to {_factor(typical.high)})"
            )
    return told


MACHINES = 0.2
"""The machine's effect on whole blocks is reported from this share of the default's variance on."""


def machines_share(found: Interval | None) -> list[str]:
    """A sentence on the share that no pin removes: executions of the same block were slow together."""
    if found is None or found.estimate < MACHINES:
        return []
    return [
        f"executions that ran at about the same time were slow together under every pin: the machine's other work "
        f"makes {gone(found)} of the default's variance, which no pin takes away; stop other programs, or take "
        "--metric cpu_s"
    ]


def compared_with(findings: Sequence[Finding]) -> list[str]:
    """A sentence per control: the pins that are compared with it; none where all pins have the same control."""
    groups: dict[str, list[str]] = {}
    for one in findings:
        if one.sd_ratio is not None:
            groups.setdefault(one.against, []).append(one.label)
    told = [f"{wording.listing(labels)}: compared with {against}" for against, labels in groups.items()]
    return told if len(groups) > 1 else []


def left_out(findings: Sequence[Finding]) -> list[str]:
    return [f"{one.label} was left out: {one.reason}" for one in findings if one.verdict == "left-out"]


def colour_note(findings: Sequence[Finding], verdict: dict[str, Any] | None) -> list[str]:
    """The verdict of ``pagelab doctor`` on colours, where a source of frames ran."""
    if not any(one.key.startswith("frames-") and one.verdict != "left-out" for one in findings):
        return []
    from pagelab.machine.colours.colour_warnings import PROBE_COMMAND, sentence

    if verdict is None:
        return [f"frames: whether colours can matter on this machine is not known; run: {PROBE_COMMAND}"]
    return [f"frames: {sentence(verdict)}"]
