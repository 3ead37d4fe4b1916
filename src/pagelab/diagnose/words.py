"""A diagnosis in words: the same sentences on the terminal, in the JSON and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagelab.analysis import wording
from pagelab.diagnose.model import Confirmation, Finding, Interval, Outcome, Settings
from pagelab.diagnose.sources import COMBINED

VERDICTS = {
    "cause": "most of it",
    "part": "part of it",
    "adds": "adds spread",
    "ruled-out": "not the main cause",
    "undecided": "no effect seen",
    "left-out": "left out",
}


def spread(fraction: float) -> str:
    """A coefficient of variation: ``31%``, ``2.1%``, ``0.42%``."""
    return wording.percent(fraction, signed=False)


def plus_minus(found: Interval) -> str:
    """``−0.4% ± 0.6%``: the longer side of the interval."""
    half = max(found.high - found.estimate, found.estimate - found.low)
    return f"{wording.percent(found.estimate)} ± {wording.percent(half, signed=False)}"


def ratio(found: Interval) -> str:
    """``0.43 (0.31–0.60)``."""
    return f"{found.estimate:.2f} ({found.low:.2f}–{found.high:.2f})"


def outcome_of(found: Interval, confirmation: Confirmation | None, limit: float) -> Outcome:
    """Which of the four answers it is."""
    if confirmation is not None:
        return "confirmed" if confirmation.confirmed else "not-confirmed"
    return "nothing-to-explain" if found.high < limit else "unexplained"


def headline(outcome: Outcome, found: Interval, confirmation: Confirmation | None, settings: Settings) -> str:
    """The first line."""
    if outcome == "nothing-to-explain":
        return (
            f"there is no spread to explain: executions differ by {spread(found.estimate)} (surely by less than "
            f"{spread(settings.negligible)})"
        )
    if outcome == "unexplained":
        return f"nothing that pagelab can switch here explains the spread of {spread(found.estimate)}"
    assert confirmation is not None
    change = f"from {spread(confirmation.cv_default)} to {spread(confirmation.cv_recommended)}"
    if outcome == "not-confirmed":
        return (
            f"{confirmation.source} looked like the cause, but fresh executions do not confirm it: spread {change} "
            f"({confirmation.recommended}), which chance explains"
        )
    return f"pin {confirmation.recommended}: spread falls {change}, mean {_mean(confirmation)}"


def _mean(found: Confirmation) -> str:
    if found.mean == "undecided":
        return f"not decided ({plus_minus(found.mean_shift)})"
    return f"{found.mean} ({plus_minus(found.mean_shift)})"


def sentences(
    outcome: Outcome, findings: Sequence[Finding], confirmation: Confirmation | None, settings: Settings
) -> list[str]:
    """What comes after the headline."""
    told = []
    if confirmation is not None and confirmation.confirmed:
        told.append(f"how: {confirmation.how}")
    if confirmation is not None and confirmation.confirmed and confirmation.mean == "undecided":
        enough = confirmation.minutes_for_mean
        told.append(
            f"to tell whether the mean stays within ± {spread(settings.unchanged)}"
            + (f" takes about --minutes {enough:g}" if enough is not None else " takes more executions")
        )
    if confirmation is not None and confirmation.confirmed and confirmation.sd_ratio.high >= 1:
        typical = confirmation.deviation_ratio
        told.append(
            "a few extreme executions make the standard deviation uncertain; the mean absolute deviation falls to "
            f"{typical.estimate:.2f} times ({typical.low:.2f} to {typical.high:.2f})"
        )
    alone = [one for one in findings if one.key != COMBINED]
    for verdict, words in (
        ("cause", "pinning one of these removes most of the variance: {}"),
        ("part", "these make part of it: {}"),
        ("adds", "pinning these adds spread: {}"),
        ("ruled-out", "surely not the main cause: {}"),
        ("undecided", "no effect seen, and not ruled out: {}"),
    ):
        names = [one.label for one in alone if one.verdict == verdict]
        if names:
            told.append(words.format(wording.listing(names)))
    if outcome == "unexplained":
        told.append(
            "the program itself (sleeping, random numbers, threads, input and output) or the machine's other work may "
            "make it; see the schedule plot of the report for drift"
        )
    return told


def value_sentences(findings: Sequence[Finding]) -> list[str]:
    """Sources whose values give different times: what "one lucky layout is no cure" means in figures."""
    told = []
    for one in findings:
        if not one.values_differ or one.share is None:
            continue
        slowest = max(one.values, key=lambda value: value.mean)
        fastest = min(one.values, key=lambda value: value.mean)
        told.append(
            f"{one.label}: the value matters: {slowest.name} is {wording.percent(slowest.mean / fastest.mean - 1)} "
            f"against {fastest.name}; the choice makes {one.share.estimate:.0%} of the variance where chance makes it"
        )
    return told


def extremes(findings: Sequence[Finding]) -> list[str]:
    """Verdicts that the interval of the SD ratio alone would not carry: what they rest on."""
    told = []
    for one in findings:
        ratio_, typical = one.sd_ratio, one.deviation_ratio
        if one.verdict not in ("cause", "part", "adds") or ratio_ is None or typical is None:
            continue
        if ratio_.low < 1 < ratio_.high:
            change = "rises" if one.verdict == "adds" else "falls"
            told.append(
                f"{one.label}: a few extreme executions make the ratio of standard deviations uncertain; the verdict "
                f"rests on the mean absolute deviation, which {change} to {typical.estimate:.2f} times "
                f"({typical.low:.2f} to {typical.high:.2f})"
            )
    return told


def left_out(findings: Sequence[Finding]) -> list[str]:
    return [f"{one.label} was left out: {one.reason}" for one in findings if one.verdict == "left-out"]


def colour_note(findings: Sequence[Finding], verdict: dict[str, Any] | None) -> list[str]:
    """Doctor's verdict, wherever a frames source ran."""
    if not any(one.key.startswith("frames-") and one.verdict != "left-out" for one in findings):
        return []
    from pagelab.machine.colours.notes import PROBE_COMMAND, sentence

    if verdict is None:
        return [f"frames: whether colours can matter on this machine is not known; run: {PROBE_COMMAND}"]
    return [f"frames: {sentence(verdict)}"]
