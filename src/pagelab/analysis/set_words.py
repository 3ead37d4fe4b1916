"""Writes sentences on a set of programs: one for each policy, on time and on spread, by the rule of `answer`."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log1p

from pagelab.analysis import wording
from pagelab.analysis.answer import Answer, answer_of, left_by_holm, sized
from pagelab.analysis.model import Design, Interval, SetContrast, SetPart

MOST_TOLD = 2
"""Most policies on which the headline contains the whole sentence."""


def answer_to(c: SetContrast, part: SetPart, design: Design) -> Answer:
    """The answer to one comparison over the set: ``lower``, ``higher``, ``same`` within ± 3%, or ``cannot-tell``."""
    interval = (
        None
        if c.interval is None
        else Interval(c.interval.low - 1, c.interval.high - 1, c.interval.level, c.interval.achieved)
    )
    change = None if c.ratio is None else c.ratio - 1
    left = left_by_holm([one.p_holm for one in part.contrasts], 1 - design.level)
    among = next(n for one, n in zip(part.contrasts, left, strict=True) if one == c)
    found = answer_of(change, interval, c.p_holm, c.programs, level=design.level, family=among * design.p_factor)
    late = c.timed_out + c.timed_out_baseline
    hidden = found.said in ("lower", "higher") and c.verdict == "no-difference"
    if late and (hidden or found.said in ("same", "cannot-tell")):
        return replace(found, said="cannot-tell", late=late, seen=None, needed=None)
    return found


def words(c: SetContrast, part: SetPart, design: Design) -> str:
    """The answer in words: ``1.2% slower``, ``0.71 times as large``, ``same within ±1.1%``, ``cannot tell: …``."""
    found = answer_to(c, part, design)
    if c.ratio is None:
        return "could not be made"
    if found.said in ("lower", "higher"):
        return _changed(c, part)
    if found.said == "same" and found.interval is not None:
        return f"same within ±{_reach(found.interval)}"
    return _undecided_beside(c, found, part) if design.tested else f"{_estimate(c)}, not tested"


def sentences(part: SetPart, design: Design) -> tuple[str, ...]:
    """One sentence per policy."""
    return tuple(_once(f"{_over(*pair)} {_of_policy(pair, part, design)}.", design) for pair in _pairs(part))


def headline(part: SetPart, design: Design) -> str:
    """The sentences of up to :data:`MOST_TOLD` policies, those with the smallest p, and the number of differences.

    Beside a found difference, a comparison without one has no numbers: they are in :func:`sentences`.
    """
    pairs = _pairs(part)
    if not pairs:
        return "This study compares nothing: it has one policy, or no baseline ran."
    if all(c.verdict == "not-testable" for c in part.contrasts):
        return "Nothing can be compared yet: no program has executions of a policy and of its baseline."
    shown_pairs, rest = pairs, ""
    if len(pairs) > MOST_TOLD:
        least = sorted(pairs, key=lambda pair: min(1.0 if c.p is None else c.p for c in pair))
        shown_pairs = least[:MOST_TOLD]
        found = sum(c.verdict in ("lower", "higher") for c in part.contrasts)
        rest = f"; in {found or 'none'} of {len(part.contrasts)} comparisons a difference was found"
    counts = {max(c.programs for c in pair) for pair in shown_pairs}
    brief = len(pairs) > 1 and any(c.verdict in ("lower", "higher") for c in part.contrasts)
    told = [_of_policy(pair, part, design, brief=brief) for pair in shown_pairs]
    if len(counts) == 1:
        text = f"{_over(*shown_pairs[0])} {'; '.join(told)}"
    else:
        text = "; ".join(f"{_over(*pair)} {each}" for pair, each in zip(shown_pairs, told, strict=True))
    return _once(f"{text}{rest}.", design)


def _once(text: str, design: Design) -> str:
    """The text with the explanation of the numbers in parentheses at their first use only."""
    name = f"{wording.level(design.interval_level)} interval "
    lead, found, rest = text.partition(name)
    return lead + found + rest.replace(name, "")


def _pairs(part: SetPart) -> list[tuple[SetContrast, SetContrast]]:
    """The contrasts of each policy: time and spread."""
    times = [c for c in part.contrasts if c.quantity == "time"]
    spreads = [c for c in part.contrasts if c.quantity == "spread"]
    return list(zip(times, spreads, strict=True))


def _over(*found: SetContrast) -> str:
    return f"Over {wording.count(max(c.programs for c in found), 'program')}"


def _of_policy(pair: tuple[SetContrast, SetContrast], part: SetPart, design: Design, *, brief: bool = False) -> str:
    """The sentence's part on a policy: ``page-coloring makes runs 1.2% slower (…) and their spread from run to run 0.71
    times as large (…)``.
    """
    time, spread = (_clause(c, part, design, max(one.programs for one in pair), brief=brief) for c in pair)
    policy, answers = pair[0].policy, [answer_to(c, part, design).said for c in pair]
    if answers[0] in ("lower", "higher") and answers[1] in ("lower", "higher"):
        return f"{policy} {time} and {spread.removeprefix('makes ').replace('the spread of runs', 'their spread', 1)}"
    return f"{policy} {time}; it {spread}"


def _clause(c: SetContrast, part: SetPart, design: Design, most: int, *, brief: bool) -> str:
    """The clause after the policy's name; ``brief``: without numbers where no difference was found."""
    found = answer_to(c, part, design)
    if c.ratio is None:
        what = "time" if c.quantity == "time" else "spread"
        return f"cannot be judged by {what}: no program has a ratio"
    facts = _facts(c, found, most)
    if found.said in ("lower", "higher"):
        if c.quantity == "spread":
            return f"makes the spread of runs {_changed(c, part)} ({facts})"
        if part.is_time:
            return f"makes runs {_changed(c, part)} ({facts})"
        return f"{'lowers' if found.said == 'lower' else 'raises'} the primary metric by {_size(c)} ({facts})"
    what = "the spread of runs" if c.quantity == "spread" else "times" if part.is_time else "the primary metric"
    if found.said == "same" and found.interval is not None:
        same = f"leaves {what} the same within ±{_reach(found.interval)}"
        return same if brief else f"{same} ({facts})"
    if brief:
        return f"may or may not change {what}"
    blind = _undecided(c, found, part) if design.tested or c.programs < found.fewest else ""
    lead = "cannot tell" if design.tested else "not tested"
    told = ", ".join(each for each in (_estimate(c), facts) if each)
    return f"may or may not change {what} ({lead}: {told}{f'; {blind}' if blind else ''})"


