"""The first screen of a diagnosis: the cause, its size and confidence, the fix, and the main warning.

All of it is made of a :class:`Diagnosis`, so that the terminal, the JSON and the page say the same.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.metrics import metric_named
from pagelab.diagnose import words
from pagelab.diagnose.model import Confirmation, Diagnosis, Finding, Interval, Settings, lowering
from pagelab.diagnose.sources import COMBINED
from pagelab.errors import quoted

MAIN = 0.5
"""A cause of at least this share of the variance decides the time; a smaller one makes part of it."""
CAUSES = {
    "aslr": "ASLR",
    "addresses": "where heap and mappings lie",
    "environment": "the size of the environment",
    "pages": "the size of its pages",
    "cpu": "the CPU that it runs on",
    "page-cache": "what the page cache holds",
    "host": "whether the host of the machine backs its memory",
    "frames-page-coloring": "the colours of its frames",
    "frames-bin-hopping": "the colours of its frames",
    "frames-random": "the frames that it gets",
    COMBINED: "several sources together",
}
"""Key of a source → what varies while it is not pinned."""


@dataclass(frozen=True)
class Share:
    """A part of the variance of the default's log times; ``range`` is empty for the rest."""

    kind: Literal["cause", "machine", "unexplained"]
    name: str
    share: float
    range: str = ""


@dataclass(frozen=True)
class Following:
    """The next command and its purpose."""

    command: str
    why: str


def headline(found: Diagnosis, trouble: str | None = None) -> str:
    """One sentence; ``trouble``: the reason why the apparent cause was not confirmed."""
    metric, one = metric_named(found.metric), found.confirmation
    if found.outcome == "nothing-to-explain":
        spread = found.default_spread
        return (
            f"Nothing jumps: an execution takes {wording.quantity(found.default_mean, metric, 3)}, and executions "
            f"differ by {words.spread(spread.estimate)} (at most {words.spread(spread.high)}; {_seen(found)})"
        )
    jump = _jump(found)
    if trouble is not None:
        return f"No confirmed cause: {jump}; {trouble}"
    if one is None:
        return _of_no_source(found, jump)
    if one.confirmed:
        return _confirmed(found, one, jump)
    cause, fresh = _name(_confirmed_finding(found, one)), f"{one.executions} fresh executions of each"
    if one.result == "refuted":
        return (
            f"No cause found: {jump}; {cause} looked like it, and {fresh} refute that "
            f"({words.gone(_deciding(one))} of the variance)"
        )
    return (
        f"No confirmed cause: {jump}; {cause} may make {words.gone(_deciding(one))} of the variance, as far "
        f"as {fresh} say"
    )


def _confirmed(found: Diagnosis, one: Confirmation, jump: str) -> str:
    """The sentence on a confirmed source. Others that the exploration found were not run again: they come after it."""
    finding = _confirmed_finding(found, one)
    others = [_name(each) for each in lowering(found.findings) if each.key not in (COMBINED, finding.key)]
    several = finding.key == COMBINED
    removed = one.of_default.removed
    ending = "" if several else "s"
    decides = f"decide{ending} it" if removed.estimate >= MAIN else f"make{ending} part of it"
    pinned = f"with {one.recommended}" if several else "pinned"
    unconfirmed = "" if several or not others else f"; {wording.listing(others)}: also seen, not confirmed"
    return (
        f"{wording.capital(_name(finding))} {decides}: {jump}; {pinned}, {removed.estimate:.0%} of the "
        f"variance is gone ({words.shares(removed)}, {one.executions} fresh executions of each){unconfirmed}"
    )


def machine_decides(found: Diagnosis) -> bool:
    """No source was found, and most of the variance is common to all executions of a block.

    The estimate alone would not do: of few blocks its interval begins near nothing.
    """
    return found.outcome == "unexplained" and mostly_the_machines(found.machine)


def mostly_the_machines(share: Interval | None) -> bool:
    return share is not None and share.estimate >= MAIN and share.low >= words.MACHINES


def _of_no_source(found: Diagnosis, jump: str) -> str:
    machine = found.machine
    if machine is not None and machine_decides(found):
        return (
            f"The machine decides it: {jump}; executions that ran at the same time were slow together under every "
            f"pin: {machine.estimate:.0%} of the variance ({words.shares(machine)})"
        )
    tried = sum(one.verdict != "left-out" and one.key != COMBINED for one in found.findings)
    power = (
        f"one that halves the spread would have shown in four diagnoses of five ({words.FEWER})"
        if found.wanted_minutes is None
        else "one that halves the spread may have been missed"
    )
    return (
        f"No cause found: {jump}; none of {wording.count(tried, 'source')} that were pinned was seen to make it, and "
        f"{power}"
    )


def _jump(found: Diagnosis) -> str:
    """``7 or 13 ms``; ``5 to 13 ms`` where executions take more than two times."""
    metric, typical = metric_named(found.metric), found.typical
    if typical is None:
        return f"a spread of {words.spread(found.default_spread.estimate)}"
    factor, unit = wording.display_unit(metric, [typical.low, typical.high])
    ends = [typical.low / factor, typical.high / factor]
    texts: list[str] = []
    for significant in (2, 3, 4):
        texts = [wording.digits(value, significant) for value in ends]
        texts = [text.removesuffix(".0") for text in texts] if significant == 2 else texts
        if texts[0] != texts[1]:
            break
    else:
        return f"a spread of {words.spread(found.default_spread.estimate)}"
    return f"{texts[0]} {'or' if typical.two else 'to'} {texts[1]} {unit}".rstrip()


