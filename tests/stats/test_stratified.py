"""The rank-sum test within blocks against enumeration of every division, against R's coin, and in its limits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from r_reference import Cases
from scipy.stats import rankdata

from pagelab import stats
from pagelab.stats import Refusal, StatsRefusedError, stratified_rank_sum

SIDES = ("two-sided", "less", "greater")


def enumerated(values: list[float], is_treatment: list[bool], blocks: list[int], side: str) -> Fraction:
    """By the definition: every division of every block."""
    both = {b for b in blocks if len({t for t, other in zip(is_treatment, blocks, strict=True) if other == b}) == 2}
    kept = [i for i, b in enumerate(blocks) if b in both]
    ranks = dict(zip(kept, [Fraction(r) for r in rankdata([values[i] for i in kept])], strict=True))
    groups = [[i for i in kept if blocks[i] == b] for b in sorted(both)]
    sizes = [sum(is_treatment[i] for i in group) for group in groups]
    observed = sum((ranks[i] for i in kept if is_treatment[i]), Fraction(0))
    mean = sum((k * sum(ranks[i] for i in g) / len(g) for g, k in zip(groups, sizes, strict=True)), Fraction(0))
    extreme = total = 0
    for chosen in itertools.product(*(itertools.combinations(g, k) for g, k in zip(groups, sizes, strict=True))):
        s = sum((ranks[i] for part in chosen for i in part), Fraction(0))
        far = abs(s - mean) >= abs(observed - mean)
        extreme += {"two-sided": far, "less": s <= observed, "greater": s >= observed}[side]
        total += 1
    return Fraction(extreme, total)


def outcome_of(
    values: list[float], is_treatment: list[bool], blocks: list[int], **how: object
) -> stats.StratifiedRankSum:
    rows = list(zip(values, is_treatment, blocks, strict=True))
    return stratified_rank_sum(
        [v for v, t, _ in rows if t],
        [v for v, t, _ in rows if not t],
        treatment_blocks=[b for _, t, b in rows if t],
        baseline_blocks=[b for _, t, b in rows if not t],
        **how,
    )


@st.composite
def designs(draw: st.DrawFn) -> tuple[list[float], list[bool], list[int]]:
    """Blocks of 1 to 4 executions, some with one condition only, values with many ties and time-outs."""
    values, treatments, blocks = [0.0, 1.0], [True, False], [0, 0]
    for block in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 4))):
            values.append(draw(st.sampled_from([0.5, 1.0, 2.0, 3.25, math.inf])))
            treatments.append(draw(st.booleans()))
            blocks.append(block)
    return values, treatments, blocks


@settings(max_examples=150, deadline=None)
@given(design=designs(), side=st.sampled_from(SIDES))
def test_every_division_is_counted(design: tuple[list[float], list[bool], list[int]], side: str) -> None:
    found = outcome_of(*design, alternative=side, method="exact")
    assert found.count is not None
    assert Fraction(found.count, found.total) == enumerated(*design, side)
    assert found.p == found.count / found.total
    assert found.n_treatment + found.n_baseline + found.left_out == len(design[0])


def _cases() -> Cases:
    cases, random = Cases(), np.random.default_rng(1960)
    for n in (2, 5, 10, 20, 40):
        drift = np.arange(n) / 3
        cases.add("strata", f"pairs-{n}", random.normal(0, 1, n) + drift, random.normal(0.5, 1, n) + drift)
        cases.add("strata", f"tied-{n}", random.integers(0, 4, n), random.integers(0, 5, n))
    return cases


def test_as_coin_has_it() -> None:
    """coin's p-values are double arithmetic; ours are correctly rounded counts."""
    cases = _cases()
    answers = cases.answer()
    for name in cases.of("strata"):
        x, y = cases.inputs[name]
        blocks = np.arange(x.size)
        for side in SIDES:
            found = stratified_rank_sum(x, y, treatment_blocks=blocks, baseline_blocks=blocks, alternative=side)
            assert found.p == pytest.approx(answers[name][f"coin.{side.replace('-', '.')}"][0], rel=1e-10), name
            sums = found.w + x.size * (x.size + 1) / 2
            assert sums == answers[name]["linear"][0], name


def test_one_block_is_the_test_without_blocks() -> None:
    random = np.random.default_rng(2)
    for n, m in ((3, 4), (8, 8), (20, 12)):
        x, y = random.normal(0, 1, n).round(1), random.normal(0.4, 1, m).round(1)
        for side in SIDES:
            one = stratified_rank_sum(x, y, treatment_blocks=[1] * n, baseline_blocks=[1] * m, alternative=side)
            whole = stats.rank_sum(x, y, alternative=side)
            assert (one.w, one.p, one.count) == (whole.w, whole.p, whole.count)
            assert one.w_expected == n * m / 2


