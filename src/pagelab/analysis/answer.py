"""The answer to one comparison of pairs: lower, higher, the same, or undecided with the executions needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, expm1, log1p
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.model import Interval, Metric
from pagelab.stats.paired import FEWEST_PAIRS
from pagelab.stats.power import median_half_width, shift_seen

NEGLIGIBLE = 0.03
"""Changes within ± this fraction count as the same: a page size, a flag or a patch is seldom chosen for so little."""
Said = Literal["lower", "higher", "same", "cannot-tell"]
"""The answers: ``lower`` and ``higher`` where the test rejects after Holm; ``same`` where it does not and the whole
interval is within ± ``NEGLIGIBLE``; else ``cannot-tell``."""
Test = Literal["pairs", "rank-sum", "stratified"]


@dataclass(frozen=True)
class Answer:
    said: Said
    change: float | None
    """Ratio within pairs, less 1; without pairs, the ratio between executions, less 1."""
    interval: Interval | None
    p: float | None
    """p after Holm over the family."""
    pairs: int
    """Number of pairs with a size; executions of each condition where the test is not within pairs."""
    seen: float | None
    """The smallest change that this many pairs would show in four of five studies; None where they can show none."""
    needed: int | None
    """Executions of each condition for an interval of ± ``NEGLIGIBLE``. Where the interval is that narrow and the
    answer is still ``cannot-tell``: executions that decide if the change stays the same, more than the present ones."""
    test: Test = "pairs"
    fewest: int = FEWEST_PAIRS
    """The fewest pairs with which a test can reject; with fewer, no data would be enough."""
    comparisons: int = 1
    """Number of comparisons over which Holm corrects."""
    late: int = 0
    """Executions that the time limit ended: the test counts them as slowest, and they are in no size."""
    tested: int | None = None
    """Number of pairs, or executions of each condition, in the test; None: as many as have a size."""
    against: tuple[int, int] | None = None
    """The numbers of executions of both conditions with a size, where they differ and are not in pairs."""
    reachable: bool | None = None
    """Whether a test of so many executions can reject; None: ``fewest`` and ``tested`` tell."""
    shift: float | None = None
    """The change in the metric's unit, where there is no percentage."""
    shift_interval: Interval | None = None
    seen_shift: float | None = None
    """As ``seen``, in the metric's unit, where there is no percentage."""

    @property
    def has_size(self) -> bool:
        return self.change is not None or self.shift is not None

    @property
    def tied(self) -> bool:
        """Whether the test found a direction where the estimate is 0, because most differences are 0."""
        return self.said in ("lower", "higher") and (self.shift if self.change is None else self.change) == 0

    @property
    def too_few(self) -> bool:
        """Whether no data of this size could have been enough."""
        return _tested(self) < self.fewest if self.reachable is None else not self.reachable


@dataclass(frozen=True)
class Evidence:
    """What one comparison found: a test of all executions, and the size within those that finished."""

    p: float | None
    """p after Holm."""
    towards: Literal["lower", "higher"] | None
    """Where the test rejects: its direction."""
    change: float | None
    interval: Interval | None
    shift: float | None
    shift_interval: Interval | None
    pairs: int
    """Pairs, or executions of each condition, with a size."""
    tested: int
    """As many as are in the test."""
    late: int
    """Executions that the time limit ended and the test counts as slowest."""
    against: tuple[int, int] | None = None
    """The numbers of executions of both conditions with a size, where they differ and are not in pairs."""
    numbers: tuple[tuple[int, int], tuple[int, int]] | None = None
    """As of :func:`is_estimated`."""
    smallest_p: float | None = None
    """The smallest p that different numbers of executions can give; None where ``tested`` tells it."""