def _seen(found: Diagnosis) -> str:
    """Of n executions none is slow with a probability of 5% where 3/n of them are (the rule of three)."""
    from pagelab.diagnose.specs import COPIES

    executions = COPIES * found.blocks
    return f"{executions} executions, in which a slow mode rarer than 1 in {executions // 3} may not have shown"


def _confirmed_finding(found: Diagnosis, one: Confirmation) -> Finding:
    return next(each for each in found.findings if each.label == one.source)


def _deciding(one: Confirmation) -> Interval:
    """The variance removed in the contrast that the result rests on."""
    return next(each for each in one.contrasts if each.result == one.result).removed


def _name(one: Finding) -> str:
    return CAUSES.get(one.key, one.label)


def shares(found: Diagnosis) -> list[Share]:
    """Parts of the default's variance: the confirmed cause, the machine, and the rest; they add up to 1.

    The cause is taken from fresh executions, the machine's part from the exploration. Where both are large they can
    exceed the whole by chance: the machine then has what the cause leaves. Empty where nothing is explained, or where
    there is nothing to explain.
    """
    if found.outcome == "nothing-to-explain":
        return []
    parts, left = [], 1.0
    one = found.confirmation
    if one is not None and one.confirmed:
        removed = one.of_default.removed
        share = min(1.0, max(0.0, removed.estimate))
        parts.append(Share("cause", _name(_confirmed_finding(found, one)), share, words.shares(removed)))
        left -= share
    if found.machine is not None and left > 0:
        share = min(left, found.machine.estimate)
        parts.append(Share("machine", "the machine", share, words.shares(found.machine)))
        left -= share
    return [*parts, Share("unexplained", "unexplained", max(0.0, left))] if parts else []


def share_text(one: Share) -> str:
    """``ASLR 86% (82–88%)``."""
    return f"{one.name} {one.share:.0%}" + (f" ({one.range})" if one.range else "")


def fix(found: Diagnosis) -> str | None:
    """The command that removes a confirmed cause. Remarks follow as a shell comment: the line can be copied whole."""
    one = found.confirmation
    if one is None or not one.confirmed:
        return None
    command = shlex.join(found.settings.argv)
    how, _, other = one.how.partition(" (or: ")
    how, _, more = how.partition(", ")
    if not how.startswith(("pagelab run", "sudo pagelab run")):
        what, colon, typed = one.how.partition(": ")
        return f"{typed}  # {what}" if colon else one.how
    remarks = [more] if more else []
    remarks += [f"or: {other.removesuffix(')')} {command}"] if other else []
    return "  # ".join([f"{how} -- {command}", *(["; ".join(remarks)] if remarks else [])])


def following(found: Diagnosis, directory: Path) -> Following:
    """The next command: the fix itself, more time, another metric, or the whole report."""
    done, one = fix(found), found.confirmation
    if done is not None and one is not None:
        spread = f"spread {words.spread(one.cv_recommended)} in place of {words.spread(one.cv_default)}"
        return Following(done, f"{spread}; mean {words.plus_minus(one.mean_shift)}")
    report = Following(f"pagelab report {quoted(directory)}", "every execution, in its order")
    if found.outcome == "nothing-to-explain":
        return report
    # More executions beside the same other programs would have the same noise.
    metric = None if found.waited is None else "cpu_s"
    beside = "" if found.waited is None else f" of wall time; processor time, because {found.waited}"
    if one is not None and one.minutes_for_spread is not None:
        why = "as many executions as find such an effect in four of five diagnoses"
        return Following(again(found.settings, minutes=one.minutes_for_spread, metric=metric), f"{why}{beside}")
    machine = 0.0 if found.machine is None else found.machine.estimate
    if machine >= words.MACHINES and found.metric == "wall_s":
        why = "processor time excludes waiting for other programs"
        return Following(again(found.settings, metric="cpu_s"), why)
    if found.wanted_minutes is not None:
        why = f"enough to find a source that halves the spread in four of five diagnoses ({words.FEWER})"
        return Following(again(found.settings, minutes=found.wanted_minutes, metric=metric), f"{why}{beside}")
    if found.waited is not None:
        return Following(again(found.settings, metric="cpu_s"), f"processor time, because {found.waited}")
    return report


def again(
    settings: Settings, *, minutes: float | None = None, metric: str | None = None, into: Path | None = None
) -> str:
    """The command line of another diagnosis of the same program, with the same rules; without ``into`` it takes the
    next free directory."""
    given = ["--minutes", f"{settings.minutes if minutes is None else minutes:g}"]
    chosen = settings.metric if metric is None else metric
    given += ["--metric", chosen] if chosen != "wall_s" else []
    given += ["--measure-regex", settings.regex] if settings.regex else []
    given += ["--timeout", f"{settings.timeout_s:g}"] if settings.timeout_s else []
    rules = settings.model_dump(include={"unchanged", "negligible", "level", "seed"}, exclude_defaults=True)
    for name, value in rules.items():
        given += [f"--{name}", f"{100 * value:.12g}" if name in ("unchanged", "negligible") else str(value)]
    given += [] if into is None else ["--into", str(into)]
    return shlex.join(["pagelab", "diagnose", *given, "--", *settings.argv])