def test_drift_hides_nothing_from_it() -> None:
    """The example of docs/method.md: every block 1 slower than the one before, the policy adds 0.3."""
    blocks = np.arange(10)
    within = stratified_rank_sum(blocks + 0.3, blocks + 0.0, treatment_blocks=blocks, baseline_blocks=blocks)
    over_all = stats.rank_sum(blocks + 0.3, blocks + 0.0)
    assert (within.p, round(over_all.p, 2)) == (2 / 2**10, 0.74)
    assert within.w > within.w_expected


def test_the_level_holds_under_any_drift() -> None:
    """Exact by the randomisation: over all divisions of a drifting study, p <= a in at most a of them."""
    drift = [0.0, 5.0, 1.0, 40.0, 2.5, 9.0, 3.0]
    noise = [0.1, 0.9, 0.3, 0.2, 0.5, 0.8, 0.6]
    ps = []
    for flips in itertools.product((False, True), repeat=len(drift)):
        pairs = [(d + e, d) if not f else (d, d + e) for d, e, f in zip(drift, noise, flips, strict=True)]
        x, y = zip(*pairs, strict=True)
        ps.append(stratified_rank_sum(x, y, treatment_blocks=range(7), baseline_blocks=range(7)).p)
    for p in set(ps):
        assert sum(other <= p for other in ps) / len(ps) <= p + 1e-12


def test_beyond_exact_counting_the_normal_approximation_is_close_and_says_so() -> None:
    random = np.random.default_rng(3)
    x, y, blocks = random.normal(0.2, 1, 150), random.normal(0, 1, 150), np.arange(150)
    exact = stratified_rank_sum(x, y, treatment_blocks=blocks, baseline_blocks=blocks)
    normal = stratified_rank_sum(x, y, treatment_blocks=blocks, baseline_blocks=blocks, method="normal")
    assert (exact.method, normal.method, normal.count) == ("exact", "normal", None)
    assert normal.p == pytest.approx(exact.p, rel=0.02)
    large = stratified_rank_sum(np.tile(x, 2), np.tile(y, 2), treatment_blocks=range(300), baseline_blocks=range(300))
    assert large.method == "normal"
    with pytest.raises(StatsRefusedError, match="400"):
        stratified_rank_sum(
            np.tile(x, 2), np.tile(y, 2), treatment_blocks=range(300), baseline_blocks=range(300), method="exact"
        )
    wide = np.arange(150) % 5
    assert stratified_rank_sum(x, y, treatment_blocks=wide, baseline_blocks=wide).method == "normal"


def test_blocks_with_one_condition_only_have_no_part() -> None:
    found = stratified_rank_sum(
        [1.0, 3.0, 99.0], [2.0, 1.5, -7.0], treatment_blocks=[0, 1, 2], baseline_blocks=[0, 1, 3]
    )
    whole = stratified_rank_sum([1.0, 3.0], [2.0, 1.5], treatment_blocks=[0, 1], baseline_blocks=[0, 1])
    assert (found.blocks, found.left_out, found.p, found.w) == (2, 2, whole.p, whole.w)


def test_equal_values_are_no_evidence() -> None:
    blocks = range(6)
    found = stratified_rank_sum([2.0] * 6, [2.0] * 6, treatment_blocks=blocks, baseline_blocks=blocks)
    assert (found.p, found.ties) == (1.0, True)
    assert stratified_rank_sum([1.0], [1.0], treatment_blocks=[0], baseline_blocks=[0], method="normal").p == 1.0


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (([1.0], [2.0], [0], [1]), Refusal.INCOMPLETE_BLOCKS),
        (([], [2.0], [], [1]), Refusal.EMPTY),
        (([1.0, 2.0], [2.0], [0], [0]), Refusal.LENGTHS_DIFFER),
        (([math.nan], [2.0], [0], [0]), Refusal.NOT_FINITE),
        (([-math.inf], [2.0], [0], [0]), Refusal.NOT_FINITE),
    ],
)
def test_what_cannot_be_tested_is_refused(arguments: tuple[list[float], ...], refusal: Refusal) -> None:
    x, y, own, other = arguments
    with pytest.raises(StatsRefusedError) as error:
        stratified_rank_sum(x, y, treatment_blocks=own, baseline_blocks=other)
    assert error.value.refusal is refusal


def test_what_blocks_can_reach() -> None:
    assert stats.smallest_p(10, 10, stratified=True) == Fraction(2, 1024)
    assert stats.smallest_p(1, 1, stratified=True) == 1
    separated = stratified_rank_sum(range(10, 16), range(6), treatment_blocks=range(6), baseline_blocks=range(6))
    assert separated.p == float(stats.smallest_p(6, 6, stratified=True)) == 2 / 64
    reach = stats.reachable(6, 6, contrasts=7, stratified=True)
    assert (reach.reachable, reach.smallest_n) == (False, 9)
    assert stats.reachable(9, 9, contrasts=7, stratified=True).reachable