def judged(found: Evidence, *, level: float, family: int = 1, comparisons: int = 1, test: Test = "pairs") -> Answer:
    """The answer to a comparison: the only rule, by which ``try``, ``compare``, ``advise`` and the report speak.

    The direction is that of the test. Time-outs are in the test and in no size, and sizes ignore the blocks of a
    stratified test: where the two disagree, the answer has no size; and with time-outs nothing is ``same``. Where most
    differences are 0, the ranks of the others give a direction beside an estimate of 0 (``tied``). Of differences
    without a percentage ``same`` means that the interval is 0 to 0, as where most are 0.
    """
    answer = answer_of(
        found.change,
        found.interval,
        found.p,
        found.pairs,
        level=level,
        family=family,
        test=test,
        said=found.towards,
        smallest_p=found.smallest_p,
    )
    answer = replace(answer, comparisons=comparisons, late=found.late, tested=found.tested, against=found.against)
    if not _agree(found):
        return replace(answer, change=None, interval=None, seen=None, needed=None)
    if found.change is None:
        answer = replace(answer, shift=found.shift, shift_interval=found.shift_interval)
        answer = _of_differences(answer, 1 - level, family)
    if answer.tied:
        return replace(answer, seen=None, needed=None)
    if found.late and answer.said not in ("lower", "higher"):
        return replace(answer, said="cannot-tell", seen=None, needed=None)
    return answer


def _agree(found: Evidence) -> bool:
    """Whether the size may stand beside the direction of the test, where there is one."""
    if found.towards is None:
        return True
    size, ends = (found.change, found.interval) if found.change is not None else (found.shift, found.shift_interval)
    exists = is_estimated(found.pairs, found.tested, found.numbers)
    return stands(found.towards, size, ends, late=found.late > 0, exists=exists)


def stands(
    towards: Literal["lower", "higher"], size: float | None, ends: Interval | None, *, late: bool, exists: bool
) -> bool:
    """Whether a size stands beside a direction: it points the same way, and it is no accident of which executions
    finished.

    With time-outs (``late``) that needs an interval on that side of 0, and an estimate that ``exists`` with them
    (:func:`is_estimated`): the Hodges-Lehmann one is infinite as soon as half of all averages of two pairs have one.
    """
    if size is None or (size > 0 if towards == "lower" else size < 0):
        return False
    apart = ends is not None and (ends.high < 0 if towards == "lower" else ends.low > 0)
    return not late or (apart and exists)


def is_estimated(pairs: int, tested: int, numbers: tuple[tuple[int, int], tuple[int, int]] | None) -> bool:
    """Whether the Hodges-Lehmann estimate is finite with time-outs as infinite values: more than half of the averages
    of two pairs, or of the differences between executions, have none.

    ``numbers``: where the test is not within pairs, the executions that finished and those in the test, of each.
    """
    if numbers is None:
        return 2 * pairs * (pairs + 1) > tested * (tested + 1)
    (finished, other), (all_, all_others) = numbers
    return 2 * finished * other > all_ * all_others


def _of_differences(found: Answer, alpha: float, family: int) -> Answer:
    """The answer where there is no percentage, such as of counts that may be 0."""
    ends = found.shift_interval
    if found.said != "cannot-tell" or ends is None or found.too_few or found.late:
        return found
    if ends.low == ends.high == 0:
        return replace(found, said="same")
    if found.pairs < found.fewest:  # unequal numbers: the test can reject, and so many of each could show nothing
        return found
    reach = shift_seen(found.pairs, _exactly(alpha / family), found.test)
    width = (ends.high - ends.low) / 2
    return replace(found, seen_shift=width * reach / median_half_width(found.pairs, ends.level, found.test))