def _facts(c: SetContrast, found: Answer, most: int) -> str:
    """The numbers in parentheses: ``95% interval 0.3–2.1%, p = 0.012``."""
    facts = []
    if c.interval is not None:
        ends = f"{wording.factor(c.interval.low)}–{wording.factor(c.interval.high)}"
        as_factor = c.quantity == "spread" or (c.ratio is not None and c.ratio >= 3)
        shown = ends if as_factor or found.interval is None else sized(found, found.interval)
        facts.append(f"{wording.level(c.interval.level)} interval {shown}")
    if c.programs < most:
        facts.append(wording.count(c.programs, "program"))
    if c.p_holm is not None:
        facts.append(wording.p_value(c.p_holm))
    return ", ".join(facts)


def _changed(c: SetContrast, part: SetPart) -> str:
    assert c.ratio is not None
    if c.quantity == "spread":
        return f"{wording.factor(c.ratio)} times as large"
    names = ("faster", "slower") if part.is_time else ("lower", "higher")
    if c.ratio >= 3:
        return f"{wording.digits(c.ratio)} times as {'long' if part.is_time else 'high'}"
    return f"{_size(c)} {names[c.ratio > 1]}"


def _size(c: SetContrast) -> str:
    change = abs((c.ratio or 1) - 1)
    return "under 0.01%" if change < 5e-5 else wording.percent(change, signed=False)


def _estimate(c: SetContrast) -> str:
    assert c.ratio is not None
    if c.quantity == "spread":
        return f"{wording.factor(c.ratio)} times as large"
    return wording.percent(c.ratio - 1)


def _undecided(c: SetContrast, found: Answer, part: SetPart) -> str:
    """Why a comparison is undecided: too few programs, or a difference that Holm's correction removes; else the change
    that would be found in fewer than four of five such studies.
    """
    if c.programs < found.fewest:
        return f"{found.fewest} programs are the fewest"
    if found.late:
        return f"{wording.count(found.late, 'execution')} timed out, which no ratio includes"
    if c.interval is not None and not c.interval.low <= 1 <= c.interval.high:
        return f"alone it would be a difference, among {len(part.contrasts)} comparisons it is not enough"
    if found.seen is None:
        return ""
    if c.quantity == "time":
        return f"changes under {wording.digits(100 * found.seen, 2)}% would not be seen"
    reach = log1p(found.seen)
    return f"factors between {wording.factor(exp(-reach))} and {wording.factor(exp(reach))} would not be seen"


def _undecided_beside(c: SetContrast, found: Answer, part: SetPart) -> str:
    """As :func:`_undecided`, short enough for the space beside a picture's row."""
    if c.programs < found.fewest:
        return f"cannot tell: {found.fewest} programs are the fewest"
    if found.late:
        return f"cannot tell: {wording.count(found.late, 'execution')} timed out"
    if c.interval is not None and not c.interval.low <= 1 <= c.interval.high:
        return f"cannot tell among {len(part.contrasts)} comparisons"
    if found.seen is None:
        return "cannot tell"
    if c.quantity == "time":
        return f"cannot tell: under {wording.digits(100 * found.seen, 2)}% would not be seen"
    reach = log1p(found.seen)
    return f"cannot tell: {wording.factor(exp(-reach))}–{wording.factor(exp(reach))} times not seen"


def _reach(interval: Interval) -> str:
    return f"{wording.digits(100 * max(abs(interval.low), abs(interval.high)), 2)}%"
