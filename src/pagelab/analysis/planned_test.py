"""Makes the planned test of one contrast: within the pairs of the schedule, or the rank sum over all executions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from pagelab.analysis.model import Execution, Metric
from pagelab.stats import Pairs, StatsRefusedError, pairs_of, rank_sum, signed_rank, smallest_p, stratified_rank_sum

_TIMES = ("wall_s", "user_s", "system_s", "cpu_s")
TestName = Literal["pairs", "rank-sum", "stratified"]


@dataclass(frozen=True)
class Tested:
    w: float
    w_expected: float
    p: float
    p_method: str
    ties: bool
    smallest_p: float
    """The smallest p that these numbers of executions can give, before any correction."""
    untested: int
    pairs: int | None = None
    """Number of pairs; None where blocks are ignored."""


def counts_as_slowest(e: Execution, metric: Metric) -> bool:
    """Whether the time limit ended the execution, and the metric is its time: it is then slower than all that finished.

    Of processor time that is a convention: an execution that hangs asleep has used little, but it did not end. A window
    inside the program may have ended before, or never have begun.
    """
    return e.status == "timed-out" and not e.warmup and metric.name in _TIMES


def of_test(executions: Iterable[Execution], metric: Metric) -> list[Execution]:
    """The executions that a test of the metric counts: those with a value, and those that count as slowest."""
    return [e for e in executions if counts_as_slowest(e, metric) or (e.analysed and metric.name in e.values)]


def test_of(treatment: list[Execution], baseline: list[Execution], metric: str, *, test: TestName) -> Tested | None:
    """The test of two conditions' executions; None where there is nothing to test.

    Each execution has a value of the metric or timed out; one that timed out is slower than all others.
    """
    if not treatment or not baseline:
        return None
    made = {"pairs": _pairs, "stratified": _within_blocks, "rank-sum": _over_all}
    return made[test](treatment, baseline, metric)


def paired(treatment: list[Execution], baseline: list[Execution], metric: str) -> Pairs | None:
    """Pairs of the executions in one block, those without a value as timed out; None if no block has both."""
    groups = [
        [(e.block, e.values.get(metric, inf)) for e in group if e.block is not None] for group in (treatment, baseline)
    ]
    if not all(groups):
        return None
    blocks, values = ([[pair[i] for pair in group] for group in groups] for i in (0, 1))
    try:
        return pairs_of(values[0], values[1], treatment_blocks=blocks[0], baseline_blocks=blocks[1])
    except StatsRefusedError:
        return None


def _pairs(treatment: list[Execution], baseline: list[Execution], metric: str) -> Tested | None:
    pairs = paired(treatment, baseline, metric)
    if pairs is None:
        return None
    found = signed_rank(pairs.apart())
    least = smallest_p(len(pairs), len(pairs), stratified=True)
    untested = len(treatment) + len(baseline) - 2 * len(pairs)
    return Tested(found.w, found.w_expected, found.p, str(found.method), found.ties, float(least), untested, len(pairs))


def _over_all(treatment: list[Execution], baseline: list[Execution], metric: str) -> Tested:
    samples = [[e.values[metric] for e in group if metric in e.values] for group in (treatment, baseline)]
    late = len(treatment) - len(samples[0]), len(baseline) - len(samples[1])
    found = rank_sum(*samples, timed_out=late)
    n, m = found.n_treatment, found.n_baseline
    return Tested(found.w, n * m / 2, found.p, str(found.method), found.ties, float(smallest_p(n, m)), 0)


def _within_blocks(treatment: list[Execution], baseline: list[Execution], metric: str) -> Tested | None:
    groups = (treatment, baseline)
    in_block = [[(e.block, e.values.get(metric, inf)) for e in group if e.block is not None] for group in groups]
    blocks = [[block for block, _ in group] for group in in_block]
    values = [[value for _, value in group] for group in in_block]
    if not set(blocks[0]) & set(blocks[1]):
        return None
    found = stratified_rank_sum(*values, treatment_blocks=blocks[0], baseline_blocks=blocks[1])
    least = smallest_p(found.blocks, found.blocks, stratified=True)
    untested = len(treatment) + len(baseline) - found.n_treatment - found.n_baseline
    return Tested(found.w, found.w_expected, found.p, str(found.method), found.ties, float(least), untested)