def answer_of(
    change: float | None,
    interval: Interval | None,
    p: float | None,
    pairs: int,
    *,
    level: float,
    family: int = 1,
    test: Test = "pairs",
    said: Said | None = None,
    smallest_p: float | None = None,
) -> Answer:
    """The answer by size and p alone. ``change`` and ``interval`` are fractions; ``p`` is Holm's over ``family`` tests.

    ``said``: the direction in which the test rejects, where that is known; else it is that of the change.
    ``smallest_p``: the smallest that the test can give, where that is not the one of ``pairs`` in each condition.
    """
    alpha = 1 - level
    fewest = fewest_of(test, alpha / family)
    reachable = None if smallest_p is None else rejects(smallest_p, alpha / family)
    alone = pairs >= fewest_of(test, alpha) if smallest_p is None else rejects(smallest_p, alpha)

    def answer(said: Said, seen: float | None = None, needed: int | None = None) -> Answer:
        return Answer(said, change, interval, p, pairs, seen, needed, test, fewest, reachable=reachable)

    if change is None or interval is None or p is None or not alone:
        return answer(said or "cannot-tell")
    if interval.low <= -1:  # values of 0: on the scale of ratios the interval has no width
        return answer(said or _direction(change, p, alpha))
    width = (log1p(interval.high) - log1p(interval.low)) / 2
    seen = None
    if pairs >= fewest:
        reach = shift_seen(pairs, _exactly(alpha / family), test) / median_half_width(pairs, interval.level, test)
        seen = expm1(width * reach)
    needed = max(fewest, ceil(pairs * (width / log1p(NEGLIGIBLE)) ** 2))
    said = said or _direction(change, p, alpha)
    if said == "cannot-tell":
        said = "same" if max(abs(interval.low), abs(interval.high)) <= NEGLIGIBLE else "cannot-tell"
        if said == "cannot-tell" and needed <= pairs:
            needed = _to_decide(abs(log1p(change)), width, pairs)
    return answer(said, seen, needed)


def _direction(change: float, p: float, alpha: float) -> Said:
    """The direction of the change where the test rejects."""
    return "cannot-tell" if change == 0 or not rejects(p, alpha) else "lower" if change < 0 else "higher"


def _exactly(alpha: float) -> float:
    """``alpha`` without the rounding of 1 - level, so that a p which just rejects does so here, too."""
    return alpha * (1 + 1e-9)


def rejects(p: float, alpha: float) -> bool:
    """Whether ``p`` is within ``alpha``, whatever the rounding of both."""
    return p <= alpha * (1 + 1e-12)


def left_by_holm(adjusted: Sequence[float | None], alpha: float) -> list[int]:
    """For each comparison the least number by which Holm multiplies its p: itself and all others not rejected."""
    rejected = [p is not None and rejects(p, alpha) for p in adjusted]
    return [len(rejected) - sum(rejected) + mine for mine in rejected]


def _to_decide(apart: float, width: float, pairs: int) -> int:
    """Executions with which the interval around this change excludes 0 or lies within ± ``NEGLIGIBLE``."""
    distance = max(apart, log1p(NEGLIGIBLE) - apart)
    return max(pairs + 1, ceil(pairs * (width / distance) ** 2))


def is_narrow(found: Answer) -> bool:
    """Whether the interval is as narrow as ± ``NEGLIGIBLE``, wherever it lies."""
    ends = found.interval
    return ends is not None and ends.low > -1 and log1p(ends.high) - log1p(ends.low) <= 2 * log1p(NEGLIGIBLE)


def needs(found: Answer) -> str:
    """What :attr:`Answer.needed` executions would give: ``±3%``, or ``an answer``."""
    return "an answer" if is_narrow(found) else f"±{100 * NEGLIGIBLE:g}%"


def fewest_of(test: Test, alpha: float) -> int:
    """The fewest pairs, or executions of each condition, whose smallest possible two-sided p is at most ``alpha``."""
    n = 1
    if test == "rank-sum":
        while not rejects(2 / comb(2 * n, n), alpha):
            n += 1
        return n
    while not rejects(2 / 2**n, alpha):
        n += 1
    return n


UNSIZED, TIED = ", size unknown", ", median change 0"
"""Ends of the words of a direction without a size."""


def words(found: Answer, metric: Metric) -> str:
    """The answer in words: ``45.6% slower``, ``same within ±1.2%``, ``cannot tell: under 12% would not be seen``."""
    names = ("faster", "slower") if metric.kind == "time" else ("lower", "higher")
    if found.tied:
        return f"{names[found.said == 'higher']}{TIED}"
    if found.said in ("lower", "higher") and found.change is None:
        name = names[found.said == "higher"]
        return f"{name}{UNSIZED}" if found.shift is None else f"{_amount(found.shift, metric)} {name}"
    if found.said in ("lower", "higher") and found.change is not None:
        if found.change >= 2:
            return f"{wording.digits(1 + found.change)} times as {'long' if metric.kind == 'time' else 'high'}"
        size = "under 0.01%" if abs(found.change) < 5e-5 else wording.percent(abs(found.change), signed=False)
        return f"{size} {names[found.said == 'higher']}"
    if found.said == "same" and found.interval is None:
        return f"same: no difference in most {'pairs' if found.test == 'pairs' else 'executions'}"
    if found.said == "same" and found.interval is not None:
        return f"same within ±{_about(max(abs(found.interval.low), abs(found.interval.high)))}"
    if found.test == "pairs" and not _tested(found):
        return "cannot tell: no pairs"
    if found.too_few:
        number = _number(_tested(found), found.test)
        if found.reachable is not None:
            number = _against(found.against) if found.against and not found.late else "too few executions"
        each = "" if found.reachable is None else " of each"
        return f"cannot tell: {number}, {found.fewest}{each} are the fewest"
    if found.late:
        return f"cannot tell: {wording.count(found.late, 'execution')} timed out"
    if excludes_nothing(found):
        among = f" among {found.comparisons} comparisons"
        return f"cannot tell{among if found.comparisons > 1 else ': the test and the interval disagree'}"
    if found.seen is None and found.seen_shift is not None:
        return f"cannot tell: under {_amount(found.seen_shift, metric)} would not be seen"
    if found.seen is None:
        return "cannot tell"
    if found.seen >= 1:
        return f"cannot tell: factors under {wording.digits(1 + found.seen, 2)} would not be seen"
    return f"cannot tell: under {_about(found.seen)} would not be seen"


def excludes_nothing(found: Answer) -> bool:
    """Whether the interval says that there is a change, although the answer does not: alone it would be found."""
    ends = found.interval or found.shift_interval
    return found.said == "cannot-tell" and ends is not None and not ends.low <= 0 <= ends.high


def counted(found: Answer) -> str:
    """The number of pairs or executions: ``12 pairs``, ``12 executions of each``; ``3 of 12 pairs finished``."""
    if found.late and found.test == "pairs":
        return f"{found.pairs:,} of {wording.count(_tested(found), 'pair')} finished"
    if found.against:
        return _against(found.against)
    return _number(found.pairs, found.test)


def _tested(found: Answer) -> int:
    return found.pairs if found.tested is None else found.tested


def _number(n: int, test: Test) -> str:
    return wording.count(n, "pair") if test == "pairs" else f"{n:,} executions of each"


def _against(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]:,} against {numbers[1]:,} executions"


def _amount(shift: float, metric: Metric) -> str:
    return wording.quantity(abs(shift), metric, 3)


def _about(fraction: float) -> str:
    """A fraction in percent with two digits."""
    return f"{wording.digits(100 * fraction, 2)}%"


def span(interval: Interval) -> str:
    """The interval in percent: ``44.2–47.1%`` where it lies on one side of 0, else with signs."""
    if interval.low > 0 and interval.high < 10:
        low = wording.end(interval.low, signed=False).rstrip("%")
        return f"{low}–{wording.end(interval.high, signed=False)}"
    if interval.high < 0:
        low, high = (wording.end(abs(end), signed=False) for end in (interval.high, interval.low))
        return f"{low.rstrip('%')}–{high}"
    return wording.interval_percent(interval)


def sized(found: Answer, interval: Interval) -> str:
    """The interval of the change: without signs only where the answer has a direction, and as factors where the change
    is given as a factor.
    """
    if found.said not in ("lower", "higher"):
        return wording.interval_percent(interval)
    if found.change is None or found.change < 2 or interval.low <= 0:
        return span(interval)
    return f"{wording.factor(1 + interval.low, 3)}–{wording.factor(1 + interval.high, 3)} times"


def sentence(found: Answer, metric: Metric, treatment: str, baseline: str) -> str:
    """The answer as a sentence: ``B is 45.6% slower than A``; ``B against A: same within ±1.2%``."""
    said = words(found, metric)
    lead = "" if metric.kind == "time" else f"{metric.label}: "
    if found.said not in ("lower", "higher"):
        return f"{lead}{treatment} against {baseline}: {said}"
    said, beside = aside(found, said)
    than = "as" if " times as " in said else "than"
    verb = "takes" if said.endswith("as long") else "is"
    return f"{lead}{treatment} {verb} {said} {than} {baseline}{beside}"


def aside(found: Answer, said: str) -> tuple[str, str]:
    """The words of a direction without their end on the size, and what a sentence adds about that."""
    if found.tied:
        return said.removesuffix(TIED), "; the median change is 0"
    return said.removesuffix(UNSIZED), "" if found.has_size else "; the size is unknown"


def facts(found: Answer, metric: Metric) -> list[str]:
    """The interval, the number of pairs or executions, and p, each where it exists.

    p is left out where it could not have been small enough.
    """
    ends = found.interval or found.shift_interval
    shown = []
    if ends is not None:
        told = sized(found, ends) if found.interval else wording.interval_quantity(ends, metric)
        shown.append(f"{wording.level(ends.level)} interval {told}")
    shown.append(counted(found))
    possible = found.said in ("lower", "higher") or not found.too_few
    return shown + ([wording.p_value(found.p)] if found.p is not None and possible else [])


def further(found: Answer, made: int, *, strictly: float = 1.0) -> int:
    """Executions of each condition for an answer: those that give ±3%, where that is known; else twice as many.

    ``made``: executions of each so far, of which some may have no value or no partner; as many of the next will have
    none. ``strictly``: how many times as many a further look needs.
    """
    if not found.needed:
        return max(2 * found.fewest, 2 * made)
    return ceil(found.needed * max(1.0, made / max(1, found.pairs)) * strictly)


def more(found: Answer, made: int, seconds_a_block: float | None, command: Callable[[int], str]) -> str | None:
    """The next step: ``±3% needs 155 executions (11 min): COMMAND``; None where nothing is missing.

    ``made``: executions of each condition so far.
    """
    if found.said != "cannot-tell" or found.late:  # more executions under the same time limit are no answer
        return None
    needed = further(found, made)
    from pagelab.study.progress import shown_duration

    long = f" ({shown_duration(needed * seconds_a_block)})" if seconds_a_block is not None else ""
    if not found.needed:
        return f"an answer needs more, such as {wording.count(needed, 'execution')} of each{long}: {command(needed)}"
    return f"{needs(found)} needs {wording.count(needed, 'execution')} of each{long}: {command(needed)}"


_CROWDED = 3.0
"""An interval is cut off, with an arrow, where it reaches this many times as far as four of five intervals."""
_NEVER_CUT = 0.5
"""No interval is cut off below this fraction, even where a few comparisons differ much and the others little."""
_NICE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)


_WORTH = 3.0
"""A limit is left out of the axis where it lies more than this many times as far from 0 as everything else."""


def reach(ends: list[tuple[float, float]], limits: Sequence[float] = ()) -> tuple[float, float]:
    """Round ends of the axis below and above 0, for most of the intervals and for ``limits`` near them.

    A few very wide intervals are cut off, so that the others keep their room.
    """
    low, high = _reach(ends)
    near = [limit for limit in limits if abs(limit) <= _WORTH * max(-low, high)]
    return _reach([(min(low, *near), max(high, *near))]) if near else (low, high)


def _reach(ends: list[tuple[float, float]]) -> tuple[float, float]:
    reaches = sorted(max(abs(low), abs(high)) for low, high in ends)
    most = max(_CROWDED * reaches[(len(reaches) - 1) * 4 // 5], _NEVER_CUT)
    low = min([low for low, _ in ends if low >= -most] + [-NEGLIGIBLE])
    high = max([high for _, high in ends if high <= most] + [NEGLIGIBLE])
    low = max(low, -1.0)
    step = next((nice for nice in _NICE if (high - low) / nice <= 8), _NICE[-1])
    return max(step * (low // step), -1.0), step * -(-high // step)
